"""Taking a black box through the cluster's port: what goes in, how long it may take, and what happens when it can't."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from kintsugi.api.remediation import BlackBox
from kintsugi.core.finding import Detector
from kintsugi.core.plan import Plan
from kintsugi.core.snapshot import Page, Snapshot
from kintsugi.ports.cluster import ClusterPort
from kintsugi.ports.engines import Address, EnginePort
from kintsugi.ports.errors import Unavailable
from kintsugi.runtime.blackbox import BlackBoxes, Flight
from tests.unit.core.decision.made import spec
from tests.unit.core.decision.world import running_world


class Logs:
    """The three readings of a black box; `hangs` are never answered, `fails` raise."""

    def __init__(
        self, uid: str, hangs: frozenset[str] = frozenset(), fails: frozenset[str] = frozenset()
    ) -> None:
        self.uid, self.hangs, self.fails = uid, hangs, fails
        self.calls: list[str] = []

    async def _call(self, name: str) -> None:
        self.calls.append(name)
        if name in self.hangs:
            await asyncio.sleep(3600)
        if name in self.fails:
            raise Unavailable("nobody answers")

    async def pod_log_tail(
        self, namespace: str, name: str, lines: int, previous: bool = False
    ) -> Sequence[str]:
        await self._call("logs")
        return ("loaded", "HF_TOKEN=hf_abcdefghijkl", "key is swordfish", "CUDA error: illegal memory access")

    async def list_pods(self, key: object) -> list[dict[str, Any]]:
        await self._call("pods")
        statuses = [{"name": "engine", "restartCount": 0, "state": {"running": {}}}]
        return [{"metadata": {"uid": self.uid}, "status": {"containerStatuses": statuses}}]

    async def list_pod_events(self, namespace: str, name: str, uid: str) -> list[dict[str, Any]]:
        await self._call("events")
        return [{"lastTimestamp": "2027-01-15T08:00:00Z", "reason": "Unhealthy", "message": "probe failed"}]


class Engine:
    """An engine that tells its record, or `said`; it hangs where that is a number of seconds."""

    def __init__(self, said: tuple[dict[str, Any], ...] | float | None = ()) -> None:
        self.said = said

    async def record(self, address: Address, timeout: float) -> tuple[dict[str, Any], ...] | None:
        if isinstance(self.said, float):
            await asyncio.sleep(self.said)
            return None
        return self.said


def about_to_remove() -> tuple[Snapshot, Plan, str]:
    """A pass that lets its victim go."""
    world = running_world(spec(4))
    victim = world.members()[0]
    victim.faults[Detector.FRAGMENTED] = world.now
    world.until(lambda: not victim.member, 600)
    plan = world.plans[-1]
    page = Page('vllm:num_requests_running{engine="0"} 4.0\n', world.now)
    seen = tuple(replace(i, scrape=page) if i.uid == victim.uid else i for i in world.snapshot().instances)
    return replace(world.snapshot(), instances=seen), plan, victim.uid


def taken(
    logs: Logs,
    snapshot: Snapshot,
    plan: Plan,
    flight: Flight,
    seconds: float = 5.0,
    engine: Engine | None = None,
) -> BlackBox:
    boxes = BlackBoxes(cast(ClusterPort, logs), cast(EnginePort, engine or Engine()), seconds)
    where = {logs.uid: Address("10.0.0.1")}
    filled = asyncio.run(boxes.filled(snapshot, plan, flight, ("swordfish", ""), where))
    (remediation,) = filled.remediations
    assert remediation.status.black_box is not None
    return remediation.status.black_box


def test_a_black_box_holds_pages_log_statuses_and_events_and_no_secret() -> None:
    snapshot, plan, uid = about_to_remove()
    flight = Flight()
    flight.note(snapshot, [uid])
    box = taken(Logs(uid), snapshot, plan, flight)
    assert box.pages == ('vllm:num_requests_running{engine="0"} 4.0',)
    assert box.logs[-1] == "CUDA error: illegal memory access"
    assert box.container_statuses[0]["name"] == "engine"
    assert box.events == ("2027-01-15T08:00:00Z Unhealthy: probe failed",)
    assert box.missing == ()
    assert "swordfish" not in str(box.dump())
    assert "hf_abc" not in str(box.dump())


@pytest.mark.parametrize("part", ["logs", "pods", "events"])
def test_what_does_not_answer_is_named_and_delays_the_removal_no_longer_than_the_bound(part: str) -> None:
    snapshot, plan, uid = about_to_remove()
    began = time.monotonic()
    box = taken(Logs(uid, hangs=frozenset({part})), snapshot, plan, Flight(), 0.1)
    assert time.monotonic() - began < 2.0
    assert any("no answer within 0.1 s" in remark for remark in box.missing)
    assert bool(box.logs) == (part != "logs")


def test_a_part_that_fails_is_named_and_the_others_are_kept() -> None:
    snapshot, plan, uid = about_to_remove()
    box = taken(Logs(uid, fails=frozenset({"events"})), snapshot, plan, Flight())
    assert any("events: nobody answers" in remark for remark in box.missing)
    assert box.logs


def test_a_black_box_is_taken_once_though_the_pass_is_repeated() -> None:
    snapshot, plan, uid = about_to_remove()
    logs, flight = Logs(uid), Flight()
    first = taken(logs, snapshot, plan, flight)
    again = taken(logs, snapshot, plan, flight)
    assert first == again
    assert logs.calls.count("logs") == 1


def test_of_an_instance_that_is_well_one_page_a_minute_is_kept_and_of_an_ailing_one_each() -> None:
    snapshot, _, uid = about_to_remove()
    well, ailing = Flight(), Flight()
    for second in range(0, 120, 5):
        page = Page(f"vllm:num_requests_running {second}\n", second)
        seen = tuple(replace(i, scrape=page) for i in snapshot.instances)
        now = replace(snapshot, instances=seen, mono=float(second))
        well.note(now, [])
        ailing.note(now, [uid])
    assert list(well.pages[uid]) == ["vllm:num_requests_running 0", "vllm:num_requests_running 60"]
    assert list(ailing.pages[uid])[-1] == "vllm:num_requests_running 115"
    assert len(ailing.pages[uid]) == 3


def test_the_engines_own_record_is_in_the_box_and_one_that_keeps_none_is_no_gap() -> None:
    snapshot, plan, uid = about_to_remove()
    ranks = ({"kind": "pool", "engine": "0", "age": 42.0, "steps": 4711},)
    box = taken(Logs(uid), snapshot, plan, Flight(), engine=Engine(ranks))
    assert box.record == ("pool of engine 0, 42.0 s old: steps 4711",)
    without = taken(Logs(uid), snapshot, plan, Flight(), engine=Engine(()))
    assert without.record == ()
    assert not any("record" in remark for remark in without.missing)


@pytest.mark.parametrize("said", [None, 3600.0], ids=["refuses", "hangs"])
def test_an_engine_that_does_not_tell_its_record_is_named_and_delays_nothing(said: float | None) -> None:
    snapshot, plan, uid = about_to_remove()
    began = time.monotonic()
    box = taken(Logs(uid), snapshot, plan, Flight(), 0.1, Engine(said))
    assert time.monotonic() - began < 2.0
    assert [remark for remark in box.missing if remark.startswith("the engine's own record: ")]
    assert box.logs
