"""Runs of `vllm bench serve`, the load tool that vLLM itself is measured with."""

import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import click

from kintsugi.core.bench import order
from kintsugi.core.names import ENGINE_PORT

KEPT: Final = (
    "duration", "completed", "failed", "total_input_tokens", "total_output_tokens", "request_throughput",
    "output_throughput", "total_token_throughput",
)  # fmt: skip
"""Of a run's result, beside the percentiles; lists of every single request are left out."""
_PERCENTILE: Final = re.compile(r"(mean|median|std|p\d+)_(ttft|itl|e2el)_ms")
_POOL: Final = re.compile(r"([a-z0-9-]+)/([a-z0-9.-]+)/([a-z0-9-]+)")

Run = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Target:
    """One engine, or the Service of a pool."""

    name: str
    url: str


@dataclass(frozen=True, slots=True)
class Load:
    """The load of one run; lengths in tokens, `rate` in requests a second (None: as fast as `concurrency` allows)."""

    model: str
    tokenizer: str
    requests: int
    concurrency: int
    rate: float | None
    prompt: int
    answer: int
    seed: int

    def told(self) -> dict[str, Any]:
        """For a report."""
        return asdict(self)


def target_of(text: str) -> Target | None:
    """What a person wrote, None where it is no target."""
    name, equals, url = text.partition("=")
    if not equals or "://" in name:
        name, url = text, text
    if re.match(r"https?://[^/\s]+", url):
        return Target(name, url.rstrip("/").removesuffix("/v1"))
    if pool := _POOL.fullmatch(text):
        namespace, deployment, of = pool.groups()
        return Target(text, f"http://{deployment}-{of}.{namespace}:{ENGINE_PORT}")
    return None


def run_pairs(
    tool: Sequence[str], targets: tuple[Target, Target], load: Load, pairs: int, say: Callable[[str], None]
) -> tuple[list[Run], list[Run]]:
    """The results of both targets, by pair. Raises ClickException where the tool is missing or a run fails."""
    if shutil.which(tool[0]) is None:
        raise click.ClickException(
            f"{tool[0]} is not installed here: run this where vLLM is (its image has it), or name the command with --tool"
        )
    found: tuple[dict[int, Run], dict[int, Run]] = ({}, {})
    for pair, which in order(pairs):
        say(f"pair {pair + 1} of {pairs}: {targets[which].name}")
        found[which][pair] = run_once(tool, targets[which], load, load.seed + pair)
    return [found[0][pair] for pair in range(pairs)], [found[1][pair] for pair in range(pairs)]


def run_once(tool: Sequence[str], target: Target, load: Load, seed: int) -> Run:
    """One run. Raises ClickException with the tool's last words, or where no request was answered."""
    with tempfile.TemporaryDirectory(prefix="kintsugi-bench-") as folder:
        words = [*tool, "bench", "serve", *arguments(target, load, seed, Path(folder))]
        done = subprocess.run(words, check=False, capture_output=True, text=True)
        result = Path(folder) / "result.json"
        if done.returncode or not result.exists():
            said = (done.stderr or done.stdout).strip().splitlines()[-8:]
            raise click.ClickException(f"{target.name}: the load tool failed:\n" + "\n".join(said))
        run: Run = json.loads(result.read_text())
    if not run.get("completed"):
        why = next((error for error in run.get("errors") or () if error), "no reason was given")
        raise click.ClickException(
            f"{target.name}: none of {load.requests} requests was answered: {why[:300]}"
        )
    return {key: value for key, value in run.items() if key in KEPT or _PERCENTILE.fullmatch(key)}


def arguments(target: Target, load: Load, seed: int, folder: Path) -> list[str]:
    """The tool's arguments for one run."""
    return [
        *("--backend", "openai", "--base-url", target.url, "--endpoint", "/v1/completions"),
        *("--model", load.model, "--tokenizer", load.tokenizer, "--served-model-name", load.model),
        *("--dataset-name", "random", "--random-input-len", str(load.prompt)),
        *("--random-output-len", str(load.answer), "--num-prompts", str(load.requests)),
        *("--max-concurrency", str(load.concurrency), "--request-rate", str(load.rate or "inf")),
        *("--ignore-eos", "--temperature", "0", "--seed", str(seed), "--num-warmups", str(load.concurrency)),
        *("--percentile-metrics", "ttft,itl,e2el", "--metric-percentiles", "50,99", "--disable-tqdm"),
        *("--save-result", "--save-detailed"),
        *("--result-dir", str(folder), "--result-filename", "result.json"),
    ]
