"""What the operator says, what it leaves to the user, and where each word comes from."""

import json
from typing import Any

import pytest

from kintsugi.api.effective import pools_of
from kintsugi.api.spec import DeploymentSpec
from kintsugi.core.command.argument import Command
from kintsugi.core.command.choice import gpus_of_instance
from kintsugi.core.command.render import engine_command, worker_command

FLASH = "deepseek-ai/DeepSeek-V4-Flash"
FLASH_0731 = "deepseek-ai/DeepSeek-V4-Flash-0731"
PRO = "deepseek-ai/DeepSeek-V4-Pro"


def command(model: str = FLASH_0731, pool: int = 0, **spec: Any) -> Command:
    """The command of one pool; `args`, `extra` and `version` go into `spec.engine`."""
    engine = dict(spec.pop("engine", {}))
    for key, field in (("args", "args"), ("extra", "extraArgs"), ("version", "version")):
        if key in spec:
            engine[field] = spec.pop(key)
    document = {"model": {"id": model}, "engine": engine} | spec
    parsed = DeploymentSpec.model_validate(document)
    return engine_command(parsed, pools_of(parsed)[pool])


def value(found: Command, flag: str) -> str | None:
    argument = found.get(flag)
    return argument.value if argument else None


def test_a_model_alone_gives_a_command_that_runs_it() -> None:
    """S04 A."""
    words = " ".join(command().words())
    assert "--block-size 256" in words
    assert "--kv-cache-dtype fp8" in words
    assert "--tensor-parallel-size 4" in words
    assert "--tokenizer-mode deepseek_v4" in words


def test_an_explicit_block_size_is_never_overridden() -> None:
    """S04 B: the rules refuse it; the command shows what the user wants."""
    found = command(args={"blockSize": 16})
    (said,) = found.all("--block-size")
    assert (said.value, said.origin) == ("16", "spec.engine.args.blockSize")


def test_a_family_without_a_block_size_gets_none() -> None:
    assert command("deepseek-ai/DeepSeek-V3").get("--block-size") is None


def test_free_arguments_come_last_byte_for_byte() -> None:
    extra = ["--additional-config", '{"a":\n  "b  c"}', "--seed=1", "-x", ""]
    assert command(extra=extra).words()[-5:] == extra


@pytest.mark.parametrize(
    ("extra", "flag"),
    [
        (["-tp", "8"], "--tensor-parallel-size"),
        (["--block_size=256"], "--block-size"),
        (["--no-trust-remote-code"], "--trust-remote-code"),
        (["--speculative-config.method=ngram"], "--speculative-config"),
        (["--spec-method", "ngram"], "--speculative-config"),
        (["--served-model-name", "a", "b"], "--served-model-name"),
        (["--shutdown_timeout", "5"], "--shutdown-timeout"),
        (["--compilation_config.mode=0"], "--compilation-config"),
    ],
)
def test_what_the_user_says_in_any_spelling_the_operator_does_not_say(extra: list[str], flag: str) -> None:
    found = command(extra=extra, args={"dataParallelSize": 4}, hardware={"gpu": "H200", "gpusPerInstance": 4})
    assert all(argument.origin.startswith("spec.engine.extraArgs") for argument in found.all(flag))
    assert found.words()[-len(extra) :] == extra


def test_a_setting_said_twice_by_the_user_stays_twice_for_the_rules() -> None:
    """S07."""
    found = command(args={"maxModelLen": 131072}, extra=["--max_model_len=262144", "-tp", "8"])
    assert [(a.value, a.origin) for a in found.all("--max-model-len")] == [
        ("131072", "spec.engine.args.maxModelLen"),
        ("262144", "spec.engine.extraArgs[0]"),
    ]
    assert [a.origin for a in found.all("--tensor-parallel-size")] == ["spec.engine.extraArgs[1]"]
    assert value(found, "--max-model-len") == "262144"


def test_a_dotted_key_beside_the_recipes_other_key_leaves_it_there() -> None:
    """vLLM joins dotted arguments of one flag; a JSON argument would replace them all."""
    hardware = {"gpu": "B200", "gpusPerInstance": 8}
    key = "--attention-config.indexer_kv_dtype"
    beside = command(extra=["--attention-config.backend=X"], version="0.33.0", hardware=hardware)
    assert beside.get(key)
    whole = command(extra=["-ac", '{"backend": "X"}'], version="0.33.0", hardware=hardware)
    assert whole.get(key) is None


def test_arguments_name_the_pool_or_the_deployment_that_wrote_them() -> None:
    spec: dict[str, Any] = {
        "args": {"maxNumSeqs": 8, "gpuMemoryUtilization": 0.9},
        "pools": [
            {"name": "a", "context": {"maxTokens": 4096}},
            {"name": "b", "engine": {"args": {"maxNumSeqs": 4}, "extraArgs": ["--seed", "1"]}},
        ],
    }
    first, second = command(pool=0, **spec), command(pool=1, **spec)
    origins = {a.flag: a.origin for a in first.arguments}
    assert origins["--max-num-seqs"] == "spec.engine.args.maxNumSeqs"
    assert origins["--max-model-len"] == "spec.pools[0].context.maxTokens"
    origins = {a.flag: a.origin for a in second.arguments}
    assert origins["--max-num-seqs"] == "spec.pools[1].engine.args.maxNumSeqs"
    assert origins["--gpu-memory-utilization"] == "spec.engine.args.gpuMemoryUtilization"
    assert origins["--seed"] == "spec.pools[1].engine.extraArgs[0]"


@pytest.mark.parametrize(
    ("profile", "sequences"), [("HighThroughput", "64"), ("LongContext", "16"), ("Balanced", None)]
)
def test_the_profile_sets_how_many_requests_run(profile: str, sequences: str | None) -> None:
    """A16."""
    found = command(pools=[{"name": "a", "profile": profile}])
    assert value(found, "--max-num-seqs") == sequences
    assert (found.get("--kv-offloading-size") is not None) == (profile == "LongContext")
    typed = command(args={"maxNumSeqs": 9}, pools=[{"name": "a", "profile": profile}])
    assert value(typed, "--max-num-seqs") == "9"


@pytest.mark.parametrize(
    ("version", "limit"), [("0.28.0", None), ("0.29.0", "1024"), ("0.33.0", "1024"), (None, None)]
)
def test_the_fuse_is_there_where_the_engine_has_one(version: str | None, limit: str | None) -> None:
    """A4: four times what runs, over all data parallel ranks; never where the version is not known."""
    engine = {"version": version} if version else {"image": "registry.example/vllm:prod"}
    spec: dict[str, Any] = {
        "args": {"dataParallelSize": 4},
        "hardware": {"gpu": "H200", "gpusPerInstance": 4},
    }
    found = command(engine=engine, pools=[{"name": "a", "profile": "HighThroughput"}], **spec)
    assert value(found, "--max-num-queued-reqs") == limit


def test_the_fuse_follows_the_sequences_that_the_engine_really_gets() -> None:
    pools = [{"name": "a", "profile": "HighThroughput"}]
    assert (
        value(command(pools=pools, version="0.33.0", extra=["--max_num_seqs=10"]), "--max-num-queued-reqs")
        == "40"
    )
    assert (
        command(pools=pools, version="0.33.0", extra=["--max-num-seqs"]).get("--max-num-queued-reqs") is None
    )


def test_offload_is_gib_of_one_engine() -> None:
    """A13."""
    found = command(engine={"kvOffload": {"hostMemoryPerEngine": "1536Mi"}})
    assert value(found, "--kv-offloading-size") == "1.5"
    assert "--no-disable-hybrid-kv-cache-manager" in found.words()
    said = found.get("--kv-offloading-size")
    assert said is not None
    assert said.origin == "spec.engine.kvOffload.hostMemoryPerEngine"


def test_an_engine_without_the_offload_flag_gets_the_connector() -> None:
    """vLLM knows --kv-offloading-size from 0.12; R1 runs on older ones."""
    offload = {"kvOffload": {"hostMemoryPerEngine": "2Gi"}}
    found = command("deepseek-ai/DeepSeek-R1", engine=offload, version="0.11.0")
    config = json.loads(value(found, "--kv-transfer-config") or "{}")
    assert config["kv_connector"] == "OffloadingConnector"
    assert config["kv_connector_extra_config"] == {"cpu_bytes_to_use": 2 * 2**30}
    assert found.get("--kv-offloading-size") is None


@pytest.mark.parametrize(
    ("extra", "offloads"),
    [
        (["--kv-transfer-config", '{"kv_connector":"NixlConnector","kv_role":"kv_both"}'], False),
        (["--kv_transfer_config.kv_connector", "NixlConnector"], False),
        (["--kv-transfer-config", '{"kv_connector_extra_config":{"blocks_per_chunk":4}}'], True),
        (["--kv-transfer-config", '{"kv_connector":"OffloadingConnector"}'], True),
        (["--kv-offloading-size", "64"], True),
    ],
)
def test_a_users_own_connector_is_not_replaced_in_silence(extra: list[str], offloads: bool) -> None:
    """The engine would put its own connector in the place of the user's."""
    found = command(extra=extra, engine={"kvOffload": {"hostMemoryPerEngine": "32Gi"}})
    assert (found.get("--kv-offloading-size") is not None) == offloads
    profile = command(extra=extra, pools=[{"name": "a", "profile": "LongContext"}])
    assert len(profile.all("--kv-offloading-size")) == int(offloads)


@pytest.mark.parametrize(
    ("model", "gpu", "version", "config"),
    [
        (FLASH_0731, "H200", "0.25.0", {"method": "dspark", "num_speculative_tokens": 7}),
        (FLASH, "H200", "0.25.0", {"method": "mtp", "num_speculative_tokens": 1}),
        (FLASH, "B200", "0.25.0", {"method": "mtp", "num_speculative_tokens": 2}),
        (PRO, "H200", "0.25.0", {"method": "mtp", "num_speculative_tokens": 2}),
        (FLASH, "H200", "0.21.0", None),
        ("deepseek-ai/DeepSeek-V4.1-Flash", "H200", "0.33.0", {"method": "dspark", "num_speculative_tokens": 5}),
        ("deepseek-ai/DeepSeek-R1", "H200", "0.33.0", None),
    ],
)  # fmt: skip
def test_drafting_follows_the_checkpoint(
    model: str, gpu: str, version: str, config: dict[str, Any] | None
) -> None:
    """A11."""
    found = command(model, version=version, hardware={"gpu": gpu, "gpusPerInstance": 8})
    said = value(found, "--speculative-config")
    if config is None:
        assert said is None
    else:
        assert said is not None
        assert config.items() <= json.loads(said).items()


@pytest.mark.parametrize(
    ("typed", "config"),
    [
        ({"method": "Disabled"}, None),
        ({"method": "DSpark", "numTokens": 3}, {"method": "dspark", "num_speculative_tokens": 3, "draft_sample_method": "probabilistic"}),
        ({"method": "MTP"}, {"method": "mtp", "num_speculative_tokens": 1}),
        ({"method": "NGram", "numTokens": 4}, {"method": "ngram", "num_speculative_tokens": 4}),
        ({"method": "NGram"}, {"method": "ngram", "num_speculative_tokens": 3}),
    ],
)  # fmt: skip
def test_typed_drafting_wins_over_the_recipe(typed: dict[str, Any], config: dict[str, Any] | None) -> None:
    found = command(args={"speculative": typed})
    said = found.get("--speculative-config")
    assert (json.loads(said.value or "") if said else None) == config
    assert said is None or said.origin == "spec.engine.args.speculative"


@pytest.mark.parametrize(
    ("hardware", "args", "sizes"),
    [
        ({"gpusPerInstance": 8}, {}, ("8", None, None)),
        ({"gpusPerInstance": 8}, {"dataParallelSize": 8}, ("1", None, "8")),
        ({"gpusPerInstance": 8}, {"dataParallelSize": 2, "pipelineParallelSize": 2}, ("2", "2", "2")),
        ({"gpusPerInstance": 8}, {"tensorParallelSize": 4}, ("4", None, None)),
        ({"gpusPerInstance": 8}, {"tensorParallelSize": 4, "dataParallelSize": 2}, ("4", None, "2")),
        ({"gpusPerInstance": 16}, {}, ("8", None, "2")),
        ({"gpusPerInstance": 8, "nodesPerInstance": 2}, {}, ("8", None, "2")),
        ({"gpusPerInstance": 4, "nodesPerInstance": 2}, {"dataParallelSize": 8}, ("1", None, "8")),
        ({"gpusPerInstance": 8, "nodesPerInstance": 2}, {"tensorParallelSize": 8}, ("8", None, "2")),
        ({"gpusPerInstance": 8, "nodesPerInstance": 2}, {"pipelineParallelSize": 2}, ("8", "2", None)),
        ({"gpusPerInstance": 1}, {}, ("1", None, None)),
        ({"gpusPerInstance": 0}, {}, (None, None, None)),
        ({"gpusPerInstance": 0}, {"tensorParallelSize": 2}, ("2", None, None)),
    ],
)
def test_the_sizes_fill_the_gpus_of_the_instance(
    hardware: dict[str, Any], args: dict[str, Any], sizes: tuple[str | None, ...]
) -> None:
    found = command(PRO, args=args, hardware={"gpu": "H200"} | hardware)
    flags = ("--tensor-parallel-size", "--pipeline-parallel-size", "--data-parallel-size")
    assert tuple(value(found, flag) for flag in flags) == sizes


def test_sizes_in_free_arguments_count_like_typed_ones() -> None:
    found = command(PRO, extra=["-dp", "4"], hardware={"gpu": "H200", "gpusPerInstance": 8})
    assert value(found, "--tensor-parallel-size") == "2"
    assert found.all("--data-parallel-size") == (found.arguments[-1],)


def test_a_single_gpu_and_a_cpu_spread_no_experts() -> None:
    for gpus in (0, 1):
        assert command(hardware={"gpusPerInstance": gpus}).get("--enable-expert-parallel") is None


@pytest.mark.parametrize(
    ("model", "hardware", "gpus"),
    [
        (FLASH_0731, {}, 4),
        (PRO, {}, 8),
        (PRO, {"gpusPerInstance": 2}, 2),
        (PRO, {"gpusPerInstance": 0}, 0),
        ("mine/own", {}, None),
        ("mine/own", {"gpusPerInstance": 3}, 3),
        (PRO, {"gpu": "Imaginary-9000"}, None),
    ],
)
def test_the_gpus_of_an_instance_are_said_or_the_recipes(
    model: str, hardware: dict[str, Any], gpus: int | None
) -> None:
    spec = DeploymentSpec.model_validate({"model": {"id": model}, "hardware": hardware})
    assert gpus_of_instance(spec, pools_of(spec)[0]) == gpus


def test_workers_of_a_group_join_the_leader_and_answer_nobody() -> None:
    document = {
        "model": {"id": PRO},
        "hardware": {"gpusPerInstance": 8, "nodesPerInstance": 2, "gpu": "H200"},
    }
    spec = DeploymentSpec.model_validate(document | {"engine": {"extraArgs": ["--seed", "1"]}})
    (pool,) = pools_of(spec)
    leader, worker = engine_command(spec, pool), worker_command(spec, pool)
    assert (value(leader, "--node-rank"), value(worker, "--node-rank")) == ("0", "$(LWS_WORKER_INDEX)")
    assert leader.get("--headless") is None
    assert worker.get("--headless") is not None
    assert value(worker, "--master-addr") == "$(LWS_LEADER_ADDRESS)"
    different = {"--node-rank", "--headless"}
    assert [a for a in leader.arguments if a.flag not in different] == [
        a for a in worker.arguments if a.flag not in different
    ]
    assert worker.words()[-2:] == ["--seed", "1"]


@pytest.mark.parametrize(
    "extra",
    [
        ["-dp", "16", "-dpl", "8", "--data-parallel-hybrid-lb", "--data-parallel-start-rank", "8"],
        ["--distributed-executor-backend", "ray", "-tp", "16"],
        ["--nnodes", "2", "--node-rank", "$(RANK)", "--master-addr", "head"],
    ],
)
def test_who_joins_the_nodes_by_hand_is_not_interfered_with(extra: list[str]) -> None:
    hardware = {"gpu": "H200", "gpusPerInstance": 8, "nodesPerInstance": 2}
    spec = DeploymentSpec.model_validate(
        {"model": {"id": PRO}, "hardware": hardware, "engine": {"extraArgs": extra}}
    )
    worker = worker_command(spec, pools_of(spec)[0])
    flags = {"--headless", "--nnodes", "--node-rank", "--master-addr", "--data-parallel-address"}
    assert all(a.origin.startswith("spec.") for a in worker.arguments if a.flag in flags)


def test_a_trial_on_the_cpu_moves_no_cache_to_the_host() -> None:
    pools = [{"name": "a", "profile": "LongContext"}]
    assert command(pools=pools, hardware={"gpusPerInstance": 0}).get("--kv-offloading-size") is None


def test_a_name_that_looks_like_a_flag_is_still_a_name() -> None:
    spec = DeploymentSpec.model_validate({"model": {"id": FLASH, "servedNames": ["-x"]}})
    found = engine_command(spec, pools_of(spec)[0])
    assert "--served-model-name=-x" in found.words()


def test_an_empty_parser_is_no_parser() -> None:
    found = command(args={"toolCallParser": "", "reasoningParser": "", "tokenizerMode": ""})
    for flag in ("--tool-call-parser", "--enable-auto-tool-choice", "--reasoning-parser", "--tokenizer-mode"):
        assert found.get(flag) is None


def test_adapters_whose_names_the_engine_would_split_are_written_as_json() -> None:
    adapters = [{"name": "a", "path": "/a"}, {"name": "b=c", "path": "/b"}]
    found = command(model=FLASH)
    assert found.get("--lora-modules") is None
    spec = DeploymentSpec.model_validate({"model": {"id": FLASH, "loraAdapters": adapters}})
    said = engine_command(spec, pools_of(spec)[0]).get("--lora-modules")
    assert said is not None
    assert said.values[0] == "a=/a"
    assert json.loads(said.values[1]) == {"name": "b=c", "path": "/b"}


def test_the_native_runtime_gets_no_words_of_vllm() -> None:
    native = {
        "runtime": "Native",
        "image": "registry.example/native:1",
        "kvOffload": {"hostMemoryPerEngine": "1Gi"},
    }
    found = command(engine=native, args={"maxNumSeqs": 2}, pools=[{"name": "a", "profile": "LongContext"}])
    assert {a.flag for a in found.arguments} == {"--model", "--served-model-name", "--port", "--max-num-seqs"}
    assert value(found, "--max-num-seqs") == "2"


def test_the_same_manifest_gives_the_same_command() -> None:
    spec: dict[str, Any] = {
        "args": {"dataParallelSize": 2},
        "extra": ["--seed", "1"],
        "pools": [{"name": "a", "profile": "LongContext"}],
    }
    assert command(**spec) == command(**spec)
