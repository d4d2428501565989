"""`kintsugi backtest`: what a policy would have done to a history, before it may do anything. It changes nothing."""

import heapq
import json
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console
from rich.progress import Progress

from kintsugi.api.effective import pools_of
from kintsugi.api.fields import unknown_field_problems
from kintsugi.api.objects import DeepSeekV4Deployment, SpecInvalid, parse_deployment
from kintsugi.cli.backtest_source import bounds, refuse_options_of_prometheus, scraped
from kintsugi.cli.manifests import Unreadable, documents
from kintsugi.cli.recordfile import RecordFile
from kintsugi.core.advisor.saved import SavedInvalid, SavedPage
from kintsugi.core.backtest.completion import completed
from kintsugi.core.backtest.moments import in_order, spacing
from kintsugi.core.backtest.observation import Observed, observed
from kintsugi.core.backtest.replay import Replay, Terms, Unusable, replay
from kintsugi.core.backtest.report import report
from kintsugi.core.backtest.scraped import Ambiguous
from kintsugi.core.names import DEPLOYMENT_KIND
from kintsugi.core.preflight.plain import fault_of
from kintsugi.ports.errors import PortError
from kintsugi.runtime.observe import pause_reasons

_UNITS: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
LONGEST_SECONDS: Final = 10 * 366 * 86400.0
SLACK_SECONDS: Final = 60.0
"""Looks that stand so much too late in a file are still put in their place."""


class Failed(click.ClickException):
    """What was given can't be used."""

    exit_code = 2


def duration(text: str | float) -> float:
    """Seconds of `90`, `90s`, `15m`, `12h`, `7d` or `2w`."""
    written = str(text).strip()
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw]?)", written)
    if found is None or float(found[1]) <= 0:
        raise click.BadParameter(f"{written[:40]!r} is no duration, such as 90s, 15m, 12h or 7d")
    seconds = float(found[1]) * _UNITS[found[2] or "s"]
    if seconds > LONGEST_SECONDS:
        raise click.BadParameter(f"{written[:40]!r} is more than ten years")
    return seconds


def instant(text: str | datetime) -> datetime:
    """A moment with its time zone, as in 2026-11-29T12:00:00Z."""
    try:
        found = text if isinstance(text, datetime) else datetime.fromisoformat(text)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise click.BadParameter(f"{text!r} is no time with its zone, such as 2026-11-29T12:00:00Z")
    return found


@click.command()
@click.option(
    "-f",
    "--file",
    "manifest",
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The deployment whose healing settings are tried.",
)
@click.option(
    "--from",
    "sources",
    multiple=True,
    type=click.Path(exists=True, path_type=Path),
    help="Recorded pages (a file or a folder); may be repeated.",
)
@click.option("--prometheus", help="URL of a Prometheus server. Default without --from: the manifest's own.")
@click.option("--since", type=duration, default="1h", show_default=True, help="How far back, before --until.")
@click.option("--until", type=instant, help="End of the history. Default: now.")
@click.option("--step", type=duration, help="Look no more often than this. Default: as often as was scraped.")
@click.option(
    "-n", "--namespace", help="Namespace of the engines in Prometheus. Default: the manifest's own."
)
@click.option("--selector", help='Label matchers in place of pods named after the deployment: app="vllm".')
@click.option(
    "--token-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Bearer token for Prometheus.",
)
@click.option(
    "--start", type=duration, default="10m", show_default=True, help="What a replacement's start would take."
)
@click.option(
    "--free-gpu/--no-free-gpu", default=True, help="Whether a replacement finds room. Default: it does."
)
@click.option(
    "--infer-canaries/--no-infer-canaries",
    "infer",
    default=True,
    help="Whether an engine with work and no step counts as one that answers no canary. Default: it does.",
)
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
@click.option(
    "--plot", type=click.Path(dir_okay=False, path_type=Path), help="Draw the timeline to this .png or .svg."
)
def backtest(manifest: Path, sources: tuple[Path, ...], output: str, plot: Path | None, **said: Any) -> None:
    """Replay a history through the judge and the gates: what would have been done, when and why.

    The history is a record (`kintsugi record`, or `advise --save`) or a Prometheus server that scrapes the engines.
    Nothing is changed anywhere. Exit 0: replayed, whatever was found. 2: the input can't be used.
    """
    policy = _policy(manifest)
    if sources and said["prometheus"]:
        raise click.UsageError("give either --from or --prometheus")
    if sources:
        refuse_options_of_prometheus(click.get_current_context())
    files = [RecordFile(path) for path in _files(sources)]
    notes: list[str] = []
    if sources:
        looks, source = _recorded(files), ", ".join(str(path) for path in sources)
        done = _share_of(files)
    else:
        first, last = bounds(said)
        looks, source, notes = scraped(policy, said, first, last)
        done = _share_of_time(first, last)
    try:
        strangers: set[str] = set()
        named = _named(looks, f"{policy.metadata.name}-", strangers)
        made = _replayed(policy, named, said, done, source)
    except (Unusable, SavedInvalid, Ambiguous, PortError, OSError) as error:
        raise Failed(str(error)) from error
    document = report(made, source)
    if strangers and not said["selector"]:
        notes.append(
            f"pods that are not named after {policy.metadata.name} were replayed as its own "
            f"({', '.join(sorted(strangers)[:3])}{', …' if len(strangers) > 3 else ''})"
        )
    document["notes"] = [*(file.note for file in files if file.note), *notes]
    if plot is not None:
        from kintsugi.cli.backtest_plot import draw

        draw(made, plot)
    if output == "json":
        click.echo(json.dumps(document, indent=2, ensure_ascii=False))
    else:
        from kintsugi.cli.backtest_table import show

        show(document)


def _replayed(
    policy: DeepSeekV4Deployment,
    looks: Iterator[SavedPage],
    said: dict[str, Any],
    done: Callable[[float], float],
    source: str,
) -> Replay:
    pools = {
        pool.name: pool.engine.args.max_num_seqs if pool.engine.args else None
        for pool in pools_of(policy.spec)
    }
    found, observations = spacing(_observed(looks, pools, policy.metadata.name))
    if found is None:
        raise Failed(
            f"{source}: holds no two pages of one engine, so there is nothing to replay. Of Prometheus, is the "
            "time span right, and are the pods named after the deployment and its pools? Else say "
            "--selector 'app=\"vllm\"'"
        )
    terms = Terms(
        deployment=policy,
        every=max(1.0, found, said["step"] or 0.0),
        paused=pause_reasons(policy),
        start_seconds=said["start"],
        free_gpu=said["free_gpu"],
        infer=said["infer"],
    )
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("replaying", total=1.0)
        return replay(observations, terms, lambda now: progress.update(task, completed=done(now)))


def _observed(
    looks: Iterator[SavedPage], pools: dict[str, int | None], deployment: str
) -> Iterator[Observed]:
    return completed(in_order(map(observed, looks), SLACK_SECONDS), pools, deployment)


def _named(looks: Iterator[SavedPage], head: str, strangers: set[str]) -> Iterator[SavedPage]:
    """The same looks; the names that do not begin with `head` are added to `strangers`."""
    for look in looks:
        if not look.instance.startswith(head):
            strangers.add(look.instance)
        yield look


def _policy(path: Path) -> DeepSeekV4Deployment:
    try:
        read = list(documents(path.read_text(encoding="utf-8-sig")))
    except (OSError, UnicodeDecodeError, Unreadable) as error:
        raise Failed(f"{path}: {error}") from error
    held = [each for each in read if isinstance(each.raw, dict) and each.raw.get("kind") == DEPLOYMENT_KIND]
    found = [each.raw for each in held]
    if len(found) != 1:
        raise Failed(f"{path}: holds {len(found)} {DEPLOYMENT_KIND}s, one is needed")
    if (fault := fault_of(found[0])) is not None:
        raise Failed(f"{path}: {fault[0] or '.'} {fault[1]}")
    tried = {key: value for key, value in found[0].items() if key != "status"}
    try:
        policy = parse_deployment(tried)
    except SpecInvalid as error:
        raise Failed(f"{path}: {error}") from error
    if not policy.metadata.name:
        raise Failed(f"{path}: metadata.name is empty: the engines are named after it")
    for key in held[0].doubled:
        click.echo(
            f"Warning: {path}:{key.line}: {key.path} stands there twice; the first, in line {key.first_line}, is not read",
            err=True,
        )
    for problem in unknown_field_problems(tried):
        click.echo(f"Warning: {path}: {problem}", err=True)
    return policy


def _files(sources: tuple[Path, ...]) -> list[Path]:
    found = []
    for source in sources:
        found += sorted(p for p in source.rglob("*") if p.is_file()) if source.is_dir() else [source]
    return found


def _recorded(files: list[RecordFile]) -> Iterator[SavedPage]:
    return heapq.merge(*(file.looks() for file in files), key=lambda look: look.time)


def _share_of(files: Sequence[RecordFile]) -> Callable[[float], float]:
    size = sum(file.path.stat().st_size for file in files) or 1
    return lambda now: min(1.0, sum(file.read for file in files) / size)


def _share_of_time(first: float, last: float) -> Callable[[float], float]:
    return lambda now: (now - first) / (last - first)
