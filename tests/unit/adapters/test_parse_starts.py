"""What is read of a pod that does not start."""

from typing import Any

from kintsugi.adapters.kube import parse
from kintsugi.core.classify import Told
from kintsugi.core.snapshot import Failed, Failure, Instance, Termination

NO_PAGE = Failed(Failure.NO_ADDRESS, "none", 0.0)


def read(status: dict[str, Any], spec: dict[str, Any] | None = None) -> Instance:
    pod = {"metadata": {"name": "chat-short-1", "uid": "u"}, "spec": spec or {}, "status": status}
    return parse.instance(pod, NO_PAGE)


def init(state: dict[str, Any], last: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"name": "preflight", "ready": False, "restartCount": 2, "state": state, "lastState": last or {}}


def test_the_failed_end_of_an_init_container_is_the_end_of_the_start() -> None:
    ended = {"terminated": {"exitCode": 3, "reason": "Error", "message": "weights are missing"}}
    got = read(
        {
            "phase": "Pending",
            "initContainerStatuses": [init({"waiting": {"reason": "CrashLoopBackOff"}}, ended)],
            "containerStatuses": [{"name": "engine", "state": {"waiting": {"reason": "PodInitializing"}}}],
        }
    )
    assert got.last_termination == Termination(
        3, "Error", "init container preflight: weights are missing", 0.0
    )
    assert got.waiting_reason == "CrashLoopBackOff"


def test_an_init_container_that_succeeded_is_no_failure() -> None:
    done = init({"terminated": {"exitCode": 0, "reason": "Completed"}}) | {"ready": True}
    assert read({"initContainerStatuses": [done]}).last_termination is None


def test_the_engines_own_end_comes_before_that_of_an_init_container() -> None:
    ended = {"terminated": {"exitCode": 3, "reason": "Error"}}
    engine = {"name": "engine", "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}
    got = read({"initContainerStatuses": [init({}, ended)], "containerStatuses": [engine]})
    assert got.last_termination == Termination(137, "OOMKilled", "", 0.0)


def test_another_container_keeps_the_pod_from_being_ready() -> None:
    engine = {"name": "engine", "ready": True, "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}
    waiting = {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}
    got = read({"containerStatuses": [engine, {"name": "proxy", "state": {"waiting": waiting}}]})
    assert (got.waiting_reason, got.waiting_message) == (
        "ImagePullBackOff",
        "container proxy: Back-off pulling image",
    )
    ended = {"terminated": {"exitCode": 1, "reason": "Error", "message": "no config"}}
    got = read({"containerStatuses": [engine, {"name": "proxy", "state": ended, "ready": False}]})
    assert got.last_termination == Termination(1, "Error", "container proxy: no config", 0.0)
    got = read(
        {"containerStatuses": [engine, {"name": "proxy", "lastState": ended, "state": {}, "ready": True}]}
    )
    assert got.last_termination is None


def test_a_pod_that_was_ready_before_is_told_from_one_that_never_was() -> None:
    def pod(ready: str, since: str) -> Instance:
        condition = {"type": "Ready", "status": ready, "lastTransitionTime": f"2026-01-01T00:{since}Z"}
        return read({"startTime": "2026-01-01T00:00:10Z", "conditions": [condition]})

    assert not pod("False", "00:10").served_before
    assert not pod("False", "00:12").served_before
    assert pod("False", "03:00").served_before
    assert not pod("True", "03:00").served_before
    assert not read({"conditions": [{"type": "Ready", "status": "False"}]}).served_before
    assert not read({}).served_before


def test_sharing_the_nodes_memory_is_seen() -> None:
    assert read({}, {"hostIPC": True}).host_ipc
    assert not read({}, {"hostIPC": "yes"}).host_ipc


def test_events_are_read_in_both_forms_and_odd_ones_do_not_raise() -> None:
    old = {"reason": "Unhealthy", "message": "Startup probe failed", "count": 7}
    new = {"reason": "Killing", "note": "Container engine", "series": {"count": 3}}
    assert parse.told(old) == Told("Unhealthy", "Startup probe failed", 7)
    assert parse.told(new) == Told("Killing", "Container engine", 3)
    assert parse.told({}) == Told("", "", 1)
    assert parse.told({"reason": 7, "message": None, "count": "x", "series": []}) == Told("7", "", 0)
    assert len(parse.told({"message": "x" * 99_999}).message) == 2000
