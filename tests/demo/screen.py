"""What a person watching the demo sees: a line an event, and at a terminal the fleet itself below them."""

import time
from collections.abc import Callable, Sequence
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from tests.demo.facts import Facts, PodFact
from tests.demo.outcome import Outcome, faults_of

NARROW = 110
"""Columns of a table where there is no terminal to ask."""
COLOURS = {
    "Healthy": "green",
    "Idle": "green",
    "Saturated": "green",
    "Starting": "cyan",
    "Suspect": "yellow",
    "Sick": "red",
    "Unknown": "magenta",
}


class Screen:
    """Prints events with the seconds since the start; keeps the fleet's table below them where that is possible."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or _console()
        self._began = time.monotonic()
        self._live: Live | None = None

    def heading(self, text: str) -> None:
        self.console.print(f"\n[bold]{self._clock()} {text}[/bold]")

    def say(self, text: str) -> None:
        self.console.print(Text(f"{self._clock()}   {text}"))

    def event(self, text: str) -> None:
        """Something that was seen in the cluster."""
        self.console.print(Text(f"{self._clock()}     · {text}", style="dim"))

    def follow(self, facts: Facts, levels: Callable[[], dict[str, str]]) -> "Follow":
        """Show the fleet while the block lasts; `levels` gives a figure for each pod name."""
        return Follow(self.console, facts, levels)

    def _clock(self) -> str:
        seconds = int(time.monotonic() - self._began)
        return f"{seconds // 60}:{seconds % 60:02d}"

    def summary(self, outcomes: Sequence[Outcome]) -> None:
        """The table at the end."""
        self.console.print()
        self.console.print(summary(outcomes))


def _console() -> Console:
    """The terminal as it is; a file or a pipe gets lines as long as they come, and tables of a fixed width."""
    console = Console(highlight=False, soft_wrap=True)
    return console if console.is_terminal else Console(highlight=False, soft_wrap=True, width=NARROW)


class Follow:
    """The fleet's table, redrawn twice a second; nothing where there is no terminal."""

    def __init__(self, console: Console, facts: Facts, levels: Callable[[], dict[str, str]]) -> None:
        self._live = Live(
            get_renderable=lambda: fleet(facts, levels()),
            console=console,
            refresh_per_second=2,
            transient=True,
        )
        self._shown = console.is_terminal

    def __enter__(self) -> None:
        if self._shown:
            self._live.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shown:
            self._live.stop()


def fleet(facts: Facts, levels: dict[str, str]) -> Table:
    """Every engine that is there now."""
    table = Table("pool", "engine", "verdict", "traffic", "now", expand=True)
    table.add_column("why", ratio=1, min_width=20)
    for pod in sorted(facts.pods.values(), key=lambda pod: (pod.pool, pod.name)):
        if pod.gone is None:
            table.add_row(*_row(facts, pod, levels))
    return table


def _row(facts: Facts, pod: PodFact, levels: dict[str, str]) -> list[Text]:
    fact = facts.verdicts.get(pod.uid)
    verdict = fact.verdict if fact else "…"
    gate = facts.withheld.get(pod.name)
    why = f"left alone: {gate[0]}" if gate else (fact.why if fact else "")
    state = "going" if pod.ending else "in" if pod.in_rotation else "withdrawn"
    return [
        Text(pod.pool),
        Text(pod.name),
        Text(verdict, style=COLOURS.get(verdict, "")),
        Text(state, style="" if state == "in" else "yellow"),
        Text(levels.get(pod.name, "")),
        Text(why, overflow="ellipsis", no_wrap=True),
    ]


def summary(outcomes: Sequence[Outcome]) -> Table:
    """What each scenario came to. Times in seconds."""
    table = Table("scenario", "outcome", "replaced", "requests", "failed", "swallowed", "sick", "out", "new")
    for outcome in outcomes:
        good = not faults_of(outcome)
        said = (
            outcome.outcome if outcome.withheld_by is None else f"{outcome.outcome} by {outcome.withheld_by}"
        )
        times = (outcome.detect_seconds, outcome.withdraw_seconds, outcome.replace_seconds)
        table.add_row(
            outcome.name,
            Text(said, style="green" if good else "red"),
            str(outcome.replaced),
            str(outcome.requests),
            str(outcome.requests_failed),
            str(outcome.requests_lost),
            *("" if seconds is None else f"{seconds:.1f} s" for seconds in times),
        )
    table.caption = (
        "sick: from the fault to the verdict in status; out: from there to out of traffic; "
        "new: from the end of the hold to the new pod"
    )
    return table
