"""`status.capacity`: planned, then measured, told when a revision shrinks it, and silent otherwise."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kintsugi.api.capacity import CapacityStatus, PoolCapacity
from kintsugi.core.capacity import EngineKv, capacity_after, engine_kv
from kintsugi.core.decide import decide
from kintsugi.core.snapshot import Page, Snapshot
from tests.unit.core.decision.made import pools, spec
from tests.unit.core.decision.rolling import image, rolled
from tests.unit.core.decision.world import World

PAGES = Path(__file__).parents[1] / "core" / "pages"
HARDWARE = {"gpu": "H200", "gpusPerInstance": 4}


def page(blocks: int, engines: int = 1, block_size: int = 4) -> str:
    return "".join(
        f'vllm:cache_config_info{{block_size="{block_size}",engine="{rank}",num_gpu_blocks="{blocks}"}} 1.0\n'
        for rank in range(engines)
    )


class TellingWorld(World):
    """Engines whose page says how many KV blocks they have, by revision."""

    def __init__(self, written: dict[str, Any]) -> None:
        super().__init__(written, gpus=1000)
        self.blocks: dict[str, int] = {}

    def snapshot(self) -> Snapshot:
        seen = super().snapshot()
        told = tuple(
            replace(i, scrape=Page(page(self.blocks[i.revision]), 0.0)) if i.revision in self.blocks else i
            for i in seen.instances
        )
        return replace(seen, instances=told)

    @property
    def capacity(self) -> CapacityStatus:
        assert self.status.capacity is not None
        return self.status.capacity

    @property
    def main(self) -> PoolCapacity:
        return self.capacity.pools[0]


def world(replicas: int = 2, **more: Any) -> TellingWorld:
    made = TellingWorld(spec(replicas, hardware=HARDWARE, **more))
    made.run(300)
    return made


def test_an_accepted_spec_has_its_planned_figures_at_once() -> None:
    made = TellingWorld(spec(2, hardware=HARDWARE))
    made.step()
    main = made.main
    assert (main.name, main.basis, main.reason, main.fits) == ("main", "Planned", "Planned", True)
    assert main.planned_kv_tokens is not None
    assert main.planned_kv_tokens > 10_000_000
    assert main.kv_tokens is None
    assert {row.tokens for row in main.concurrency} >= {8192, 1_048_576}
    assert made.capacity.observed_generation == 1


def test_a_quiet_fleet_is_not_written_about_again() -> None:
    made = world()
    made.blocks[made.view().revision] = 80_000
    made.step()
    writes = made.writes
    for _ in range(50):
        made.step()
    assert made.writes == writes


def test_deciding_twice_gives_the_same_object() -> None:
    made = world()
    snapshot = made.snapshot()
    plan = decide(snapshot, made.judged(), made.times)
    assert plan.status.capacity == snapshot.deployment.status.capacity


def test_the_engines_own_figures_take_over_with_their_deviation() -> None:
    made = world()
    planned = made.main.planned_kv_tokens
    assert planned is not None
    made.blocks[made.view().revision] = 80_000
    plan = made.step()
    main = made.main
    assert (main.basis, main.reason, main.kv_blocks) == ("Measured", "Measured", 80_000)
    assert main.kv_tokens == 80_000 * 256
    assert main.deviation_percent == pytest.approx(100 * (80_000 * 256 - planned) / planned, abs=0.1)
    assert "CapacityReduced" not in [h.reason for h in plan.happenings]


def test_a_revision_that_has_over_5_percent_less_is_told_once_with_both_figures() -> None:
    made = world()
    made.blocks[made.view().revision] = 80_000
    made.step()
    image(made, "vllm/vllm-openai:v0.34.0")
    made.blocks[made.view().revision] = 70_000
    told: list[str] = []
    for _ in range(400):
        told += [h.message for h in made.step().happenings if h.reason == "CapacityReduced"]
    assert rolled(made)
    assert len(told) == 1
    assert "from 20,480,000 to 17,920,000 tokens (-12.5 %)" in told[0]
    assert (made.capacity.reason, made.main.reason) == ("CapacityReduced", "CapacityReduced")
    assert made.main.previous_kv_tokens == 20_480_000
    assert "pool main" in made.capacity.message


@pytest.mark.parametrize("blocks", [76_500, 80_000, 95_000])
def test_a_revision_with_about_as_much_or_more_is_no_news(blocks: int) -> None:
    made = world()
    made.blocks[made.view().revision] = 80_000
    made.step()
    image(made, "vllm/vllm-openai:v0.34.0")
    made.blocks[made.view().revision] = blocks
    for _ in range(400):
        assert "CapacityReduced" not in [h.reason for h in made.step().happenings]
    assert made.main.reason == "Measured"


def test_a_refused_spec_leaves_the_figures_as_they_were() -> None:
    made = world()
    before = made.capacity
    made.spec = {**made.spec, "podTemplate": {"metadata": {"name": "mine"}}}
    made.generation += 1
    made.step()
    assert made.capacity == before


def test_what_cannot_be_planned_says_why() -> None:
    made = TellingWorld(spec(1, hardware={"gpu": "none-such", "gpusPerInstance": 4}))
    made.step()
    assert made.capacity.reason == "CannotPlan"
    assert "none-such" in made.capacity.message
    assert made.main.planned_kv_tokens is None


def test_pools_come_and_go_with_the_spec() -> None:
    made = world()
    made.spec["pools"] = pools(main=1, long=1)
    made.generation += 1
    made.step()
    assert [pool.name for pool in made.capacity.pools] == ["main", "long"]


def test_sixteen_pools_stay_small() -> None:
    many = [{"name": f"pool-{index}", "context": {"maxTokens": 1_048_576}} for index in range(16)]
    made = TellingWorld(spec(1, hardware=HARDWARE) | {"pools": many})
    made.step()
    assert len(made.capacity.model_dump_json()) < 32_768


def test_blocks_are_the_sum_over_ranks_that_every_rank_repeats() -> None:
    assert engine_kv(page(1000, engines=8)) == EngineKv(1000, 8, 4)


def test_blocks_that_differ_by_rank_are_each_ranks_own() -> None:
    both = page(1000) + 'vllm:cache_config_info{block_size="4",engine="1",num_gpu_blocks="900"} 1.0\n'
    assert engine_kv(both) == EngineKv(1900, 2, 4)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "vllm:num_requests_running 1\n",
        'vllm:cache_config_info{engine="0",num_gpu_blocks="None"} 1.0\n',
        'vllm:cache_config_info{engine="0"} 1.0\n',
        'vllm:cache_config_info{engine="0",num_gpu_blocks="0"} 1.0\n',
        'vllm:cache_config_info{engine="0",num_gpu_blocks="99999999999999999999"} 1.0\n',
        "vllm:cache_config_info{",
    ],
)
def test_a_page_that_tells_no_blocks_tells_nothing(text: str) -> None:
    assert engine_kv(text) is None


def test_a_real_page_of_v4_tells_its_blocks() -> None:
    assert engine_kv((PAGES / "70_deepseek_v4.txt").read_text()) == EngineKv(2859, 1, 4)


@pytest.mark.parametrize(
    "slip",
    [
        ["-dp", "999999999999"],
        ["--num-gpu-blocks-override", "999999999999"],
        ["--kv-cache-memory-bytes", "9" * 31],
    ],
)
def test_a_slip_of_many_digits_costs_no_pass(slip: list[str]) -> None:
    made = TellingWorld(spec(1, hardware=HARDWARE, engine={"extraArgs": slip}))
    made.step()
    found = capacity_after(None, made.snapshot(), made.views(), accepted=True)
    assert found is not None
    assert json.loads(found.model_dump_json())["pools"]
