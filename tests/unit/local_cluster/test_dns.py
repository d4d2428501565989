"""The cluster's DNS, as packets and as answers of the API server."""

import struct
from typing import Any

import pytest

from tests.cluster.dns import NO_ERROR, NO_SUCH_NAME, SERVER_FAILURE, A, Read, question, reply, resolve


def packet(name: str, kind: int = A) -> bytes:
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    return struct.pack("!6H", 0xBEEF, 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack("!2H", kind, 1)


def test_a_question_is_read_whatever_its_case() -> None:
    asked = question(packet("Web.Default.svc.cluster.local"))
    assert (asked.name, asked.kind) == ("web.default.svc.cluster.local", A)


@pytest.mark.parametrize("length", range(len(packet("a.b"))))
def test_a_packet_that_breaks_off_is_refused(length: int) -> None:
    with pytest.raises(ValueError, match="question"):
        question(packet("a.b")[:length])


def test_a_reply_repeats_the_question_and_names_the_addresses() -> None:
    sent = packet("a.b")
    answer = reply(sent, question(sent), NO_ERROR, ["10.96.0.7"])
    identity, flags, questions, answers, _, _ = struct.unpack_from("!6H", answer)
    assert (identity, questions, answers) == (0xBEEF, 1, 1)
    assert flags & 0x8000
    assert answer[12 : len(sent)] == sent[12:]
    assert answer.endswith(bytes([10, 96, 0, 7]))


def cluster(**services: dict[str, Any]) -> Read:
    """An API server with these Services in the namespace llm, and one slice of endpoints for each."""

    def read(path: str) -> dict[str, Any] | None:
        if path == "/version":
            return {"major": "1"}
        service, _, rest = path.removeprefix("/api/v1/namespaces/llm/services/").partition("/")
        if path.startswith("/api/v1/namespaces/llm/services/") and service in services and not rest:
            return {"spec": services[service]}
        if path.startswith("/apis/discovery.k8s.io/v1/namespaces/llm/endpointslices"):
            ready = {"addresses": ["10.244.1.2"], "hostname": "g-0", "conditions": {"ready": True}}
            not_ready = {"addresses": ["10.244.1.3"], "hostname": "g-1", "conditions": {"ready": False}}
            return {"items": [{"endpoints": [ready, not_ready]}, {"endpoints": None}]}
        return None

    return read


def test_a_service_is_found_by_its_full_name_alone() -> None:
    read = cluster(web={"clusterIP": "10.96.0.7"})
    assert resolve("web.llm.svc.cluster.local", read) == (NO_ERROR, ["10.96.0.7"])
    for other in ("web", "web.llm", "web.llm.svc", "no.llm.svc.cluster.local", "web.other.svc.cluster.local"):
        assert resolve(other, read) == (NO_SUCH_NAME, [])


def test_a_service_without_an_address_names_its_ready_pods() -> None:
    read = cluster(group={"clusterIP": "None"})
    assert resolve("group.llm.svc.cluster.local", read) == (NO_ERROR, ["10.244.1.2"])


def test_a_pod_of_a_group_is_found_by_its_host_name() -> None:
    read = cluster(group={"clusterIP": "None"})
    assert resolve("g-0.group.llm.svc.cluster.local", read) == (NO_ERROR, ["10.244.1.2"])
    assert resolve("g-7.group.llm.svc.cluster.local", read) == (NO_SUCH_NAME, [])


def test_an_api_server_that_is_away_is_no_proof_that_a_name_is_wrong() -> None:
    assert resolve("web.llm.svc.cluster.local", lambda _: None) == (SERVER_FAILURE, [])
