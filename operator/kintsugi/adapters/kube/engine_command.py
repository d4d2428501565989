"""What a running pod's own command tells of its engine. Parsed once for each command."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from kubernetes.utils.quantity import parse_quantity

from kintsugi.core.catalog.load import in_force
from kintsugi.core.command.argument import Command
from kintsugi.core.command.number import share, whole
from kintsugi.core.command.offload import GIB, SIZE, connector_bytes
from kintsugi.core.command.read import read_words
from kintsugi.core.pod.seconds import engines
from kintsugi.core.snapshot import LONGEST_PROMPT

MOST_TOKENS: Final = 16_777_216
"""As `maxModelLen` may say at most."""


@dataclass(frozen=True, slots=True)
class Said:
    """What an engine's command says; None where it leaves it to the engine."""

    model: str | None
    """The first name that it serves the model under."""
    max_num_seqs: int | None
    chunked_prefill: bool
    offload: float
    """Bytes of host memory for KV cache, of all engines in the pod."""
    longest_prompt: int
    """Tokens: `--max-model-len`, else the model's own context, else `LONGEST_PROMPT`."""


def said_of(spec: Mapping[str, Any]) -> Said:
    """What the command of a pod's engine says; the last word on a flag counts, as in the engine."""
    container = next((each for each in engines({"spec": spec})), {})
    return _said(tuple(str(word) for key in ("command", "args") for word in container.get(key) or ()))


@lru_cache(maxsize=256)
def _said(words: tuple[str, ...]) -> Said:
    command = Command(read_words(words, str))
    served = command.get("--served-model-name") or command.get("--model")
    limit = command.get("--max-num-seqs")
    number = whole(limit.value) if limit else None
    return Said(
        model=served.values[0] if served and served.values else None,
        max_num_seqs=number if number and number > 0 else None,
        chunked_prefill=command.on("--enable-chunked-prefill", True),
        offload=_offload(command),
        longest_prompt=_longest_prompt(command),
    )


def _longest_prompt(command: Command) -> int:
    written = _count(command, "--max-model-len")
    if written and written > 0:
        return min(written, MOST_TOKENS)
    said = [command.get(flag) for flag in ("--model", "--served-model-name")]
    models = [in_force().model(name) for each in said if each for name in each.values]
    return max((model.max_context for model in models if model), default=LONGEST_PROMPT)


def _offload(command: Command) -> float:
    engines = _count(command, "--data-parallel-size-local") or _count(command, "--data-parallel-size") or 1
    ranks = (_count(command, "--tensor-parallel-size") or 1) * (
        _count(command, "--pipeline-parallel-size") or 1
    )
    size = command.get(SIZE)
    given = share(size.value) if size else None
    each = given * GIB if given else connector_bytes(command.arguments, ranks)
    return float(each * engines)


def _count(command: Command, flag: str) -> int | None:
    found = command.get(flag)
    return whole(found.value) if found else None


@lru_cache(maxsize=256)
def bytes_of(written: int | str) -> float | None:
    """A quantity of memory, as Kubernetes writes it; None where there is none."""
    try:
        found = float(parse_quantity(written))
    except ValueError:
        return None
    return found if 0.0 < found < float("inf") else None
