"""Which rung comes next: by what was tried in the line within the memory, and by what can help at all."""

from dataclasses import replace
from typing import Any

import pytest

from kintsugi.api.status import LineageStatus, RecentRemediation
from kintsugi.core.finding import Detector, Finding, InstanceVerdict
from kintsugi.core.ladder import Climb, next_rung
from kintsugi.core.moment import moment
from kintsugi.core.names import RESET_LADDERS_ANNOTATION
from tests.unit.core.decision.made import finding, spec, verdict
from tests.unit.core.decision.world import World, running_world

FULL = ["Compact", "Recreate", "RecreateElsewhere"]


def climb(
    detector: Detector = Detector.SLOW,
    tried: tuple[str, ...] = (),
    ladder: list[str] | None = None,
    outcome: str = "Cured",
    ago: float = 600.0,
    elsewhere: int | None = 5,
    also: tuple[Detector, ...] = (),
    source: str = "Allocator",
    compactable: bool | None = True,
    reset_ago: float | None = None,
) -> Climb:
    world = running_world(spec(4, healing={"ladder": ladder or FULL}))
    victim = world.members()[0]
    _remember(world, victim.uid, tried, outcome, ago)
    if reset_ago is not None:
        world.annotations[RESET_LADDERS_ANNOTATION] = moment(world.now - reset_ago).isoformat()
    about = _sick(world, detector, source)
    said: InstanceVerdict = verdict(victim.uid, about, *(_sick(world, each, source) for each in also))
    instance = replace(world.instance(victim), compactable=compactable)
    return next_rung(world.snapshot(), instance, about, said, elsewhere, world.times)


def _sick(world: World, detector: Detector, source: str) -> Finding:
    more: dict[str, Any] = {"source": source} if detector is Detector.FRAGMENTED else {}
    return finding(detector, world.now - 700, world.now, world.times, **more)


def _remember(world: World, uid: str, tried: tuple[str, ...], outcome: str, ago: float) -> None:
    recent = tuple(
        RecentRemediation.model_validate(
            {
                "id": f"first-{n}",
                "pool": "main",
                "lineage": "first",
                "remedy": remedy,
                "started_at": moment(world.now - ago - 60 + n),
                "finished_at": moment(world.now - ago + n),
                "outcome": outcome,
            }
        )
        for n, remedy in enumerate(tried, start=1)
    )
    lines = (LineageStatus(uid=uid, lineage="first", attempts=len(tried)),)
    book = world.status.remediations.model_copy(update={"recent": recent, "lineages": lines})
    world.status = world.status.model_copy(update={"remediations": book})


@pytest.mark.parametrize(
    ("tried", "next_one"),
    [
        ((), "Recreate"),
        (("Recreate",), "RecreateElsewhere"),
        (("Recreate", "RecreateElsewhere"), "GiveUp"),
        (("Compact",), "Recreate"),
        (("Compact", "Recreate"), "RecreateElsewhere"),
        (("RecreateElsewhere",), "GiveUp"),
    ],
)
def test_each_rung_comes_after_the_one_that_was_used(tried: tuple[str, ...], next_one: str) -> None:
    found = climb(tried=tried)
    assert (found.remedy, found.attempt, found.lineage) == (next_one, len(tried) + 1, "first")


def test_fragmentation_of_the_allocator_begins_in_place() -> None:
    assert climb(Detector.FRAGMENTED).remedy == "Compact"
    assert climb(Detector.FRAGMENTED, tried=("Compact",)).remedy == "Recreate"
    assert climb(Detector.FRAGMENTED, tried=("Recreate",)).remedy == "RecreateElsewhere"


@pytest.mark.parametrize(
    "more",
    [
        {"compactable": False},
        {"compactable": None},
        {"source": "OrphanedBlocks"},
        {"also": (Detector.SLOW,)},
    ],
)
def test_what_compaction_can_t_cure_skips_it_and_says_so(more: dict[str, Any]) -> None:
    found = climb(Detector.FRAGMENTED, **more)
    assert found.remedy == "Recreate"
    assert found.skipped.startswith("Compact is skipped")


def test_a_ladder_without_compact_has_nothing_to_skip() -> None:
    assert climb(Detector.FRAGMENTED, ladder=["Recreate"]).skipped == ""


@pytest.mark.parametrize("outcome", ["Cured", "NotCured", "Ambiguous"])
def test_every_attempt_that_did_something_uses_its_rung(outcome: str) -> None:
    assert climb(tried=("Recreate",), outcome=outcome).remedy == "RecreateElsewhere"


def test_a_cancelled_attempt_uses_no_rung() -> None:
    assert climb(tried=("Recreate",), outcome="Cancelled").remedy == "Recreate"


def test_the_memory_decays() -> None:
    assert climb(tried=("Recreate", "RecreateElsewhere"), ago=7300).remedy == "Recreate"
    assert climb(tried=("Recreate", "RecreateElsewhere"), ago=7000).remedy == "GiveUp"


def test_what_lies_before_a_person_s_reset_counts_no_more() -> None:
    assert climb(tried=("Recreate",), ago=600, reset_ago=300).remedy == "Recreate"
    assert climb(tried=("Recreate",), ago=600, reset_ago=900).remedy == "RecreateElsewhere"
    assert climb(tried=("Recreate",), ago=600, reset_ago=-900).remedy == "RecreateElsewhere", "not yet"


def test_a_sick_gpu_begins_on_another_node() -> None:
    assert climb(Detector.DEVICE).remedy == "RecreateElsewhere"
    assert climb(Detector.DEVICE, elsewhere=0).remedy == "RecreateElsewhere"
    assert climb(Detector.DEVICE, tried=("Recreate",)).remedy == "RecreateElsewhere"
    assert climb(Detector.DEVICE, tried=("RecreateElsewhere",)).remedy == "GiveUp"


def test_another_fault_beside_a_sick_gpu_moves_it_where_there_is_room_and_is_cured_here_where_not() -> None:
    assert climb(Detector.ERRORING, also=(Detector.DEVICE,)).remedy == "RecreateElsewhere"
    assert climb(Detector.ERRORING, also=(Detector.DEVICE,), elsewhere=None).remedy == "RecreateElsewhere"
    assert climb(Detector.ERRORING, also=(Detector.DEVICE,), elsewhere=0).remedy == "Recreate"


def test_a_ladder_that_has_no_rung_for_it_tries_nothing_and_gives_nothing_up() -> None:
    assert climb(Detector.DEVICE, ladder=["Recreate"]).remedy is None
