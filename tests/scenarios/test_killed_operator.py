"""kill -9 of the operator at every write of a remediation: same victim, one removal, one replacement (S33)."""

from dataclasses import dataclass

import pytest

from tests.scenarios.stage import Scene, warm

PACE = 30.0


@dataclass(frozen=True)
class Case:
    """One way to remove an instance. `nodes` decides between surge and delete-first in a pool of two."""

    sickness: str
    nodes: int

    def __str__(self) -> str:
        return f"{self.sickness}-{'surge' if self.nodes > 2 else 'delete-first'}"

    def fall_sick(self, scene: Scene, name: str) -> None:
        match self.sickness:
            case "fragmentation":
                scene.engines.change(name, fragmentation=0.4)
            case "stall":
                scene.engines.change(name, hung=True)
            case _:
                scene.cluster.fail_pod("llm", name)

    @property
    def first(self) -> int:
        """Fragmentation needs its reservation, the first write: what a process had after its warm-up is known to the
        operator that saw it, and to one that finds a reservation."""
        return 1 if self.sickness == "fragmentation" else 0

    @property
    def last(self) -> int:
        """From the start of the replacement on, what fell sick makes no difference any more."""
        return 15 if self.sickness == "fragmentation" else 60

    @property
    def warm_seconds(self) -> float:
        return 1300 if self.sickness == "fragmentation" else 720


CASES = [
    Case("stall", 3),
    Case("stall", 2),
    Case("fragmentation", 3),
    Case("fragmentation", 2),
    Case("dead", 2),
]


async def fleet(case: Case) -> tuple[Scene, str]:
    """A warm pool of two whose first instance has just fallen sick."""
    healing = {"probationSeconds": 300}
    scene = await warm({"short": 2}, case.nodes, pace=PACE, seconds=case.warm_seconds, healing=healing)
    victim = scene.names_of("short")[0]
    case.fall_sick(scene, victim)
    return scene, victim


async def to_the_end(scene: Scene, within: float = 4000.0) -> None:
    """Run until the one attempt is over, in longer steps once nothing but waiting is left."""
    until = scene.cluster.clock.mono() + within
    while (phases := scene.phases()) != ["Done"]:
        assert scene.cluster.clock.mono() < until, f"{phases}: {scene.withheld()}"
        step = PACE if set(phases).isdisjoint({"Warming", "Probation"}) else 150.0
        await scene.run(step, step)


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_killed_between_any_two_writes_it_ends_with_one_victim_one_removal_and_one_replacement(
    case: Case,
) -> None:
    """`done` writes were done when the operator died: now right after the last of them, now right before the next."""
    for done in range(case.first, case.last):
        scene, victim = await fleet(case)
        others = scene.uids() - {scene.uid(victim)}
        if done % 2:
            scene.cluster.crash_after(done)
        else:
            scene.cluster.crash_after(done + 1, before=True)
        await to_the_end(scene)
        scene.cluster.faults.spare()
        await scene.run(60)
        where = f"killed after {done} writes"
        assert scene.removals() == [victim], where
        assert scene.uids() >= others, where
        assert len(scene.uids()) == 2, f"{where}: exactly one replacement"
        assert scene.serving() == 2, where
        assert scene.outcomes() == ["Cured"], where
        assert scene.status.remediations.active == (), where
        if scene.restarts == 0:
            assert done > 12, "a remediation has more writes than that"
            return
    assert case.last < 60, "it never ran without a crash"


async def test_a_drain_deadline_goes_on_over_a_restart() -> None:
    scene = await warm({"short": 3}, nodes=4, healing={"drain": {"timeoutSeconds": 600}})
    victim = scene.names_of("short")[0]
    scene.engines.change(victim, fragmentation=0.4, drain_seconds=1e9)
    await scene.until_phase("Draining")
    began = scene.cluster.clock.mono()
    for _ in range(4):
        await scene.run(100)
        scene.restart()
    assert scene.removals() == []
    await scene.until_removed(within=300)
    assert 600 <= scene.cluster.clock.mono() - began <= 640
    assert scene.newest().status.streams_cut == 4


async def test_an_operator_gone_for_two_minutes_at_each_step_ends_the_same() -> None:
    for phase in ("Draining", "Replacing"):
        scene = await warm({"short": 3}, nodes=4, seconds=720)
        victim = scene.names_of("short")[0]
        scene.engines.change(victim, hung=True)
        await scene.until_phase(phase)
        scene.cluster.clock.move(120)
        scene.restart()
        done = await scene.until_done()
        assert (scene.removals(), done.status.outcome) == ([victim], "Cured"), phase
        assert scene.serving() == 3, phase


async def test_an_instance_that_came_to_itself_while_nobody_watched_is_put_back() -> None:
    scene = await warm({"short": 3}, nodes=4, seconds=720)
    victim = scene.names_of("short")[0]
    scene.engines.change(victim, hung=True)
    await scene.until_withdrawn(victim)
    scene.cluster.clock.move(600)
    scene.engines.change(victim, hung=False)
    scene.restart()
    await scene.run(120)
    assert (scene.removals(), scene.rotation(victim)) == ([], "in")
    assert scene.outcomes() == ["Cancelled"]


async def test_losing_the_memory_again_and_again_delays_a_removal_and_never_hastens_it() -> None:
    scene = await warm({"short": 3}, nodes=4, then=5, seconds=720)
    victim = scene.names_of("short")[0]
    scene.engines.change(victim, hung=True)
    for _ in range(4):
        await scene.run(250)
        assert scene.removals() == []
        scene.restart()
    assert scene.rotation(victim) == "out", "it stays withdrawn meanwhile"
    took = await scene.until_removed()
    assert 300 <= took <= 330
    assert scene.removals() == [victim]


async def test_an_operator_away_for_an_hour_of_probation_still_verifies_the_cure() -> None:
    scene = await warm({"short": 3}, nodes=4, seconds=720)
    victim = scene.names_of("short")[0]
    scene.engines.change(victim, hung=True)
    await scene.until_phase("Probation")
    scene.cluster.clock.move(3600)
    scene.restart()
    done = await scene.until_done(300)
    assert done.status.outcome == "Cured"
    assert scene.status.remediations.breakers == ()
