"""The cluster's DNS: Service names as pods know them, answered from the API server at each question.

Run as `python -m tests.cluster.dns KUBECONFIG` on the control plane. Other names do not exist: a cluster in a network of
its own reaches nothing outside.
"""

from __future__ import annotations

import ipaddress
import socketserver
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tests.cluster.kube import ApiReader
from tests.cluster.names import CONTROL_PLANE_IP, DOMAIN

A, IN = 1, 1
NO_ERROR, FORMAT_ERROR, SERVER_FAILURE, NO_SUCH_NAME, NOT_IMPLEMENTED = range(5)
_TTL_SECONDS = 1
_HEADER = struct.Struct("!6H")
"""Id, flags, and the numbers of questions, answers, authorities and additionals (RFC 1035, section 4.1.1)."""

Read = Callable[[str], dict[str, Any] | None]


@dataclass(frozen=True, slots=True)
class Question:
    """The first question of a packet; `end` is where its bytes end."""

    name: str
    kind: int
    end: int


def question(packet: bytes) -> Question:
    """Raises ValueError for a packet that asks nothing readable."""
    if len(packet) < _HEADER.size or _HEADER.unpack_from(packet)[2] < 1:
        raise ValueError("no question")
    labels, at = [], _HEADER.size
    while at < len(packet) and (length := packet[at]):
        labels.append(packet[at + 1 : at + 1 + length].decode("ascii").lower())
        at += 1 + length
    if at + 5 > len(packet):
        raise ValueError("the question breaks off")
    (kind,) = struct.unpack_from("!H", packet, at + 1)
    return Question(".".join(labels), kind, at + 5)


def reply(packet: bytes, asked: Question, code: int, addresses: list[str]) -> bytes:
    """The answer to `packet` with one record for each IPv4 address."""
    identity, flags = struct.unpack_from("!2H", packet)
    answers = b"".join(
        struct.pack("!HHHIH", 0xC000 | _HEADER.size, A, IN, _TTL_SECONDS, 4)
        + ipaddress.IPv4Address(address).packed
        for address in addresses
    )
    said = 0x8400 | (flags & 0x0100) | code  # an answer, with authority; the wish for recursion is repeated
    header = _HEADER.pack(identity, said, 1, len(addresses), 0, 0)
    return header + packet[_HEADER.size : asked.end] + answers


def resolve(name: str, read: Read) -> tuple[int, list[str]]:
    """Code and addresses for a name: SERVICE.NAMESPACE.svc.DOMAIN, or POD.SERVICE.NAMESPACE.svc.DOMAIN.

    A Service without an address of its own answers with those of its ready pods.
    """
    parts = name.removesuffix(f".svc.{DOMAIN}").split(".")
    if not name.endswith(f".svc.{DOMAIN}") or len(parts) not in (2, 3):
        return NO_SUCH_NAME, []
    service, namespace = parts[-2:]
    host = parts[0] if len(parts) == 3 else None
    found = read(f"/api/v1/namespaces/{quote(namespace)}/services/{quote(service)}")
    if found is None:
        return (SERVER_FAILURE if read("/version") is None else NO_SUCH_NAME), []
    own = found["spec"].get("clusterIP", "")
    if host is None and own not in ("", "None"):
        return NO_ERROR, [own]
    addresses = _pods(service, namespace, host, read)
    return (NO_ERROR, addresses) if addresses or host is None else (NO_SUCH_NAME, [])


def _pods(service: str, namespace: str, host: str | None, read: Read) -> list[str]:
    selector = quote(f"kubernetes.io/service-name={service}")
    listed = read(
        f"/apis/discovery.k8s.io/v1/namespaces/{quote(namespace)}/endpointslices?labelSelector={selector}"
    )
    return [
        address
        for slice_ in (listed or {"items": []})["items"]
        for endpoint in slice_.get("endpoints") or []
        if endpoint.get("conditions", {}).get("ready", True) and host in (None, endpoint.get("hostname"))
        for address in endpoint["addresses"]
    ]


class _Handler(socketserver.BaseRequestHandler):
    read: Read

    def handle(self) -> None:
        packet, socket = self.request
        try:
            asked = question(packet)
        except (ValueError, UnicodeDecodeError):
            return
        code, addresses = resolve(asked.name, type(self).read)
        socket.sendto(reply(packet, asked, code, addresses if asked.kind == A else []), self.client_address)


def main(kubeconfig: str) -> None:
    reader = ApiReader(Path(kubeconfig))
    handler = type("Handler", (_Handler,), {"read": staticmethod(reader.json)})
    with socketserver.ThreadingUDPServer((CONTROL_PLANE_IP, 53), handler) as server:
        server.serve_forever()


if __name__ == "__main__":
    main(sys.argv[1])
