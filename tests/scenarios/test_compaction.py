"""The rung Compact: an engine gives cached allocator memory back, in place."""

from kintsugi.testing.fleet import Behaviour
from tests.scenarios.stage import UNHURRIED, Scene, warm


async def compactable(after: float = 0.05) -> Scene:
    """A warm fleet of three, each of whose engines has this fragmentation once it gave memory back."""
    scene = Scene(nodes=4)
    scene.engines.behaviour = lambda pod: Behaviour(compacts=after)
    scene.deploy({"short": 3})
    await scene.run(1300)
    scene.pace = 5
    scene.edit(monitoring={"scrapeIntervalSeconds": 5})
    await scene.run(5)
    return scene


async def test_fragmentation_of_the_allocator_is_compacted_in_place_and_nothing_is_withdrawn() -> None:
    scene = await compactable()
    victim = scene.names_of("short")[0]
    uids = scene.uids()
    scene.engines.change(victim, fragmentation=0.4)
    await scene.run(200)
    least = 3

    def over(_: object) -> bool:
        nonlocal least
        least = min(least, scene.serving())
        return scene.phases() == ["Done"]

    await scene.run_until(over, 2400)
    (done,) = scene.remediations()
    assert (done.spec.remedy, done.status.outcome, done.status.path) == ("Compact", "Cured", "InPlace")
    assert (least, scene.removals(), scene.uids()) == (3, [], uids)
    assert [w for w in scene.cluster.writes if (w.verb, w.kind) == ("patch", "Pod")] == []
    assert scene.engines.compacted == 1
    await scene.run(10)
    (entry,) = scene.status.remediations.recent
    assert entry.counts_towards_budget, "every rung costs budget"


async def test_memory_that_does_not_fall_by_compaction_is_cured_by_a_new_pod() -> None:
    scene = await compactable(after=0.39)
    victim = scene.names_of("short")[0]
    scene.engines.change(victim, fragmentation=0.4)
    await scene.until_removed(within=2400)
    await scene.until_done(every=UNHURRIED)
    told = [
        (mend.spec.remedy, mend.status.outcome)
        for mend in sorted(scene.remediations(), key=lambda m: m.spec.attempt)
    ]
    assert told == [("Compact", "NotCured"), ("Recreate", "Cured")]
    assert scene.status.remediations.breakers == (), "nothing was removed that was not cured"
    first = min(scene.remediations(), key=lambda mend: mend.spec.attempt).status
    assert "39 %" in first.message
    assert first.timeline.decided is not None
    assert first.timeline.finished is not None
    assert (first.timeline.finished - first.timeline.decided).total_seconds() < 120, "it moves on at once"


async def test_an_engine_that_hangs_when_asked_to_compact_goes_to_the_next_rung_in_time() -> None:
    scene = await compactable()
    victim = scene.names_of("short")[0]
    scene.engines.change(victim, fragmentation=0.4)
    await scene.run(300)

    async def never(address: object, timeout: float) -> bool:
        return False

    scene.engines.compact = never  # type: ignore[method-assign]
    await scene.until_removed(within=2400)
    first = min(scene.remediations(), key=lambda mend: mend.spec.attempt)
    assert (first.spec.remedy, first.status.outcome) == ("Compact", "NotCured")
    assert "does not answer" in first.status.message


async def test_an_engine_without_compaction_skips_the_rung_and_says_so() -> None:
    scene = await warm({"short": 3}, nodes=4, then=5)
    victim = scene.names_of("short")[0]
    scene.engines.change(victim, fragmentation=0.4)
    await scene.until_withdrawn(victim)
    (mend,) = scene.remediations()
    assert mend.spec.remedy == "Recreate"
    (gate,) = [each for each in mend.status.gates if each.name == "ladder"]
    assert "Compact is skipped" in gate.message


async def test_orphaned_blocks_are_no_matter_of_the_allocator() -> None:
    scene = await compactable()
    victim = scene.names_of("short")[0]
    scene.engines.change(victim, orphaned=0.4)
    await scene.until_withdrawn(victim)
    assert scene.newest().spec.remedy == "Recreate"
    assert scene.engines.compacted == 0


async def test_an_operator_that_is_killed_while_an_engine_compacts_asks_it_again() -> None:
    scene = await compactable()
    victim = scene.names_of("short")[0]
    scene.engines.change(victim, fragmentation=0.4)
    await scene.run_until(lambda s: s.engines.compacted == 1, 1200)
    scene.restart()
    await scene.run(1500)
    assert scene.outcomes() in (["Cured"], ["NotCured"])
    assert scene.removals() == []
