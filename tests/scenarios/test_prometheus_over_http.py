"""The Prometheus half of S13, S15 and S26: what the server says over HTTP is data, absence, or an outage, never a verdict.

Nothing in the product asks Prometheus for latencies: engines are read directly. So its NaN, its infinities and its empty
results stand on the series that are asked for: memory and GPU use.
"""

import pytest

from tests.scenarios.served import replaced
from tests.scenarios.served_prometheus import Series, measured
from tests.scenarios.watched import nothing_happened

ENGINE = {"container": "engine"}
EMPTY: dict[str, tuple[str, ...]] = {
    "NaN": ("NaN",),
    "+Inf": ("+Inf",),
    "-Inf": ("-Inf",),
    "an empty result": (),
    "all at once": ("NaN", "+Inf", "-Inf"),
}


def all_of(*values: str) -> list[Series]:
    """Every series that is asked for, with each of these values."""
    return [
        series
        for number, value in enumerate(values)
        for series in (
            ("container_memory_rss", {**ENGINE, "id": str(number)}, value),
            ("container_memory_working_set_bytes", {**ENGINE, "id": str(number)}, value),
            ("DCGM_FI_DEV_GPU_UTIL", {"gpu": str(number)}, value),
            ("DCGM_FI_DEV_XID_ERRORS", {"gpu": str(number)}, value),
            ("DCGM_FI_DEV_ROW_REMAP_FAILURE", {"gpu": str(number)}, value),
        )
    ]


@pytest.mark.parametrize("values", EMPTY.values(), ids=list(EMPTY))
async def test_s13_what_prometheus_can_not_compute_is_no_data_of_an_idle_pool(
    values: tuple[str, ...],
) -> None:
    async with measured({"short": 3}) as scene:
        hold = {
            "prefix_cache_queries_total": 0.0,
            "prefix_cache_hits_total": 0.0,
            "time_to_first_token_seconds_count": 140.0,
        }
        for name in scene.names_of("short"):
            scene.engines.change(name, running=0.0, kv_usage=0.0, memory=None)
            scene.engines.rewrite[name] = replaced(**hold)
        scene.says = lambda pod: all_of(*values)
        await scene.run(900)
        scene.forget()
        asked = scene.asked
        await scene.run(900)
        assert scene.asked - asked >= 10
        for name in scene.names_of("short"):
            found = scene.verdict(name)
            assert (found.verdict.value, found.findings) == ("Idle", ())
            unknown = {
                "memory_percent",
                "memory_forecast_seconds",
                "gpu_utilization_percent",
                "cache_hit_percent",
            }
            assert not unknown & set(found.signals)
            assert scene.kept.seen[name] == {("Idle", "NoRequests")}
        (pool,) = scene.status.pools
        assert pool.verdicts is not None
        assert pool.verdicts.idle == 3
        assert "NaN" not in scene.status_json()
        assert "Infinity" not in scene.status_json()
        nothing_happened(scene)


async def test_s13_a_value_between_two_nans_counts_and_what_it_said_before_is_not_held_for_ever() -> None:
    async with measured({"short": 2}, nodes=3) as scene:
        pod = scene.names_of("short")[0]
        for name in scene.names_of("short"):
            scene.engines.change(name, memory=None)
        scene.says = lambda pod: [("container_memory_rss", ENGINE, str(16 * 2**30))]
        await scene.run(300)
        assert scene.verdict(pod).signals["memory_percent"] > 0.0
        scene.says = lambda pod: all_of("NaN")
        await scene.run(600)
        assert "memory_percent" not in scene.verdict(pod).signals
        nothing_happened(scene)


@pytest.mark.parametrize("name", ["DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_GPU_UTIL_RATIO"])
async def test_s15_a_frozen_engine_whose_gpus_are_all_busy_is_replaced_like_any_other(name: str) -> None:
    async with measured({"short": 3}, then=5) as scene:
        full = "100" if name.endswith("UTIL") else "1.0"
        scene.says = lambda pod: [(name, {"gpu": str(gpu)}, full) for gpu in range(8)]
        await scene.run(900)
        pod = scene.names_of("short")[1]
        for waiting in range(9, 28, 3):
            scene.engines.change(pod, hung=True, running=3.0, waiting=float(waiting))
            await scene.run(20)
        assert scene.verdict(pod).signals["gpu_utilization_percent"] == pytest.approx(100.0)
        assert scene.rotation(pod) == "out"
        await scene.until_removed(within=600)
        assert scene.removals() == [pod]


@pytest.mark.parametrize("value", ["0", "100", "NaN"])
async def test_gpu_use_alone_never_withdraws_anybody(value: str) -> None:
    async with measured({"short": 3}, then=5) as scene:
        scene.says = lambda pod: [("DCGM_FI_DEV_GPU_UTIL", {"gpu": "0"}, value)]
        await scene.run(1_200)
        assert not {said for seen in scene.kept.seen.values() for said, _ in seen} & {"Sick", "Suspect"}
        nothing_happened(scene)


@pytest.mark.parametrize("code", [503, 500, 429, 302, 401])
async def test_s26_prometheus_and_all_pages_fail_at_once_and_nobody_is_touched(code: int) -> None:
    async with measured({"short": 6}, nodes=7, then=5) as scene:
        scene.says = lambda pod: [("DCGM_FI_DEV_GPU_UTIL", {"gpu": "0"}, "80")]
        await scene.run(120)
        scene.status_code = code
        for name in scene.names_of("short"):
            scene.engines.status[name] = 503
        await scene.run(300)
        assert scene.condition("DataFresh")[0] == "False"
        assert scene.condition("HealingAllowed") == ("False", "NoData")
        nothing_happened(scene)
        scene.status_code = 200
        scene.engines.status.clear()
        await scene.run(120)
        assert scene.condition("DataFresh") == ("True", "AllRead")
        assert scene.condition("HealingAllowed")[0] == "True"
        nothing_happened(scene)


async def test_s26_prometheus_alone_fails_and_healing_goes_on_by_the_engines_own_pages() -> None:
    async with measured({"short": 3}, then=5) as scene:
        scene.status_code = 503
        await scene.run(300)
        (said,) = [c.message for c in scene.status.conditions if c.type == "DataFresh"]
        assert "Prometheus" in said
        pod = scene.names_of("short")[0]
        scene.engines.change(pod, hung=True, running=3.0)
        await scene.until_removed(within=600)
        assert scene.removals() == [pod]
