"""Entry points of one's own: whether the arguments reach the engine (Part B's shell wrappers)."""

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Final

from kintsugi.core.preflight.rule import Rule, Said, example
from kintsugi.core.preflight.view import PoolView, View

_SHELLS: Final = ("sh", "bash", "dash", "ash", "ksh", "zsh")
_PASSED: Final = ('"$@"', "$@", "$*", "${@", "$1")


def _script(pool: PoolView) -> tuple[int, str] | None:
    """The script of a shell's `-c` in `engine.command`, and its place; None where there is none."""
    words = pool.pool.engine.command
    if not words or PurePosixPath(words[0] or "-").name not in _SHELLS:
        return None
    for index, word in enumerate(words[1:], 1):
        if (
            word.startswith("-")
            and not word.startswith("--")
            and word.endswith("c")
            and index + 1 < len(words)
        ):
            return index + 1, words[index + 1]
    return None


def _wrapper(view: View) -> Iterator[Said]:
    for pool in view.pools:
        found = _script(pool)
        if found is None:
            continue
        index, script = found
        at = f"{pool.path('engine.command')}[{index}]"
        if not any(mark in script for mark in _PASSED):
            yield Said(
                at,
                'does not pass its arguments on ("$@"): the engine gets none of what this object says, and none of it is '
                "checked",
                'end the script with exec vllm serve "$@"',
                "Warning",
            )
        elif index == len(pool.pool.engine.command) - 1:
            yield Said(
                at,
                "is the last word, so that the shell takes the first argument that follows for its own name ($0), and the "
                "engine never sees it",
                "write one more word after the script, such as --",
            )


RULES: Final = (
    Rule(
        name="WrapperArguments",
        severity="Error",
        summary="A shell wrapper loses arguments of the engine.",
        why="The operator appends the engine's arguments to engine.command. A shell hands them to its script as $@, and counts "
        "the first word after the script as $0.",
        sources=("https://pubs.opengroup.org/onlinepubs/9799919799/utilities/sh.html",),
        check=_wrapper,
        good=(
            example(
                engine={"command": ["/bin/bash", "-c", 'ulimit -l unlimited; exec vllm serve "$@"', "--"]}
            ),
            example(engine={"command": ["python3", "-m", "vllm.entrypoints.openai.api_server"]}),
        ),
        bad=(
            example(engine={"command": ["/bin/sh", "-ec", 'exec vllm serve "$@"']}),
            example(engine={"command": ["bash", "-c", "vllm serve deepseek-ai/DeepSeek-V4-Flash", "--"]}),
        ),
    ),
)
