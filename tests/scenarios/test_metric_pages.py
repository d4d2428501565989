"""Pages that differ: other versions, unknown names, counters that start again (S08, S09, S12)."""

import re

from tests.scenarios.stage import LEARNED, STATUS, warm

RENAMED = {
    "vllm:kv_cache_usage_perc": "vllm:gpu_cache_usage_perc",
    "vllm:inter_token_latency_seconds": "vllm:time_per_output_token_seconds",
}


def of_an_older_version(text: str) -> str:
    for new, old in RENAMED.items():
        text = text.replace(new, old)
    return text + 'vllm:num_requests_swapped{engine="0",model_name="deepseek-v4"} 0.0\n'


def with_counters_at(share: float, text: str) -> str:
    """The page with every counter of the engine at a share of what it was."""
    counted = re.compile(r"^(vllm:\S*(?:_total|_count|_sum)(?:\{[^}]*\})?) (\S+)$", re.MULTILINE)
    return counted.sub(lambda m: f"{m[1]} {int(float(m[2]) * share)}", text)


async def test_two_versions_side_by_side_are_read_alike() -> None:
    scene = await warm({"short": 2}, nodes=3, seconds=0.1)
    await scene.run(60)
    old, new = scene.names_of("short")
    scene.engines.rewrite[old] = of_an_older_version
    await scene.run(1300)
    verdicts = {each.name: each.verdict for each in scene.status.instances}
    assert verdicts == {old: "Healthy", new: "Healthy"}
    assert scene.condition("DataFresh") == ("True", "AllRead")
    scene.engines.change(old, fragmentation=0.4)
    await scene.until_removed()
    assert scene.removals() == [old]


async def test_a_page_without_one_known_name_is_no_idle_engine_and_costs_no_pod() -> None:
    scene = await warm({"short": 3})
    pod = scene.names_of("short")[0]
    scene.engines.rewrite[pod] = lambda _: (
        "other:num_requests_running 12\nprocess_resident_memory_bytes 2.1e10\n"
    )
    await scene.run(1800)
    (found,) = [each for each in scene.status.instances if each.name == pod]
    assert (found.verdict, found.reason) == ("Unknown", "Unrecognised")
    assert scene.condition("DataFresh") == ("False", "MetricsUnavailable")
    assert scene.withheld() == {pod: "noData"}
    assert (scene.remediations(), scene.rotation(pod)) == ([], "in")


async def test_counters_that_start_again_are_a_restart_and_no_finding() -> None:
    scene = await warm({"short": 3})
    by_kubelet, by_counter, _ = scene.names_of("short")
    uid = scene.uid(by_kubelet)
    scene.cluster.exit_container("llm", by_kubelet, 0, "Completed")
    scene.engines.rewrite[by_counter] = lambda text: with_counters_at(0.01, text)
    before = len(scene.cluster.writes)
    await scene.run(2400)
    assert scene.remediations() == []
    assert (scene.uid(by_kubelet), scene.serving()) == (uid, 3)
    assert set(scene.writes(since=before)) <= {STATUS, LEARNED}
    assert {each.verdict for each in scene.status.instances} == {"Healthy"}
    assert not any(each.findings for each in scene.status.instances)


async def test_fragmentation_that_nobody_exports_is_named_as_missing_and_never_guessed() -> None:
    scene = await warm({"short": 2}, nodes=3)
    for name in scene.names_of("short"):
        scene.engines.change(name, fragmentation=None, orphaned=None, kv_usage=0.667)
    await scene.run(1200)
    assert scene.condition("DataFresh") == ("True", "SeriesMissing")
    (said,) = [c.message for c in scene.status.conditions if c.type == "DataFresh"]
    assert "kintsugi_gpu_memory_fragmentation_ratio" in said
    assert scene.remediations() == []
