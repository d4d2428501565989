"""Data that can't be had, or can't be believed: nothing is done, the status says so, and healing resumes (S26)."""

import pytest

from kintsugi.core.snapshot import Failure
from tests.scenarios.stage import Scene, warm


def blind(scene: Scene, names: list[str], failure: Failure | None) -> None:
    for name in names:
        scene.engines.change(name, failure=failure)


@pytest.mark.parametrize(
    "failure", [Failure.CONNECT_TIMEOUT, Failure.SILENT, Failure.HTTP_ERROR, Failure.REFUSED]
)
async def test_an_outage_of_all_metrics_touches_no_pod_and_ends_by_itself(failure: Failure) -> None:
    scene = await warm({"short": 6}, nodes=7)
    names = scene.names_of("short")
    blind(scene, names, failure)
    for name in names:
        scene.engines.change(name, canary_status=404)
    await scene.run(300)
    assert scene.condition("DataFresh") == ("False", "MetricsUnavailable")
    assert scene.condition("HealingAllowed") == ("False", "NoData")
    if failure is not Failure.REFUSED:  # a refused connection says something: it makes a suspect
        assert scene.withheld() == dict.fromkeys(names, "noData")
    await scene.run(900)
    assert (scene.remediations(), scene.serving()) == ([], 6)
    blind(scene, names, None)
    await scene.run(120)
    assert scene.condition("DataFresh")[0] == "True"
    assert scene.condition("HealingAllowed") == ("True", "Ready")
    assert scene.withheld() == {}
    assert scene.told("DataMissing") in (1, 2), "once, and once more where the reason changes"


async def test_metrics_of_one_instance_that_fail_for_half_an_hour_cost_no_pod() -> None:
    scene = await warm({"short": 4})
    pod = scene.names_of("short")[0]
    blind(scene, [pod], Failure.HTTP_ERROR)
    await scene.run(1800)
    assert (scene.remediations(), scene.serving()) == ([], 4)
    assert scene.withheld() == {pod: "noData"}
    assert pod in scene.status.why


async def test_an_outage_during_quarantine_neither_removes_nor_gives_back_and_healing_resumes_after_it() -> (
    None
):
    scene = await warm({"short": 3})
    victim = scene.names_of("short")[0]
    scene.engines.change(victim, fragmentation=0.4)
    await scene.until_withdrawn(victim)
    blind(scene, scene.names_of("short"), Failure.CONNECT_TIMEOUT)
    await scene.run(1800)
    assert (scene.removals(), scene.rotation(victim)) == ([], "out")
    assert scene.withheld()[victim] == "noData"
    blind(scene, scene.names_of("short"), None)
    resumed = scene.cluster.clock.mono()
    await scene.until_removed()
    assert scene.removals() == [victim]
    assert scene.cluster.clock.mono() - resumed >= 500, "a full window was collected first"


async def test_a_hang_that_becomes_unreadable_is_not_removed_on_the_absence_of_data() -> None:
    scene = await warm({"short": 3})
    victim = scene.names_of("short")[0]
    scene.engines.change(victim, hung=True)
    await scene.until_withdrawn(victim)
    blind(scene, [victim], Failure.HTTP_ERROR)
    await scene.run(1800)
    assert (scene.removals(), scene.rotation(victim)) == ([], "out")
    blind(scene, [victim], None)
    await scene.until_removed()
    assert scene.removals() == [victim]


async def test_siblings_that_can_not_be_read_hold_up_the_removal_of_a_sick_one() -> None:
    scene = await warm({"short": 3})
    victim, *others = scene.names_of("short")
    scene.engines.change(victim, fragmentation=0.4)
    await scene.until_withdrawn(victim)
    blind(scene, others, Failure.CONNECT_TIMEOUT)
    await scene.run(900)
    assert scene.removals() == []
    assert scene.withheld()[victim] in ("noData", "minHealthy")
    blind(scene, others, None)
    await scene.until_removed()
    assert scene.removals() == [victim]


async def test_a_page_that_a_proxy_repeats_is_no_evidence_of_a_hang() -> None:
    scene = await warm({"short": 3})
    pod = scene.names_of("short")[0]
    (page,) = await scene.engines.scrape([scene.address(pod)], 4.0)
    text = getattr(page, "text", "")
    scene.engines.rewrite[pod] = lambda _: text
    scene.engines.change(pod, canary_status=404)
    await scene.run(1200)
    assert scene.remediations() == []
    (found,) = [each for each in scene.status.instances if each.name == pod]
    assert (found.verdict, found.reason) == ("Unknown", "RepeatedPage")


async def test_an_operator_that_is_cut_off_from_everything_does_nothing_when_it_is_back() -> None:
    scene = await warm({"short": 3})
    names = scene.names_of("short")
    blind(scene, names, Failure.CONNECT_TIMEOUT)
    scene.cluster.outage(1200)
    before = len(scene.cluster.writes)
    await scene.run(1185)
    assert scene.writes(since=before) == []
    blind(scene, names, None)
    await scene.run(600)
    assert (scene.remediations(), scene.serving()) == ([], 3)
    assert scene.condition("DataFresh")[0] == "True"


async def test_an_api_server_that_says_nothing_is_a_hang_only_if_the_kubelet_agrees() -> None:
    scene = await warm({"short": 4})
    path, hung, *_ = scene.names_of("short")
    scene.engines.change(path, silent=True)
    await scene.run(1200)
    assert scene.remediations() == [], "our path to it may be at fault"
    scene.engines.change(path, silent=False)
    await scene.run(300)
    scene.engines.change(hung, silent=True)
    scene.cluster.set_ready("llm", hung, False)
    await scene.until_removed(within=1200)
    assert scene.removals() == [hung]
