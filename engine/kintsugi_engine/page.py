"""Reading a `/metrics` page for the helpers: sums by name, over all ranks. Standard library only."""

import math
import urllib.request
from collections.abc import Iterable
from typing import Final

RUNNING: Final = "vllm:num_requests_running"
WAITING: Final = "vllm:num_requests_waiting"
STEPS: Final = "vllm:iteration_tokens_total_count"


def sums(text: str, names: Iterable[str]) -> dict[str, float]:
    """The sum of each name's series; a name that is missing, or has no number, is left out."""
    wanted, found = set(names), dict[str, float]()
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        series, _, number = line.rpartition(" ")
        name = series.partition("{")[0]
        if name in wanted:
            try:
                value = float(number)
            except ValueError:
                continue
            if math.isfinite(value):
                found[name] = found.get(name, 0.0) + value
    return found


def fetch(url: str, timeout: float) -> str:
    """The text at a URL. Raises OSError where there is none."""
    with urllib.request.urlopen(url, timeout=timeout) as answer:
        return str(answer.read().decode("utf-8", "replace"))
