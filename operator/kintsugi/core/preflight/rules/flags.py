"""Flags of the command line: known to that version, and not the operator's own (S06, A8, A13)."""

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Final

from kintsugi.core.catalog.version import EngineVersion
from kintsugi.core.command.argument import Argument
from kintsugi.core.command.flags import root_of
from kintsugi.core.command.read import POSITIONAL
from kintsugi.core.names import ENGINE_PORT
from kintsugi.core.preflight.rule import Rule, Said, example
from kintsugi.core.preflight.rules.model import image
from kintsugi.core.preflight.view import PoolView, View

SWAP: Final = "--swap-space"
LOG_STATS: Final = "--disable-log-stats"
_FLASH: Final = "deepseek-ai/DeepSeek-V4-Flash"


def free_words(pool: PoolView) -> Iterator[Argument]:
    """The arguments that a person wrote as free words."""
    if pool.vllm:
        yield from (
            a for a in pool.command.arguments if a.origin.startswith("spec.") and "extraArgs" in a.origin
        )


def least_version(pool: PoolView) -> EngineVersion | None:
    """The engine's version; where it is not known, the oldest that could run the model; None where neither is."""
    return pool.version or (pool.model.min_engine if pool.model else None)


def _which(pool: PoolView) -> str:
    version = least_version(pool)
    if pool.version or version is None:
        return f"vLLM {version}" if version else "this engine"
    return f"vLLM {version}, the oldest that runs the model,"


def _removed(view: View) -> Iterator[Said]:
    for pool in view.pools:
        for argument in free_words(pool):
            root = root_of(argument.flag)
            gone = [c for c in view.catalog.flag_changes(root) if c.removed]
            if not gone or root == SWAP:
                continue
            change, version = gone[-1], least_version(pool)
            instead = f"instead: {change.replacement}" if change.replacement else "remove it"
            if version is None:
                text = f"gives {root}, which vLLM has no more since {change.removed}, and the engine's version is unknown"
                yield Said(argument.origin, text, instead, "Warning")
            elif change.removed and version >= change.removed:
                yield Said(
                    argument.origin,
                    f"gives {root}, which {_which(pool)} does not know (gone since {change.removed}): the engine "
                    "ends with 'unrecognized arguments'",
                    instead,
                )


def _too_new(view: View) -> Iterator[Said]:
    for pool in view.pools:
        for argument in free_words(pool):
            root = root_of(argument.flag)
            news = [c for c in view.catalog.flag_changes(root) if c.added]
            if news and pool.version and news[0].added and pool.version < news[0].added:
                yield Said(
                    argument.origin,
                    f"gives {root}, which vLLM knows since {news[0].added}, and the engine is {pool.version}: it ends with "
                    "'unrecognized arguments'",
                    f"use an image of vLLM {news[0].added} or later, or remove it",
                )


def _unknown(view: View) -> Iterator[Said]:
    for pool in view.pools:
        known = view.catalog.known_flags(pool.version) if pool.version else None
        if known is None:
            continue
        for argument in free_words(pool):
            root = root_of(argument.flag)
            if not root.startswith("-") or root in known or view.catalog.flag_changes(root) or root == "--":
                continue
            close = get_close_matches(root, sorted(known), n=1, cutoff=0.75)
            hint = f"; did you mean {close[0]}?" if close else ""
            yield Said(
                argument.origin,
                f"gives {root[:80]}, which vLLM {pool.version} does not know{hint}: the engine ends with 'unrecognized "
                "arguments'",
                f"write {close[0]}" if close else "remove it",
            )


def _stray(view: View) -> Iterator[Said]:
    for pool in view.pools:
        for argument in free_words(pool):
            if argument.flag != POSITIONAL:
                continue
            word = argument.words[0]
            if word == "--":
                continue
            two = word.startswith("-") and " " in word
            yield Said(
                argument.origin,
                f"is {word[:60]!r}, which belongs to no flag: "
                + (
                    "flag and value are one word here"
                    if two
                    else "the engine takes it for a second model, or refuses it"
                ),
                f"write two items, or {word.split()[0][:60]}=…"
                if two
                else "remove it, or put its flag before it",
            )


def _owned(view: View) -> Iterator[Said]:
    for pool in view.pools:
        for argument in free_words(pool):
            if argument.flag == "--port" and argument.value != str(ENGINE_PORT):
                yield Said(
                    argument.origin,
                    f"gives --port {(argument.value or '')[:20]}: probes, Services and the operator speak to port {ENGINE_PORT}",
                    "remove it",
                )
            elif argument.flag in ("--uds", "--grpc") and argument.value != "false":
                text = f"gives {argument.flag}: the engine would listen where nobody asks, and never be Ready"
                yield Said(argument.origin, text, "remove it")
            elif argument.flag == "--served-model-name" and not pool.spec.model.served_names:
                yield Said(
                    argument.origin,
                    "gives --served-model-name: the operator asks its questions by spec.model.servedNames, and would be "
                    "answered that the model does not exist",
                    "write the names in spec.model.servedNames",
                    "Warning",
                )
            elif argument.flag == "--headless" and pool.nodes == 1:
                text = "gives --headless: without an API server the pod is never Ready"
                yield Said(
                    argument.origin, text, "remove it: workers of several nodes get it from the operator"
                )
            elif argument.flag in ("--ssl-keyfile", "--ssl-certfile"):
                yield Said(
                    argument.origin,
                    f"gives {argument.flag}: the operator and its probes speak HTTP to the engine, and would see none Ready",
                    "end TLS at the router",
                )


def _log_stats(view: View) -> Iterator[Said]:
    for pool in view.pools:
        for argument in free_words(pool):
            if argument.flag == LOG_STATS and argument.value != "false":
                yield Said(
                    argument.origin,
                    "gives --disable-log-stats: no start gets faster, and every vllm: series goes, so that nothing can "
                    "tell a sick engine from a well one",
                    "remove it; a start gets faster by a model cache, a JIT cache volume and a warm-up",
                )


def _swap(view: View) -> Iterator[Said]:
    for pool in view.pools:
        for argument in free_words(pool):
            if argument.flag != SWAP:
                continue
            gone = next((c.removed for c in view.catalog.flag_changes(SWAP) if c.removed), None)
            cure = f"remove it and set {pool.path('engine.kvOffload.hostMemoryPerEngine')}"
            version = least_version(pool)
            if version and gone and version < gone:
                text = "gives --swap-space, which has no effect: vLLM computes a preempted request anew instead of swapping"
                yield Said(argument.origin, text, cure, "Warning")
            else:
                since = f" since {gone}" if gone else ""
                yield Said(
                    argument.origin,
                    f"gives --swap-space, which vLLM has no more{since}: the process exits 2 at once. (It took a number "
                    "of GiB, never '16G'.)",
                    cure,
                    None if version else "Warning",
                )


def _weights_offload(view: View) -> Iterator[Said]:
    for pool in view.pools:
        for argument in free_words(pool):
            if argument.flag == "--cpu-offload-gb" and argument.value not in ("0", None):
                yield Said(
                    argument.origin,
                    f"gives --cpu-offload-gb {(argument.value or '')[:20]}: that moves weights to host memory and reads "
                    "them back in every step; it gives the KV cache no second tier",
                    f"set {pool.path('engine.kvOffload.hostMemoryPerEngine')} for KV blocks",
                )


def _args(*words: str) -> dict[str, object]:
    return {"extraArgs": list(words)}


RULES: Final = (
    Rule(
        name="RemovedFlag",
        severity="Error",
        summary="A flag that this version of vLLM has no more.",
        why="Unknown flags are fatal at parsing; after an image bump every pod would crash-loop.",
        sources=(
            "https://github.com/kserve/kserve/pull/6037",
            "https://github.com/ai-dynamo/dynamo/pull/8693",
            "https://github.com/llm-d/llm-d-benchmark/pull/1572",
        ),
        claims=("A22",),
        check=_removed,
        good=(example(engine=image("v0.27.1") | _args("--enable-log-requests")),),
        bad=(
            example(engine=image("v0.27.1") | _args("--disable-log-requests")),
            example(engine=image("nightly") | _args("--disable_log_requests")),
        ),
    ),
    Rule(
        name="FlagTooNew",
        severity="Error",
        summary="A flag that this version of vLLM does not have yet.",
        why="The same end as a removed one; the queue limits, for instance, came with 0.29.",
        sources=("https://github.com/vllm-project/vllm/releases",),
        claims=("A4", "A22"),
        check=_too_new,
        good=(example(engine=image("v0.33.0") | _args("--max-num-queued-reqs", "256")),),
        bad=(example(engine=image("v0.27.1") | _args("--max-num-queued-reqs", "256")),),
    ),
    Rule(
        name="UnknownFlag",
        severity="Error",
        summary="A flag that this version of vLLM does not know.",
        why="The list of each version's flags is in the catalog; a typing error ends the engine at parsing.",
        sources=("https://docs.vllm.ai/en/latest/cli/serve.html",),
        check=_unknown,
        good=(
            example(engine=image("v0.33.0") | _args("--attention_config.use_fp4_indexer_cache=False")),
            example(engine=image("nightly") | _args("--max-model-lenght=1")),
        ),
        bad=(example(engine=image("v0.33.0") | _args("--max-model-lenght=8192")),),
    ),
    Rule(
        name="StrayWord",
        severity="Error",
        summary="A word among extraArgs that belongs to no flag.",
        why="Each item is one word of the command line: '--max-model-len 8192' as one item is no flag.",
        sources=(
            "https://kubernetes.io/docs/tasks/inject-data-application/define-command-argument-container/",
        ),
        check=_stray,
        good=(
            example(engine=_args("--max-model-len", "8192")),
            example(engine=_args("--max-model-len=8192")),
        ),
        bad=(
            example(engine=_args("--max-model-len 8192")),
            example(engine=_args("serve", "--max-model-len=8192")),
        ),
    ),
    Rule(
        name="OperatorFlag",
        severity="Error",
        summary="A flag that the operator needs for itself.",
        why="Probes, Services, scraping and drain all speak HTTP to one port.",
        sources=("https://docs.vllm.ai/en/latest/cli/serve.html",),
        check=_owned,
        good=(example(engine=_args("--port", "8000")), example(engine=_args("--root-path", "/llm"))),
        bad=(
            example(engine=_args("--port", "9000")),
            example(engine=_args("--headless")),
            example(engine=_args("--served-model-name", "chat")),
            example(engine=_args("--ssl-certfile=/tls/tls.crt")),
        ),
    ),
    Rule(
        name="LogStatsDisabled",
        severity="Error",
        summary="The engine's metrics are switched off.",
        why="--disable-log-stats does not touch the start; it removes all vllm: series. (A hit rate comes from "
        "vllm:prefix_cache_hits and _queries; vllm:block_manager_metrics never existed.)",
        sources=("https://github.com/vllm-project/vllm/blob/main/vllm/v1/engine/async_llm.py",),
        claims=("A8", "A9", "A20"),
        check=_log_stats,
        good=(example(),),
        bad=(
            example(engine=_args("--disable-log-stats")),
            example(engine=_args("--disable_log_stats")),
            example(pools=[{"name": "a"}, {"name": "b", "engine": _args("--disable-log-stats")}]),
        ),
    ),
    Rule(
        name="SwapSpace",
        severity="Error",
        summary="--swap-space, which is gone.",
        why="Removed from vLLM in March 2026 (#36216): preempted requests are computed anew. KV blocks in host memory are "
        "engine.kvOffload, written for the engine's version.",
        sources=("https://github.com/vllm-project/vllm/pull/36216",),
        claims=("A13", "A16"),
        check=_swap,
        good=(example(engine={"kvOffload": {"hostMemoryPerEngine": "32Gi"}}),),
        bad=(example(engine=_args("--swap-space", "16G")), example(engine=_args("--swap_space=16"))),
    ),
    Rule(
        name="CpuOffloadOfWeights",
        severity="Warning",
        summary="--cpu-offload-gb moves weights, not KV blocks.",
        why="Often meant as a cure for a full KV cache; it costs a transfer of weights in every step.",
        sources=("https://docs.vllm.ai/en/latest/configuration/engine_args.html",),
        claims=("A13",),
        check=_weights_offload,
        good=(example(engine={"kvOffload": {"hostMemoryPerEngine": "32Gi"}}),),
        bad=(example(engine=_args("--cpu-offload-gb", "64")),),
    ),
)
