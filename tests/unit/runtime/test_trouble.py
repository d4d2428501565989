"""Reading about pods that do not start: only those, a few at once, again only when something changed."""

import asyncio
from collections.abc import Sequence
from typing import Any

from kintsugi.core.classify import Told
from kintsugi.core.snapshot import Instance, Termination
from kintsugi.ports.errors import Forbidden, NotFound
from kintsugi.runtime.trouble import AT_ONCE, EVENTS_SECONDS, Troubles
from tests.unit.core.staging import EPOCH, instance

NOW = EPOCH
ENDED = Termination(1, "Error", "", NOW - 30)


class Api:
    """Answers what it is told to, and remembers what it was asked."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.logs: list[tuple[str, bool]] = []
        self.busy = 0
        self.most = 0
        self.fails: Exception | None = None
        self.previous: Sequence[str] = ("ValueError: old run",)
        self.open = asyncio.Event()
        self.open.set()

    async def list_pod_events(self, namespace: str, name: str, uid: str) -> list[dict[str, Any]]:
        self.events.append(name)
        self.busy += 1
        self.most = max(self.most, self.busy)
        await self.open.wait()
        self.busy -= 1
        if self.fails:
            raise self.fails
        return [
            {"reason": "B", "message": "late", "lastTimestamp": "2026-01-01T00:00:09Z"},
            {"reason": "A", "message": "early", "lastTimestamp": "2026-01-01T00:00:01Z"},
        ]

    async def pod_log_tail(
        self, namespace: str, name: str, lines: int, previous: bool = False
    ) -> Sequence[str]:
        self.logs.append((name, previous))
        return self.previous if previous else ("only run",)


def failing(name: str = "a", **more: Any) -> Instance:
    fields = {
        "ready": False,
        "started_at": None,
        "waiting_reason": "CrashLoopBackOff",
        "restarts": 1,
        "last_termination": ENDED,
    }
    return instance(name, **{**fields, **more})


async def look(troubles: Troubles, api: Api, *instances: Instance, mono: float = 0.0) -> None:
    troubles.look(api, "llm", instances, NOW, mono)  # type: ignore[arg-type]
    for _ in range(5):
        await asyncio.sleep(0)


async def test_events_come_in_their_order_and_the_log_of_the_run_that_ended() -> None:
    troubles, api = Troubles(), Api()
    await look(troubles, api, failing())
    assert troubles.of("a").told == (Told("A", "early"), Told("B", "late"))
    assert troubles.of("a").log_tail == ("ValueError: old run",)


async def test_a_first_run_that_ended_has_no_run_before_it() -> None:
    troubles, api = Troubles(), Api()
    api.previous = ()
    await look(troubles, api, failing())
    assert api.logs == [("a", True), ("a", False)]
    assert troubles.of("a").log_tail == ("only run",)


async def test_of_a_new_run_that_goes_well_so_far_nothing_is_taken_for_the_end_of_the_old_one() -> None:
    troubles, api = Troubles(), Api()
    api.previous = ()
    await look(troubles, api, failing(started_at=NOW, waiting_reason=""))
    assert troubles.of("a").log_tail == ()


async def test_well_pods_and_young_ones_are_not_asked_about() -> None:
    troubles, api = Troubles(), Api()
    creating: dict[str, Any] = {"started_at": None, "ready": False, "waiting_reason": "ContainerCreating"}
    await look(
        troubles,
        api,
        instance("well"),
        failing("going", deleting=True),
        failing("nowhere", node=""),
        instance("young", created_at=NOW - 5, **creating),
        instance("old", created_at=NOW - 50, **creating),
    )
    assert api.events == ["old"]
    assert api.logs == []


async def test_the_same_state_is_read_again_after_a_while_its_log_only_once() -> None:
    troubles, api = Troubles(), Api()
    for mono in (0.0, 5.0, EVENTS_SECONDS - 1, EVENTS_SECONDS + 1):
        await look(troubles, api, failing(), mono=mono)
    assert len(api.events) == 2
    assert len(api.logs) == 1
    await look(troubles, api, failing(restarts=2), mono=EVENTS_SECONDS + 2)
    assert (len(api.events), len(api.logs)) == (3, 2)


async def test_a_whole_pool_that_fails_is_read_a_few_at_a_time_and_in_turn() -> None:
    troubles, api = Troubles(), Api()
    api.open.clear()
    pods = [failing(f"p{number}") for number in range(50)]
    await look(troubles, api, *pods)
    assert len(api.events) == AT_ONCE
    api.open.set()
    for mono in range(1, 20):
        await look(troubles, api, *pods, mono=float(mono))
    assert api.most == AT_ONCE
    assert set(api.events) == {pod.name for pod in pods}


async def test_what_can_not_be_read_leaves_what_was_known() -> None:
    troubles, api = Troubles(), Api()
    await look(troubles, api, failing())
    for error in (Forbidden("no"), NotFound("gone")):
        api.fails = error
        await look(troubles, api, failing(), mono=100.0)
        assert troubles.of("a").log_tail == ("ValueError: old run",)


async def test_a_pod_that_is_well_or_gone_is_forgotten() -> None:
    troubles, api = Troubles(), Api()
    await look(troubles, api, failing())
    await look(troubles, api, instance("a"))
    assert troubles.of("a").told == ()
