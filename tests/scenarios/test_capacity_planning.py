"""CAP: what fits on which GPUs, before anything is deployed (S45, S46, S47)."""

import pytest

from kintsugi.core.catalog.version import EngineVersion
from kintsugi.core.planner.offload import offload_needs
from kintsugi.core.planner.options import Options
from kintsugi.core.planner.plan import plan
from tests.unit.planner.subjects import FLASH, PRO, held, message, planned, rules, spec_of

GIB = 2**30


def test_s45a_pro_on_eight_h100_is_refused_with_both_numbers() -> None:
    made = planned(PRO, "H100", 8)
    assert made.fits is False
    assert "640 < 960" in message(made, "MemoryBelowFloor")
    assert made.memory is not None
    assert made.weights is not None
    assert made.weights.basis == "assumed"
    assert held(made, 1024) == 0


@pytest.mark.parametrize("model", [PRO, "deepseek-ai/DeepSeek-V4-Pro-0813"])
def test_s45b_pro_on_eight_h200_fits_tightly_and_the_context_limit_is_named(model: str) -> None:
    made = planned(model, "H200", 8)
    assert made.fits is True
    assert "KvTight" in rules(made)
    assert "200000" in message(made, "ContextVerified")
    assert made.kv is not None
    assert made.kv.longest == 200_000


def test_s45b_a_longer_context_than_the_verified_one_is_a_warning_not_a_refusal() -> None:
    made = planned(
        PRO,
        "H200",
        8,
        engine={"image": "vllm/vllm-openai:v0.25.0"},
        dataParallelSize=8,
        enableExpertParallel=True,
        maxModelLen=800_000,
        gpuMemoryUtilization=0.95,
    )
    assert made.fits is True
    assert "800000 is not verified" in message(made, "ContextVerified")
    assert "ContextVerified" in rules(made, "Warning")


def test_s45c_two_nodes_of_h100_hold_pro_as_a_group_of_pods() -> None:
    made = planned(PRO, "H100", 8, 2, tensorParallelSize=8, dataParallelSize=2)
    assert made.fits is True
    assert made.gpus == 16
    assert "LeaderWorkerSet" in message(made, "NeedsGroup")


def test_s45c_tensor_parallel_16_is_refused_for_pro() -> None:
    made = planned(PRO, "H100", 8, 2, tensorParallelSize=16)
    assert made.fits is False
    assert "tensor parallel 8 and data parallel 2" in message(made, "TensorParallelIllegal")


def test_s45d_one_tray_of_gb200_is_not_enough_for_pro() -> None:
    made = planned(PRO, "GB200", 4)
    assert made.fits is False
    assert "744 < 960" in message(made, "MemoryBelowFloor")
    assert planned(PRO, "GB200", 4, 2).fits is True


def test_s45e_flash_on_four_h200_fits() -> None:
    made = planned(FLASH, "H200", 4)
    assert made.fits is True
    assert not rules(made, "Error")


@pytest.mark.parametrize("gpu", ["TPU-v5e", "H9000", "nvidia"])
def test_s45_an_unknown_gpu_cannot_be_planned_and_nothing_is_guessed(gpu: str) -> None:
    made = planned(FLASH, gpu, 8)
    assert made.fits is False
    assert "cannot plan" in message(made, "CannotPlan")
    assert (made.weights, made.kv, made.cost) == (None, None, None)


def test_s46_kv_is_not_multiplied_by_tensor_parallelism() -> None:
    tensor = planned(FLASH, "B200", 8, tensorParallelSize=8)
    data = planned(FLASH, "B200", 8, dataParallelSize=8, enableExpertParallel=True)
    assert tensor.kv is not None
    assert data.kv is not None
    factor = data.kv.tokens.value / tensor.kv.tokens.value
    assert factor == pytest.approx(7.7, abs=0.3)
    assert held(data, 1_048_576) > 6 * held(tensor, 1_048_576)
    told = message(tensor, "TensorParallelCopiesKv")
    assert f"{factor:.1f} times as many" in told
    assert "dataParallelSize" in told
    assert "TensorParallelCopiesKv" not in rules(data)


def test_s46_demand_above_capacity_queues_and_is_told_so() -> None:
    tight = Options(demand={1_048_576: 100})
    tensor = planned(FLASH, "B200", 8, options=tight, tensorParallelSize=8)
    runs = tensor.sustained(1_048_576)
    assert runs is not None
    assert f"{runs} run, {100 - runs} wait" in message(tensor, "DemandQueues")
    data = planned(FLASH, "B200", 8, options=tight, dataParallelSize=8, enableExpertParallel=True)
    assert "DemandQueues" not in rules(data)


def test_s46_eight_requests_run_either_way_but_none_is_left_when_the_only_instance_fails() -> None:
    made = planned(FLASH, "B200", 8, options=Options(demand={1_048_576: 8}), tensorParallelSize=8)
    assert "DemandQueuesAfterFailure" in rules(made)


def test_s47_offload_is_per_engine_and_counts_in_shm_and_in_the_memory_limit() -> None:
    needs = offload_needs(200 * GIB, 4)
    assert needs.blocks_bytes >= 4 * 200 * GIB
    assert needs.shared_memory_bytes >= needs.blocks_bytes
    assert needs.memory_limit_bytes > needs.shared_memory_bytes
    assert needs.memory_limit_bytes > 512 * GIB


def test_s47_the_factor_goes_by_version_and_can_be_set() -> None:
    assert offload_needs(10 * GIB, 4, EngineVersion(0, 27, 1)).blocks_bytes >= 1.92 * 40 * GIB
    assert offload_needs(10 * GIB, 4, EngineVersion(0, 33)).blocks_bytes < 1.5 * 40 * GIB
    assert offload_needs(10 * GIB, 4, factor=3.0).blocks_bytes == 120 * GIB
    assert offload_needs(10 * GIB, 4, factor=0.5).blocks_bytes == 40 * GIB


def test_s47_a_plan_with_offload_says_what_the_pod_needs() -> None:
    made = planned(
        FLASH, "B200", 4, engine={"kvOffload": {"hostMemoryPerEngine": "200Gi"}}, dataParallelSize=4
    )
    assert made.offload is not None
    assert made.offload.engines == 4
    assert made.offload.per_engine == 200 * GIB
    assert made.offload_tokens is not None
    assert made.offload_tokens > 100_000_000


def test_s47_a_pod_with_less_is_warned_with_both_computed_minima() -> None:
    engine = {"kvOffload": {"hostMemoryPerEngine": "200Gi"}, "shm": {"size": "16Gi"}}
    template = {"spec": {"containers": [{"name": "engine", "resources": {"limits": {"memory": "512Gi"}}}]}}
    spec = spec_of(
        FLASH,
        hardware={"gpu": "B200", "gpusPerInstance": 4},
        engine={**engine, "args": {"dataParallelSize": 4}},
        podTemplate=template,
    )
    told = message(plan(spec)[0], "OffloadNeedsHost")
    assert "OffloadNeedsHost" in rules(plan(spec)[0], "Warning")
    for words in ("resources.limits.memory is 512Gi", "spec.engine.shm.size is 16Gi", "4 x 200Gi"):
        assert words in told
