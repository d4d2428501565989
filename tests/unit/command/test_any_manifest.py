"""No valid manifest is too odd for the command: it is made without an error, the same each time, and reads back."""

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kintsugi.api.effective import pools_of
from kintsugi.api.spec import DeploymentSpec
from kintsugi.core.command.choice import choose
from kintsugi.core.command.effective import effective
from kintsugi.core.command.flags import ALIASES
from kintsugi.core.command.read import read_words
from kintsugi.core.command.render import engine_command, worker_command

MODELS = st.sampled_from(
    [f"deepseek-ai/DeepSeek-{name}" for name in ("V4-Flash", "V4-Pro-0813", "V4.1-Flash", "R1")] + ["/models/own"]
)  # fmt: skip
SIZES = st.none() | st.sampled_from([1, 2, 3, 4, 7, 8, 16, 1024])
WORD = st.text(max_size=8) | st.sampled_from(
    [*ALIASES, "--max-num-seqs", "--max_num_seqs=4", "--kv-transfer-config", '{"kv_connector":"X"}', "8", "--", "-tp=0"]
)  # fmt: skip
ARGS = st.fixed_dictionaries(
    {},
    optional={
        "tensorParallelSize": SIZES,
        "pipelineParallelSize": SIZES,
        "dataParallelSize": SIZES,
        "enableExpertParallel": st.none() | st.booleans(),
        "maxNumSeqs": st.none() | st.integers(1, 65_536),
        "maxModelLen": st.none() | st.integers(1, 16_777_216),
        "gpuMemoryUtilization": st.none() | st.floats(0.001, 1),
        "toolCallParser": st.none() | st.text(max_size=5),
        "moeBackend": st.none() | st.just("marlin"),
        "enablePrefixCaching": st.none() | st.booleans(),
        "speculative": st.none()
        | st.fixed_dictionaries(
            {"method": st.sampled_from(["DSpark", "MTP", "NGram", "Disabled"])},
            optional={"numTokens": st.integers(1, 32)},
        ),
    },
)
ENGINE = st.fixed_dictionaries(
    {},
    optional={
        "runtime": st.sampled_from(["VLLM", "Native"]),
        "image": st.sampled_from(
            ["a:v0.25.0", "a:nightly", "a@sha256:00", "r:5000/a", "a:v0.19.1", "a:99.1"]
        ),
        "version": st.sampled_from(["0.20.0", "v0.33.0", "0.27.1-cu129", "99"]),
        "args": ARGS,
        "extraArgs": st.lists(WORD, max_size=6),
        "kvOffload": st.sampled_from(["1Gi", "32G", "1", "0", "1.5Ti", "1m"]).map(
            lambda size: {"hostMemoryPerEngine": size}
        ),
    },
)
HARDWARE = st.fixed_dictionaries(
    {},
    optional={
        "gpu": st.sampled_from(["H200", "B200", "A100-80GB", "MI355X", "nobody's", "NVIDIA-H100-80GB-HBM3"]),
        "gpusPerInstance": st.sampled_from([0, 1, 3, 4, 8, 16, 1024]),
        "nodesPerInstance": st.sampled_from([1, 2, 3, 64]),
    },
)
POOL = st.fixed_dictionaries(
    {},
    optional={
        "profile": st.sampled_from(["HighThroughput", "LongContext", "Balanced"]),
        "context": st.just({"maxTokens": 8192}),
        "engine": ENGINE,
        "hardware": HARDWARE,
    },
)
ADAPTERS = st.lists(
    st.tuples(st.text(min_size=1, max_size=6), st.text(min_size=1, max_size=6)), max_size=2, unique_by=lambda a: a[0]
).map(lambda pairs: [{"name": name, "path": path} for name, path in pairs])  # fmt: skip


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(MODELS, ENGINE, HARDWARE, st.lists(POOL, max_size=2), ADAPTERS)
def test_every_manifest_gets_a_command(
    model: str, engine: Any, hardware: Any, pools: list[Any], adapters: list[Any]
) -> None:
    named = [pool | {"name": f"p{index}"} for index, pool in enumerate(pools)]
    spec = DeploymentSpec.model_validate(
        {
            "model": {"id": model, "loraAdapters": adapters},
            "engine": engine,
            "hardware": hardware,
            "pools": named,
        }
    )
    for pool in pools_of(spec):
        command = engine_command(spec, pool)
        extra = list(pool.engine.extra_args)
        assert command == engine_command(spec, pool)
        assert command.words()[len(command.words()) - len(extra) :] == extra
        derived = [a for a in command.arguments if not a.origin.startswith("spec.")]
        assert len({a.flag for a in derived}) == len(derived)
        ours = command.words()[: len(command.words()) - len(extra)]
        assert [a.words for a in read_words(ours, str)] == [a.words for a in command.arguments][
            : len(read_words(ours, str))
        ]
        choice = choose(spec, pool)
        assert effective(command, choice.model, choice.gpu, choice.version).gpus >= 1
        assert choice.parallel.world >= 1
        assert worker_command(spec, pool).words()
