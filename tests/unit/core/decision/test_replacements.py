"""A replacement that comes, stays away, falls sick, or is never known well enough."""

import pytest

from kintsugi.core.finding import Detector
from tests.unit.core.decision.made import spec
from tests.unit.core.decision.watching import NO_ROOM, ROOM, ended, last, only, phase, sick, taken
from tests.unit.core.decision.world import Pod, running_world


@pytest.mark.parametrize(
    ("reason", "says"), [("CrashLoopBackOff", "does not start"), ("ImagePullBackOff", "does not start")]
)
def test_a_replacement_that_does_not_come_up_is_not_cured_and_stops_the_pool(reason: str, says: str) -> None:
    world = running_world(spec(4), ROOM)
    sick(world)

    def broken(pod: Pod) -> None:
        pod.never_starts = reason

    world.on_start = broken
    world.until(ended(world), 1000)
    assert last(world).outcome == "NotCured"
    assert says in world.status.remediations.breakers[0].message
    sick(world, index=0)
    world.run(3600, every=30)
    assert len(world.remediations) == 1
    assert "breaker" in world.gates().values()


def test_a_replacement_that_is_sick_too_is_not_cured() -> None:
    world = running_world(spec(4), ROOM)
    sick(world)
    world.on_start = lambda pod: pod.faults.update({Detector.FRAGMENTED: world.now})
    world.until(ended(world), 2000)
    assert last(world).outcome == "NotCured"
    world.run(7200, every=60)
    assert taken(world).count("Evict") == 1


def test_a_dead_replacement_is_not_removed_in_the_pass_that_closes_the_first_attempt() -> None:
    """Breaker and ledger are written with the outcome: the next decision must have read them."""
    world = running_world(spec(8), ROOM)
    first = sick(world, Detector.DEAD)
    first.ready, first.started_at = False, None
    world.until(lambda: phase(world) == "Warming", 600)
    world.run(400)
    second = next(p for p in world.members() if p.uid == only(world).replacement_uid)
    second.faults[Detector.DEAD] = world.now
    second.ready, second.started_at = False, None
    world.step()
    assert world.gates()[second.name] == "breaker"
    world.run(3600, every=30)
    assert taken(world).count("Evict") == 1
    assert world.status.remediations.breakers[0].reason == "NotCured"


def test_an_attempt_that_is_not_in_the_books_yet_still_uses_its_slot() -> None:
    world = running_world(spec(8), ROOM)
    sick(world)
    world.until(lambda: phase(world) == "Probation", 3000)
    world.until(lambda: not world.active(), 3000)
    assert world.status.remediations.active
    other = sick(world, index=3)
    world.step(crash="record")
    assert not world.active()
    assert world.gates()[other.name] == "inFlight"
    world.run(15)
    assert world.active()[0].uid == other.uid


def test_a_replacement_that_goes_before_it_was_verified_is_ambiguous() -> None:
    world = running_world(spec(4), ROOM)
    sick(world)
    world.until(lambda: phase(world) == "Warming", 1000)
    replacement = world.pods[only(world).replacement_uid or ""]
    replacement.gone_at = world.now + 10
    world.until(ended(world), 100)
    assert last(world).outcome == "Ambiguous"
    assert world.status.remediations.breakers[0].reason == "Ambiguous"


def test_a_replacement_that_goes_before_it_was_ready_is_waited_for_again() -> None:
    world = running_world(spec(4), ROOM)
    sick(world)
    world.until(lambda: only(world).replacement_uid is not None if world.active() else False, 1000)
    world.pods[only(world).replacement_uid or ""].gone_at = world.now + 1
    world.until(ended(world), 3000)
    assert last(world).outcome == "Cured"


def test_a_replacement_that_stays_pending_names_what_it_waits_for_and_blocks_the_next_action() -> None:
    world = running_world(spec(4), NO_ROOM)
    sick(world)
    world.until(lambda: "Evict" in taken(world), 1000)
    world.gpus = 3
    sick(world, Detector.STALLED, 0)
    world.run(7200, every=60)
    assert taken(world).count("Evict") == 1
    assert "not scheduled" in next(a for a in world.active() if a.phase == "Replacing").message


def test_an_unanswered_real_request_keeps_a_replacement_from_being_cured() -> None:
    world = running_world(spec(4), ROOM)
    sick(world)
    world.until(lambda: phase(world) == "Probation", 3000)
    world.answers[only(world).replacement_uid or ""] = False
    world.until(ended(world), 3000)
    assert last(world).outcome == "NotCured"


def test_unknown_at_the_end_of_the_probation_extends_it_once_and_is_then_ambiguous() -> None:
    world = running_world(spec(4), ROOM)
    sick(world)
    world.until(lambda: phase(world) == "Probation", 3000)
    world.pods[only(world).replacement_uid or ""].blind = True
    took = world.until(ended(world), 3000)
    assert took == pytest.approx(2 * world.times.probation, abs=20)
    assert last(world).outcome == "Ambiguous"


def test_a_replacement_over_its_start_budget_is_not_cured() -> None:
    world = running_world(spec(4, engine={"startBudgetSeconds": 600}), ROOM)
    world.starts_in = float("inf")
    sick(world)
    world.until(ended(world), 2000)
    assert last(world).outcome == "NotCured"
    assert "start budget" in next(iter(world.remediations.values())).status.message


def test_a_replacement_that_waits_for_a_gpu_is_within_its_start_budget() -> None:
    world = running_world(spec(4, engine={"startBudgetSeconds": 600}), NO_ROOM)
    sick(world)
    world.until(lambda: "Evict" in taken(world), 600)
    world.gpus = 3
    world.run(3600, every=60)
    assert phase(world) == "Replacing"
    world.gpus = 4
    world.until(ended(world), 3000)
    assert last(world).outcome == "Cured"


def test_a_replacement_is_known_though_the_api_servers_clock_is_behind_ours() -> None:
    world = running_world(spec(4), ROOM)
    world.on_start = lambda pod: setattr(pod, "created_at", pod.created_at - 20)
    sick(world)
    world.until(ended(world), 3000)
    assert last(world).outcome == "Cured"
