"""The same setting twice (S07). The engine takes the last one in silence."""

import json
from collections.abc import Iterator
from typing import Final

from kintsugi.core.command import offload
from kintsugi.core.command.argument import Argument
from kintsugi.core.command.flags import root_of
from kintsugi.core.command.number import whole
from kintsugi.core.command.read import POSITIONAL
from kintsugi.core.preflight.rule import Rule, Said, example
from kintsugi.core.preflight.rules.gpus import hardware
from kintsugi.core.preflight.view import PoolView, View, by_a_person

_REPEATABLE: Final = frozenset({POSITIONAL, "--middleware", "--lora-modules", "--logits-processors"})
"""Flags that gather what they are given, and words that belong to none."""
SECRET_FLAGS: Final = frozenset({"--api-key", "--hf-token", "--ssl-keyfile-password"})
"""Flags whose values are never shown."""


def _pairs(pool: PoolView) -> Iterator[tuple[Argument, Argument]]:
    """Arguments that a person wrote, each with the one before that says the same flag."""
    seen: dict[str, Argument] = {}
    for argument in pool.command.arguments:
        if not by_a_person(argument) or argument.flag in _REPEATABLE or ".context." in argument.origin:
            continue
        before = seen.get(argument.flag)
        if before is not None:
            yield before, argument
        seen[argument.flag] = argument


def _conflicts(view: View) -> Iterator[Said]:
    for pool in view.pools:
        for before, after in _pairs(pool):
            if _meaning(before) != _meaning(after):
                yield Said(
                    after.origin,
                    f"gives {after.flag[:80]} {_shown(after)}, and {before.origin} gives {_shown(before)}: the engine would "
                    "take the last one in silence",
                    f"keep one of {before.origin} and {after.origin}",
                )
        yield from _two_offloads(pool)


def _doubles(view: View) -> Iterator[Said]:
    for pool in view.pools:
        for before, after in _pairs(pool):
            if _meaning(before) == _meaning(after):
                yield Said(
                    after.origin,
                    f"gives {after.flag[:80]} {_shown(after)}, which {before.origin} says already",
                    f"remove {after.origin}, so that the next change is made in one place",
                )


def _two_offloads(pool: PoolView) -> Iterator[Said]:
    rival = offload.rival(pool.choice.extra)
    if rival is not None and pool.pool.engine.kv_offload is not None:
        path = pool.path("engine.kvOffload")
        yield Said(
            rival.origin,
            f"names a connector of its own ({offload.TRANSFER}), and {path} asks for the engine's: only one can be used, "
            f"and {path} has no effect",
            f"keep one of {path} and {rival.origin}",
        )


def _mixed(view: View) -> Iterator[Said]:
    for pool in view.pools:
        whole_ones: dict[str, Argument] = {}
        for argument in pool.command.arguments:
            root = root_of(argument.flag)
            if not by_a_person(argument):
                continue
            if argument.flag == root:
                whole_ones[root] = argument
            elif root in whole_ones:
                yield Said(
                    argument.origin,
                    f"gives {argument.flag[:80]}, and {whole_ones[root].origin} gives {root} as JSON: the engine drops one of "
                    "the two forms",
                    f"write it inside the JSON of {whole_ones[root].origin}, or everything with dots",
                )


def _meaning(argument: Argument) -> object:
    """What the engine reads: `8k` is 8000, `True` is `true`, JSON is compared by content."""
    if len(argument.values) > 1:
        return argument.values
    text = argument.value
    if text is None:
        return "true"
    number = whole(text)
    if number is not None:
        return number
    try:
        return json.dumps(json.loads(text), sort_keys=True)
    except (ValueError, RecursionError):  # plain words
        return text.strip().lower() if text.strip().lower() in ("true", "false") else text


def _shown(argument: Argument) -> str:
    """The value for a message: never a secret, never a page."""
    if argument.flag in SECRET_FLAGS:
        return "(hidden)"
    return " ".join(argument.values)[:60] or "true"


RULES: Final = (
    Rule(
        name="ConflictingArguments",
        severity="Error",
        summary="Two fields give the engine different values for one setting.",
        why="argparse takes the last word in silence, so that capacity, router and dashboards may go by another "
        "number than the engine. Underscores are dashes, --a=b is --a b, and -tp is --tensor-parallel-size.",
        sources=(
            "https://github.com/vllm-project/production-stack/blob/main/helm/templates/deployment-vllm-multi.yaml",
        ),
        check=_conflicts,
        good=(
            example(engine={"args": {"maxModelLen": 131072}, "extraArgs": ["--max_num_seqs=64"]}),
            example(
                engine={"args": {"maxModelLen": 131072}},
                pools=[{"name": "a", "context": {"maxTokens": 8192}}],
            ),
        ),
        bad=(
            example(
                hardware=hardware("H200", 8),
                engine={"args": {"maxModelLen": 131072}, "extraArgs": ["--max_model_len=262144", "-tp", "8"]},
            ),
            example(engine={"extraArgs": ["--max-num-seqs", "64", "--max_num_seqs=32"]}),
            example(
                engine={"args": {"enablePrefixCaching": True}, "extraArgs": ["--no-enable-prefix-caching"]}
            ),
            example(
                engine={
                    "kvOffload": {"hostMemoryPerEngine": "32Gi"},
                    "extraArgs": [
                        "--kv-transfer-config",
                        '{"kv_connector": "LMCacheMPConnector", "kv_role": "kv_both"}',
                    ],
                }
            ),
        ),
    ),
    Rule(
        name="DuplicateArgument",
        severity="Warning",
        summary="Two fields give the engine the same value for one setting.",
        why="Right today; the next change is made in one of them.",
        sources=(
            "https://github.com/vllm-project/production-stack/blob/main/helm/templates/deployment-vllm-multi.yaml",
        ),
        check=_doubles,
        good=(example(engine={"args": {"tensorParallelSize": 4}}),),
        bad=(
            example(engine={"args": {"tensorParallelSize": 4}, "extraArgs": ["--tensor_parallel_size=4"]}),
            example(engine={"args": {"maxModelLen": 8000}, "extraArgs": ["--max-model-len", "8k"]}),
        ),
    ),
    Rule(
        name="MixedJsonForms",
        severity="Warning",
        summary="A JSON flag is given whole and with dots.",
        why="vLLM gathers dotted flags into one object, which replaces the JSON of the same flag.",
        sources=("https://github.com/vllm-project/vllm/blob/main/vllm/utils/argparse_utils.py",),
        check=_mixed,
        good=(
            example(
                engine={
                    "extraArgs": ["--compilation-config.mode=3", "--compilation-config.cudagraph_mode=NONE"]
                }
            ),
        ),
        bad=(
            example(
                engine={
                    "extraArgs": [
                        "--compilation-config",
                        '{"mode": 3}',
                        "--compilation-config.cudagraph_mode=NONE",
                    ]
                }
            ),
        ),
    ),
)
