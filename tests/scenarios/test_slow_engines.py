"""One engine becomes slow: it is found against its past and its siblings, and replaced though it idles once withdrawn."""

from tests.scenarios.stage import warm

LEARNT = 600 + 1800 + 300
"""Warm-up, thirty minutes of baseline, and a little."""


async def test_a_slow_engine_is_replaced_although_it_makes_no_steps_once_it_is_withdrawn() -> None:
    scene = await warm({"short": 3}, nodes=4, pace=5.0, seconds=LEARNT)
    victim = scene.names_of("short")[0]
    scene.engines.change(victim, slow=2.5)
    await scene.run_until(lambda s: bool(s.removals()), within=1500)
    assert scene.removals() == [victim]
    await scene.run(1400)
    assert [(r.spec.trigger, r.status.outcome) for r in scene.remediations()] == [("throughput", "Cured")]


async def test_a_slow_engine_that_is_fast_again_while_it_is_held_is_given_back() -> None:
    scene = await warm({"short": 3}, nodes=4, pace=5.0, seconds=LEARNT)
    victim = scene.names_of("short")[0]
    before = scene.uids()
    scene.engines.change(victim, slow=2.5, drain_seconds=10_000)
    await scene.run_until(lambda s: bool(s.status.remediations.active), within=1000)
    scene.engines.change(victim, slow=1.0)
    await scene.run(600)
    assert scene.uids() == before
    assert [r.status.outcome for r in scene.remediations()] == ["Cancelled"]
    assert scene.removals() == []
