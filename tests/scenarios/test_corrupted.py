"""An engine that answers nonsense while every other figure is well: replaced, where its siblings know better."""

import pytest

from kintsugi.core.known_answers import NAMES
from tests.scenarios.stage import warm

SOON = 1800.0


async def test_an_engine_that_answers_nonsense_is_replaced_and_its_siblings_stay() -> None:
    scene = await warm({"short": 3})
    sick = scene.names_of("short")[0]
    scene.engines.change(sick, garbage=1.0)
    await scene.until_removed(within=SOON)
    assert scene.removals() == [sick]
    done = await scene.until_done(within=7_200)
    assert (done.spec.trigger, done.status.outcome) == ("corruptedOutput", "Cured")
    assert any("siblings right" in each.signal for each in done.status.evidence)
    await scene.run(3_600)
    assert scene.removals() == [sick]


async def test_nonsense_from_all_of_them_is_no_reason_to_replace_any() -> None:
    scene = await warm({"short": 3})
    for name in scene.names_of("short"):
        scene.engines.change(name, garbage=1.0)
    await scene.run(2 * SOON)
    assert scene.removals() == []
    assert {(each.verdict, each.reason) for each in scene.status.instances} == {
        ("Suspect", "WrongAnswersEverywhere")
    }


async def test_the_only_instance_of_a_pool_is_reported_and_left() -> None:
    scene = await warm({"short": 1})
    scene.engines.change(scene.names_of("short")[0], garbage=1.0)
    await scene.run(2 * SOON)
    (found,) = scene.status.instances
    assert (found.verdict, found.reason, scene.remediations()) == ("Suspect", "WrongAnswers", [])


@pytest.mark.parametrize("share", [0.125, 0.25])
async def test_a_wrong_answer_now_and_then_costs_no_pod(share: float) -> None:
    scene = await warm({"short": 3})
    for name in scene.names_of("short"):
        scene.engines.change(name, garbage=share)
    await scene.run(4 * SOON)
    assert scene.remediations() == []


async def test_near_ties_are_struck_out_before_they_can_count() -> None:
    scene = await warm({"short": 3}, seconds=300)
    for name in scene.names_of("short"):
        scene.engines.change(name, near_ties=frozenset(NAMES[:2]))
    await scene.run(2_000)
    scene.engines.questions.clear()
    await scene.run(2 * SOON)
    asked = {each.question.name for each in scene.engines.questions if each.question}
    assert asked == set(NAMES[2:])


async def test_a_saturated_engine_is_asked_nothing() -> None:
    scene = await warm({"short": 2}, seconds=300)
    busy, idle = scene.names_of("short")
    scene.engines.change(busy, waiting=40.0, running=64.0)
    scene.engines.questions.clear()
    await scene.run(2_000)
    asked = {each.process.uid for each in scene.engines.questions}
    assert asked == {scene.uid(idle)}


async def test_nans_alone_are_no_verdict_and_with_nonsense_hasten_it() -> None:
    scene = await warm({"short": 3})
    counts, corrupt, _ = scene.names_of("short")
    scene.engines.change(counts, nans=0.1)
    scene.engines.change(corrupt, nans=0.1, garbage=1.0)
    await scene.until_withdrawn(corrupt, within=400.0)
    await scene.until_removed(within=SOON)
    assert scene.removals() == [corrupt]
    (well,) = [each for each in scene.status.instances if each.name == counts]
    assert (well.verdict, well.reason) == ("Suspect", "NansFollowRequests")


async def test_in_observe_it_is_reported_and_nobody_is_replaced() -> None:
    scene = await warm({"short": 3}, healing={"triggers": {"corruptedOutput": {"mode": "Observe"}}})
    sick = scene.names_of("short")[0]
    scene.engines.change(sick, garbage=1.0)
    await scene.run(SOON)
    (found,) = [each for each in scene.status.instances if each.name == sick]
    assert (found.verdict, found.reason, scene.removals()) == ("Sick", "CorruptedOutput", [])


async def test_an_operator_that_restarts_after_the_corruption_began_still_finds_it() -> None:
    scene = await warm({"short": 3})
    sick = scene.names_of("short")[0]
    scene.engines.change(sick, garbage=1.0)
    scene.restart()
    await scene.until_removed(within=2 * SOON)
    assert scene.removals() == [sick]
