"""What a person watching the demo sees: a line an event, and at a terminal the fleet itself below them."""

import time
from collections.abc import Callable, Sequence
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from tests.demo.facts import Facts, PodFact
from tests.demo.outcome import EXPECTED, HEALED, Outcome, faults_of

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
        self.console = console or Console(highlight=False, soft_wrap=True)
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
    table = Table("pool", "engine", "verdict", "traffic", "now", "why", expand=True)
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
    """What each scenario came to."""
    table = Table(
        "scenario",
        "outcome",
        "replaced",
        "requests",
        "failed",
        "swallowed",
        "verdict s",
        "withdrawn s",
        "replaced s",
    )
    for outcome in outcomes:
        wrong = faults_of(outcome)
        said = (
            outcome.outcome if outcome.withheld_by is None else f"{outcome.outcome} by {outcome.withheld_by}"
        )
        table.add_row(
            outcome.name,
            Text(said if not wrong else f"{said}: {'; '.join(wrong)}", style="red" if wrong else "green"),
            str(outcome.replaced),
            str(outcome.requests),
            str(outcome.requests_failed),
            str(outcome.requests_lost),
            *(
                "" if seconds is None else f"{seconds:.1f}"
                for seconds in (outcome.detect_seconds, outcome.withdraw_seconds, outcome.replace_seconds)
            ),
        )
    wanted = sum(kind == HEALED for kind, _ in EXPECTED.values())
    table.caption = (
        f"{wanted} sick engines replaced, two outages waited out. verdict: from the fault to Sick in status; "
        "withdrawn: from there to out of traffic; replaced: from the end of the hold to the new pod."
    )
    return table
