"""The engine's command for one pool: recipe, profile and typed arguments; the user's own words last."""

import json
from typing import Final

from kintsugi.api.effective import Pool
from kintsugi.api.spec import DeploymentSpec, EngineArgs, LoraAdapter
from kintsugi.core.catalog.catalog import Catalog
from kintsugi.core.command import offload, speculative
from kintsugi.core.command.argument import Argument, Command
from kintsugi.core.command.choice import DATA, EXPERT, PARALLEL, PIPELINE, TENSOR, Choice, choose
from kintsugi.core.command.number import whole
from kintsugi.core.command.origin import Origins
from kintsugi.core.command.sheet import Sheet
from kintsugi.core.names import ENGINE_PORT

RECIPE: Final = "recipe"
PROFILE: Final = "profile"
MODEL: Final = "model"
DEFAULT: Final = "default"
OPERATOR: Final = frozenset({RECIPE, PROFILE, MODEL, DEFAULT})
"""Origins that nobody wrote: where `extraArgs` say the same flag, only the user's words remain."""

PROFILE_SEQUENCES: Final = {"HighThroughput": 64, "LongContext": 16}
"""`--max-num-seqs` by profile (design §2, article A16); Balanced leaves the recipe or the engine's own default."""
QUEUE_FACTOR: Final = {"HighThroughput": 4, "LongContext": 2}
"""Requests in flight, running and waiting, per sequence that may run: the fuse of article A4. Assumed: three turns of
short requests are worth waiting for, and one of long ones, whose prefill takes minutes."""
QUEUE_FLAG: Final = "--max-num-queued-reqs"
"""Limit over all data parallel ranks; more are answered 503 (https://github.com/vllm-project/vllm/pull/49445)."""
SHUTDOWN_FLAG: Final = "--shutdown-timeout"
"""Without it, vLLM aborts what runs when it is told to end."""

GROUP_FLAGS: Final = frozenset(
    {
        "--data-parallel-address",
        "--data-parallel-external-lb",
        "--data-parallel-hybrid-lb",
        "--data-parallel-multi-port-external-lb",
        "--data-parallel-rank",
        "--data-parallel-start-rank",
        "--headless",
        "--nnodes",
        "--node-rank",
    }
)
"""Where a user says one of these, the user joins the nodes: two ways at once would contradict each other."""
LEADER_ADDRESS: Final = "$(LWS_LEADER_ADDRESS)"
WORKER_INDEX: Final = "$(LWS_WORKER_INDEX)"
"""Variables that LeaderWorkerSet sets in every container of a group; Kubernetes fills them in."""

TYPED: Final = (
    "block_size",
    "kv_cache_dtype",
    "max_model_len",
    "max_num_seqs",
    "max_num_batched_tokens",
    "gpu_memory_utilization",
    "moe_backend",
    "tokenizer_mode",
    "tool_call_parser",
    "reasoning_parser",
    "chat_template",
)
SWITCHES: Final = ("enforce_eager", "enable_prefix_caching", "enable_chunked_prefill")
NATIVE_TYPED: Final = ("max_model_len", "max_num_seqs")
"""What the native runtime has flags for."""


def model_path(spec: DeploymentSpec) -> str:
    """Where the engine finds the weights: a path in the container, or the hub's id."""
    source = spec.model.source
    if source and source.pvc:
        return "/models" + (f"/{source.pvc.sub_path.strip('/')}" if source.pvc.sub_path else "")
    if source and source.image:
        return "/models"
    return spec.model.id


def served_names(spec: DeploymentSpec) -> tuple[str, ...]:
    """Names that clients may use in `model`."""
    return spec.model.served_names or (spec.model.id,)


def engine_command(spec: DeploymentSpec, pool: Pool, catalog: Catalog | None = None) -> Command:
    """The command of an instance, or of the leader where an instance has several nodes.

    `extraArgs` come last, byte for byte. A flag that they say is left out where only the operator would say it.
    """
    choice = choose(spec, pool, catalog)
    if pool.engine.runtime == "Native":
        return _native(spec, pool, choice)
    return _command(spec, pool, choice, "0")


def worker_command(spec: DeploymentSpec, pool: Pool, catalog: Catalog | None = None) -> Command:
    """The command of every node of an instance but the leader's: no API server, joined to the leader."""
    return _command(spec, pool, choose(spec, pool, catalog), WORKER_INDEX)


def _command(spec: DeploymentSpec, pool: Pool, choice: Choice, node: str) -> Command:
    sheet = Sheet()
    args = pool.engine.args or EngineArgs()
    origins = Origins.of(spec, pool)
    _identity(sheet, spec)
    _parallel(sheet, choice, args, origins)
    _facts(sheet, choice)
    _profile(sheet, pool)
    _typed(sheet, pool, args, origins, TYPED)
    _parsers(sheet)
    _lora(sheet, spec.model.lora_adapters)
    _drafting(sheet, args, choice, origins)
    _offload(sheet, pool, choice, origins)
    _queue(sheet, pool, choice)
    if choice.understood(SHUTDOWN_FLAG):
        sheet.say(SHUTDOWN_FLAG, str(spec.healing.drain.timeout_seconds), DEFAULT)
    if choice.parallel.nodes > 1 and not any(_runs_group(argument) for argument in choice.extra):
        _group(sheet, choice, node)
    return Command((*sheet.without(choice.extra, OPERATOR), *choice.extra))


def _native(spec: DeploymentSpec, pool: Pool, choice: Choice) -> Command:
    sheet = Sheet()
    _identity(sheet, spec)
    _profile(sheet, pool)
    _typed(sheet, pool, pool.engine.args or EngineArgs(), Origins.of(spec, pool), NATIVE_TYPED)
    return Command((*sheet.without(choice.extra, OPERATOR), *choice.extra))


def _identity(sheet: Sheet, spec: DeploymentSpec) -> None:
    source = spec.model.source
    fetched = source is None or not (source.pvc or source.image)
    sheet.say("--model", model_path(spec), "spec.model.id" if fetched else "spec.model.source")
    sheet.say(
        "--served-model-name",
        served_names(spec),
        "spec.model.servedNames" if spec.model.served_names else MODEL,
    )
    if spec.model.revision:
        sheet.say("--revision", spec.model.revision, "spec.model.revision")
    sheet.say("--port", str(ENGINE_PORT), DEFAULT)


def _parallel(sheet: Sheet, choice: Choice, args: EngineArgs, origins: Origins) -> None:
    sizes = choice.parallel
    derived = RECIPE if choice.recipe else DEFAULT
    for flag, size in ((TENSOR, sizes.tensor), (PIPELINE, sizes.pipeline), (DATA, sizes.data)):
        name = flag[2:].replace("-", "_")
        said = getattr(args, name)
        if said is not None:
            sheet.say(flag, str(said), origins.path("engine", "args", name))
        elif sizes.total and (size > 1 or flag == TENSOR):
            sheet.say(flag, str(size), derived)
    if args.enable_expert_parallel is not None:
        path = origins.path("engine", "args", "enable_expert_parallel")
        sheet.say(EXPERT if args.enable_expert_parallel else "--no-enable-expert-parallel", None, path)
    elif choice.recipe and (EXPERT, None) in choice.recipe.args and sizes.world > 1:
        sheet.say(EXPERT, None, RECIPE)


def _facts(sheet: Sheet, choice: Choice) -> None:
    """What the checkpoint needs wherever it runs, and what the recipe adds for this hardware and version."""
    if model := choice.model:
        if len(model.block_sizes) == 1:
            sheet.say("--block-size", str(model.block_sizes[0]), MODEL)
        if model.kv_cache_dtypes:
            sheet.say("--kv-cache-dtype", model.kv_cache_dtypes[0], MODEL)
        for flag, value in (
            ("--tokenizer-mode", model.tokenizer_mode),
            ("--tool-call-parser", model.tool_call_parser),
            ("--reasoning-parser", model.reasoning_parser),
        ):
            if value:
                sheet.say(flag, value, MODEL)
    if recipe := choice.recipe:
        for flag, value in recipe.args:
            name = "--" + flag.removeprefix("--no-").removeprefix("--")
            if name not in PARALLEL and choice.understood(name):
                sheet.say(flag, value, RECIPE)
        if recipe.safe_context and sheet.get("--max-model-len") is None:
            sheet.say("--max-model-len", str(recipe.safe_context), RECIPE)


def _profile(sheet: Sheet, pool: Pool) -> None:
    if pool.profile in PROFILE_SEQUENCES:
        sheet.say("--max-num-seqs", str(PROFILE_SEQUENCES[pool.profile]), PROFILE)


def _typed(sheet: Sheet, pool: Pool, args: EngineArgs, origins: Origins, names: tuple[str, ...]) -> None:
    """What the user typed; an empty text takes the flag away, whatever the model or the recipe say."""
    if pool.max_tokens:
        sheet.say("--max-model-len", str(pool.max_tokens), origins.of_pool("context", "max_tokens"))
    for name in names:
        value, flag = getattr(args, name), "--" + name.replace("_", "-")
        if value == "":
            sheet.drop(flag)
        elif value is not None:
            sheet.say(flag, str(value), origins.path("engine", "args", name))
    for name in SWITCHES if names is TYPED else ():
        if (value := getattr(args, name)) is not None:
            flag = name.replace("_", "-")
            sheet.say(f"--{flag}" if value else f"--no-{flag}", None, origins.path("engine", "args", name))


def _parsers(sheet: Sheet) -> None:
    """A tool parser is only used where the model may choose tools by itself, which in turn needs the parser."""
    parser = sheet.get("--tool-call-parser")
    if parser is None:
        sheet.drop("--enable-auto-tool-choice")
    elif sheet.get("--enable-auto-tool-choice") is None:
        sheet.say("--enable-auto-tool-choice", None, MODEL)


def _lora(sheet: Sheet, adapters: tuple[LoraAdapter, ...]) -> None:
    if adapters:
        sheet.say("--enable-lora", None, "spec.model.loraAdapters")
        sheet.say("--lora-modules", [_adapter(each) for each in adapters], "spec.model.loraAdapters")


def _adapter(adapter: LoraAdapter) -> str:
    """`name=path`, or JSON where the engine would split that at the wrong place."""
    plain = f"{adapter.name}={adapter.path}"
    if plain.count("=") == 1 and "," not in plain and not plain.startswith(("-", "{")):
        return plain
    return json.dumps({"name": adapter.name, "path": adapter.path})


def _drafting(sheet: Sheet, args: EngineArgs, choice: Choice, origins: Origins) -> None:
    sheet.drop(speculative.FLAG)
    if config := speculative.speculative_config(args.speculative, choice):
        said = args.speculative is not None
        sheet.say(speculative.FLAG, config, origins.path("engine", "args", "speculative") if said else RECIPE)


def _offload(sheet: Sheet, pool: Pool, choice: Choice, origins: Origins) -> None:
    size = offload.wanted_bytes(pool)
    said = pool.engine.kv_offload is not None
    # A connector needs GPUs: what is only a profile's wish is left out of a trial on the CPU.
    if not size or offload.rival(choice.extra) or (not said and choice.parallel.gpus == 0):
        return
    origin = origins.path("engine", "kv_offload", "host_memory_per_engine") if said else PROFILE
    flag, value = offload.offload_argument(size, choice.understood(offload.SIZE))
    sheet.say(flag, value, origin)
    sheet.say(offload.HYBRID, None, DEFAULT)


def _queue(sheet: Sheet, pool: Pool, choice: Choice) -> None:
    own = [argument for argument in choice.extra if argument.flag == "--max-num-seqs"]
    said = own[-1] if own else sheet.get("--max-num-seqs")
    sequences = whole(said.value) if said else None
    if pool.profile in QUEUE_FACTOR and sequences and sequences > 0 and choice.understood(QUEUE_FLAG):
        limit = sequences * choice.parallel.data * QUEUE_FACTOR[pool.profile]
        sheet.say(QUEUE_FLAG, str(limit), PROFILE)


def _runs_group(argument: Argument) -> bool:
    """Whether the user's own argument ties the nodes of an instance together."""
    ray = argument.flag == "--distributed-executor-backend" and argument.value == "ray"
    return ray or argument.flag in GROUP_FLAGS


def _group(sheet: Sheet, choice: Choice, node: str) -> None:
    """Several nodes: one API server on the leader that balances over all ranks, headless engines on the others."""
    sheet.say("--nnodes", str(choice.parallel.nodes), DEFAULT)
    sheet.say("--node-rank", node, DEFAULT)
    sheet.say("--master-addr", LEADER_ADDRESS, DEFAULT)
    if choice.parallel.data > 1:
        sheet.say("--data-parallel-address", LEADER_ADDRESS, DEFAULT)
    if node == WORKER_INDEX:
        sheet.say("--headless", None, DEFAULT)
