import pytest

from kintsugi.core.planner.figure import banded, exact
from kintsugi.core.planner.options import Options
from kintsugi.core.planner.plan import plan
from tests.unit.planner.subjects import FLASH, PRO, held, message, planned, rules, spec_of

R1 = "deepseek-ai/DeepSeek-R1"


def test_the_minimal_manifest_plans_with_the_recipes_hardware() -> None:
    made = plan(spec_of(FLASH))[0]
    assert (made.name, made.gpu, made.gpus, made.replicas) == ("main", "H200", 4, 1)
    assert made.fits is True
    assert made.cost is not None


@pytest.mark.parametrize("gpu", ["A100-80GB", "NVIDIA-A100-SXM4-80GB"])
def test_a4_v4_does_not_run_on_a100_unless_the_user_says_so(gpu: str) -> None:
    assert planned(FLASH, gpu, 8).fits is False
    spec = spec_of(
        FLASH, hardware={"gpu": gpu, "gpusPerInstance": 8}, validation={"allow": ["UnsupportedGpu"]}
    )
    made = plan(spec)[0]
    assert made.fits is True
    assert "UnsupportedGpu" in rules(made, "Warning")


def test_a4_the_true_limit_is_named_as_the_request_from_which_others_wait() -> None:
    made = planned(FLASH, "H200", 4, maxNumSeqs=64)
    assert held(made, 1_048_576) < 64
    assert f"queues above {held(made, 1_048_576)} requests" in message(made, "QueuesAbove")
    assert "QueuesAbove" in rules(made, "Warning")


def test_a4_where_the_scheduler_stops_first_that_is_said() -> None:
    spec = spec_of(
        FLASH, pools=[{"name": "short", "profile": "HighThroughput", "context": {"maxTokens": 8192}}]
    )
    made = plan(spec)[0]
    assert "queues above 64 requests" in message(made, "QueuesAbove")
    assert made.sustained(8192) == 64


def test_a21_the_simple_formula_stands_beside_the_one_that_holds() -> None:
    made = planned(FLASH, "H200", 8, options=Options(mean_length=65_536), tensorParallelSize=8, maxNumSeqs=64)
    told = made.formulas
    assert told is not None
    assert told.simple == pytest.approx(167e9 + 64 * 65_536 * 3915, rel=0.001)
    assert told.corrected.value > told.simple * 1.5
    assert told.corrected.low < told.corrected.value < told.corrected.high


def test_a14_block_size_is_fixed_on_v4_and_free_elsewhere() -> None:
    v4 = planned(FLASH, "H200", 4)
    assert [row.block_size for row in v4.waste if row.legal] == [256]
    free = planned(R1, "H200", 8, options=Options(demand={1000: 10, 33_000: 1}))
    waste = {row.block_size: row.percent for row in free.waste if row.legal}
    assert len(waste) > 1
    assert waste[16] < waste[max(waste)]


def test_a3_another_block_size_is_refused_on_v4() -> None:
    made = planned(FLASH, "H200", 4, blockSize=64)
    assert made.fits is False
    assert "256" in message(made, "BlockSizeFixed")


def test_more_ranks_than_gpus_are_refused_and_idle_gpus_told() -> None:
    assert "ParallelismExceedsGpus" in rules(planned(FLASH, "H200", 4, tensorParallelSize=8), "Error")
    assert "IdleGpus" in rules(planned(FLASH, "H200", 8, tensorParallelSize=4), "Warning")


@pytest.mark.parametrize("size", [3, 5, 6, 16])
def test_tensor_parallel_sizes_that_cut_a_tile_are_refused(size: int) -> None:
    assert "TensorParallelIllegal" in rules(planned(PRO, "B200", size, tensorParallelSize=size), "Error")


def test_a_context_that_surely_does_not_fit_is_refused_with_one_that_does() -> None:
    made = planned(FLASH, "H100", 4, gpuMemoryUtilization=0.6, maxNumBatchedTokens=8192)
    assert made.fits is False
    assert rules(made, "Error") & {"ContextExceedsKv", "WeightsDoNotFit"}


def test_weights_that_leave_nothing_are_refused() -> None:
    made = planned(FLASH, "H100", 3, tensorParallelSize=1, dataParallelSize=3, gpuMemoryUtilization=0.5)
    assert "WeightsDoNotFit" in rules(made, "Error")
    assert held(made, 1024) == 0


def test_an_unknown_model_cannot_be_planned() -> None:
    made = planned("meta-llama/Llama-3.1-8B", "H200", 1)
    assert made.fits is False
    assert "cannot plan" in message(made, "CannotPlan")


def test_an_instance_on_the_cpu_is_no_question_of_gpus() -> None:
    made = planned(FLASH, None, 0)
    assert made.fits is None
    assert not rules(made, "Error")


def test_each_pool_is_planned_with_its_own_settings_and_margins() -> None:
    pools = [
        {"name": "short", "replicas": 4, "profile": "HighThroughput", "context": {"maxTokens": 8192}},
        {"name": "long", "replicas": 2, "profile": "LongContext", "hardware": {"gpusPerInstance": 8}},
    ]
    short, long = plan(spec_of(FLASH, hardware={"gpu": "H200", "gpusPerInstance": 4}, pools=pools))
    assert short.kv is not None
    assert [tokens for tokens, _ in short.kv.concurrency] == [1024, 4096, 8192]
    assert short.margin is not None
    assert (short.margin.after_one_failure, short.margin.surge_gpus) == (3, 4)
    assert long.margin is not None
    assert (long.margin.after_one_failure, long.margin.surge_gpus) == (1, 8)
    assert long.cost is not None
    assert short.cost is not None
    assert short.cost.pool_hour.value == pytest.approx(4 * 4 * short.cost.instance_hour.value / 4)


def test_demand_goes_to_the_smallest_pool_that_takes_it() -> None:
    pools = [
        {"name": "long", "context": {"maxTokens": 262_144}},
        {"name": "short", "context": {"maxTokens": 8192}},
    ]
    options = Options(demand={4096: 1, 100_000: 1, 1_000_000: 1})
    long, short = plan(spec_of(FLASH, pools=pools), options=options)
    assert "4,096 tokens" in message(short, "DemandQueuesAfterFailure")
    assert "100,000 tokens" in message(long, "DemandQueuesAfterFailure")
    assert "DemandFitsNoPool" in rules(long, "Warning")


def test_every_finding_names_a_field_and_a_sentence() -> None:
    for made in (planned(PRO, "H100", 8), planned(FLASH, "B200", 8), planned(FLASH, "X", 8)):
        for finding in made.findings:
            assert finding.path.startswith("spec.")
            assert finding.message
            assert finding.rule[0].isupper()


def test_the_users_own_field_is_named_where_he_wrote_it() -> None:
    pools = [{"name": "a"}, {"name": "b", "engine": {"extraArgs": ["-tp", "16"]}}]
    spec = spec_of(PRO, hardware={"gpu": "B200", "gpusPerInstance": 16}, pools=pools)
    finding = next(f for f in plan(spec)[1].findings if f.rule == "TensorParallelIllegal")
    assert finding.path == "spec.pools[1].engine.extraArgs[0]"


def test_a_fixed_size_of_the_kv_cache_is_taken_as_said() -> None:
    made = planned(FLASH, "H200", 4, engine={"extraArgs": ["--kv-cache-memory-bytes", "10G"]})
    assert made.kv is not None
    assert made.kv.engine_blocks.value == 10 * 2**30 // 1_002_240
    override = planned(FLASH, "H200", 4, engine={"extraArgs": ["--num-gpu-blocks-override", "5000"]})
    assert override.kv is not None
    assert override.kv.tokens.value == 5000 * 256


def test_bands_widen_when_figures_are_added_and_taken_away() -> None:
    ten, three = banded(10, 0.5, 2, "ten"), exact(3, "three")
    both = ten.minus(three, "")
    assert (both.value, both.low, both.high, both.basis) == (7, 2, 17, "assumed")
    assert ten.plus(three, "").high == 23
    assert exact(1, "").plus(exact(2, ""), "").basis == "measured"
    assert ten.minus(banded(30, 1, 1, ""), "").floored().value == 0


def test_a_context_beyond_the_models_own_is_planned_for_the_models() -> None:
    made = planned(FLASH, "H200", 8, maxModelLen=2_000_000)
    assert "ContextBeyondModel" in rules(made, "Warning")
    assert made.context == 1_048_576


def test_nvfp4_weights_need_blackwell() -> None:
    assert "UnsupportedGpu" in rules(planned("nvidia/DeepSeek-V4-Flash-NVFP4", "MI355X", 8), "Error")


@pytest.mark.parametrize("context", [1, 255, 256, 257])
def test_the_shortest_contexts_are_planned_too(context: int) -> None:
    made = planned(FLASH, "H200", 4, maxModelLen=context)
    assert made.kv is not None
    assert made.kv.longest == context
    assert [tokens for tokens, _ in made.kv.concurrency] == [context]


def test_offload_that_the_pod_has_room_for_is_only_told() -> None:
    engine = {
        "kvOffload": {"hostMemoryPerEngine": "10Gi"},
        "shm": {"size": "64Gi"},
        "resources": {"limits": {"memory": "256Gi"}},
    }
    assert "OffloadNeedsHost" in rules(planned(FLASH, "H200", 4, engine=engine), "Info")


def test_s01_up_to_the_longest_context_known_to_start_at_least_one_request_runs() -> None:
    options = Options(lengths=(32_768, 131_072, 262_144))
    made = planned(
        "deepseek-ai/DeepSeek-V4-Pro-0813",
        "H200",
        8,
        options=options,
        dataParallelSize=8,
        enableExpertParallel=True,
        gpuMemoryUtilization=0.95,
        maxModelLen=200_000,
    )
    assert made.kv is not None
    assert made.kv.longest == 200_000
    assert held(made, 131_072) >= 8
    assert held(made, 200_000) >= 8
    assert made.fits is True


def test_v4_does_not_run_on_another_vendors_gpu_without_a_recipe_unless_the_user_says_so() -> None:
    made = planned(FLASH, "MI300X", 8)
    assert made.fits is False
    assert "UnsupportedGpu" in rules(made, "Error")
    allowed = spec_of(
        FLASH, hardware={"gpu": "MI300X", "gpusPerInstance": 8}, validation={"allow": ["UnsupportedGpu"]}
    )
    assert plan(allowed)[0].fits is True


def test_flash_runs_on_mi325x_and_pro_does_not() -> None:
    assert "UnsupportedGpu" not in rules(planned(FLASH, "MI325X", 8))
    assert "UnsupportedGpu" in rules(planned(PRO, "MI325X", 8), "Error")
