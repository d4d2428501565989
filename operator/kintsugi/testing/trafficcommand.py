"""The command line of `kintsugi.testing.traffic`."""

import asyncio
import json
import signal
import sys
from dataclasses import asdict
from typing import TextIO

import click

from kintsugi.testing.traffic import Plan, Record, Summary, Target, Traffic


class Report:
    """JSON lines: `request` as each ends, `progress` every so often, `summary` last. Each is flushed."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, kind: str, values: dict[str, object]) -> None:
        self._file.write(json.dumps({"type": kind, **values}) + "\n")
        self._file.flush()

    def record(self, record: Record) -> None:
        self.write("request", asdict(record))

    def progress(self, summary: Summary) -> None:
        self.write("progress", asdict(summary))


async def send(plan: Plan, duration: float, grace: float, report: Report, progress_seconds: float) -> Summary:
    """Run the plan; SIGTERM and SIGINT end the sending, what is under way is still waited for."""
    traffic = Traffic(plan, report.record)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, traffic.stop)
    beat: asyncio.TimerHandle | None = None

    def tell() -> None:
        nonlocal beat
        report.progress(traffic.summary)
        beat = loop.call_later(progress_seconds, tell)

    if progress_seconds:
        tell()
    try:
        return await traffic.run(duration, grace)
    finally:
        if beat:
            beat.cancel()


def _range(text: str) -> tuple[int, int]:
    """`40` or `20-60`."""
    low, _, high = text.partition("-")
    try:
        bounds = int(low), int(high or low)
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a number or LOW-HIGH") from None
    if not 1 <= bounds[0] <= bounds[1]:
        raise click.BadParameter(f"{text!r}: needs 1 <= LOW <= HIGH")
    return bounds


def _targets(targets: tuple[str, ...], rates: tuple[str, ...]) -> tuple[Target, ...]:
    by_name: dict[str, float] = {}
    common = 1.0
    for text in rates:
        name, equals, value = text.rpartition("=")
        try:
            number = float(value)
        except ValueError:
            raise click.BadParameter(f"{text!r} is not RATE or NAME=RATE", param_hint="--rate") from None
        if equals:
            by_name[name] = number
        else:
            common = number
    found: list[Target] = []
    for text in targets:
        name, equals, url = text.partition("=")
        if not equals:
            raise click.BadParameter(f"{text!r} is not NAME=URL", param_hint="--target")
        try:
            found.append(Target(name, url.rstrip("/"), by_name.pop(name, common)))
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--target") from error
    if by_name:
        raise click.BadParameter(f"no target is named {', '.join(by_name)}", param_hint="--rate")
    return tuple(found)


@click.command()
@click.option("--target", "targets", multiple=True, required=True, help="NAME=URL; may be repeated.")
@click.option("--rate", "rates", multiple=True, help="Requests a second, or NAME=RATE. [default: 1]")
@click.option(
    "--duration", type=click.FloatRange(0, min_open=True), default=60.0, show_default=True, help="Seconds."
)
@click.option(
    "--report", type=click.File("w"), default="-", help="Where the JSON lines go. [default: stdout]"
)
@click.option("--prompt-tokens", default="50-400", show_default=True, type=_range)
@click.option("--output-tokens", default="20-60", show_default=True, type=_range)
@click.option("--even", is_flag=True, help="Evenly spaced instead of Poisson.")
@click.option("--chat", is_flag=True, help="Chat completions instead of completions.")
@click.option("--model", default=None)
@click.option("--api-key", default=None, envvar="TRAFFIC_API_KEY")
@click.option("--connect-timeout", type=click.FloatRange(0, min_open=True), default=2.0, show_default=True)
@click.option("--total-timeout", type=click.FloatRange(0, min_open=True), default=120.0, show_default=True)
@click.option(
    "--grace", type=click.FloatRange(0), default=30.0, show_default=True, help="Wait for running ones."
)
@click.option("--max-in-flight", type=click.IntRange(1), default=500, show_default=True)
@click.option(
    "--progress-seconds", type=click.FloatRange(0), default=1.0, show_default=True, help="0 = none."
)
@click.option("--seed", type=int, default=0, show_default=True)
def traffic(
    targets: tuple[str, ...],
    rates: tuple[str, ...],
    duration: float,
    report: TextIO,
    prompt_tokens: tuple[int, int],
    output_tokens: tuple[int, int],
    even: bool,
    chat: bool,
    model: str | None,
    api_key: str | None,
    connect_timeout: float,
    total_timeout: float,
    grace: float,
    max_in_flight: int,
    progress_seconds: float,
    seed: int,
) -> None:
    """Send open-loop traffic and record every request. Exits 1 when a request failed."""
    plan = Plan(
        targets=_targets(targets, rates),
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        poisson=not even,
        chat=chat,
        model=model,
        api_key=api_key,
        connect_timeout=connect_timeout,
        total_timeout=total_timeout,
        max_in_flight=max_in_flight,
        seed=seed,
    )
    lines = Report(report)
    summary = asyncio.run(send(plan, duration, grace, lines, progress_seconds))
    lines.write("summary", asdict(summary))
    sys.exit(1 if summary.failed or summary.unfinished else 0)
