"""The timeline of a backtest, drawn: one bar per pod, coloured by verdict, with what would have been done to it."""

from datetime import datetime
from pathlib import Path
from typing import Any, Final

import click

from kintsugi.core.backtest.replay import Replay
from kintsugi.core.finding import Verdict
from kintsugi.core.moment import moment

COLOURS: Final = {
    Verdict.HEALTHY: "#2b8a3e",
    Verdict.IDLE: "#a9d8b0",
    Verdict.SATURATED: "#4c78c8",
    Verdict.STARTING: "#c9b8e8",
    Verdict.UNKNOWN: "#c8c8c8",
    Verdict.SUSPECT: "#f2b134",
    Verdict.SICK: "#c92a2a",
}
MARKS: Final = {"Withdraw": "v", "Restore": "^", "Release": ">", "Evict": "X"}
NAMES: Final = {"Withdraw": "withdraw", "Restore": "put back", "Release": "release", "Evict": "evict"}
DAY_SECONDS: Final = 86400.0
"""matplotlib counts days since 1970."""
MOST_ROWS: Final = 200
"""Pods that are drawn, those with an incident first: more make no picture."""


def draw(made: Replay, path: Path) -> None:
    """Write the picture to a .png or .svg file."""
    if path.suffix.lower() not in (".png", ".svg"):
        raise click.BadParameter(f"{path.name}: name a .png or .svg file", param_hint="--plot")
    try:
        from matplotlib import dates
        from matplotlib.figure import Figure
    except ImportError:
        raise click.ClickException(
            "--plot needs matplotlib: install it with `pip install 'kintsugi[plot]'`, or leave --plot out"
        ) from None
    sick = {incident.uid for incident in made.timeline.incidents}
    tracks = sorted(made.timeline.tracks.values(), key=lambda t: (t.uid not in sick, t.pool, t.name))
    tracks = tracks[:MOST_ROWS]
    rows = {track.uid: len(tracks) - 1 - index for index, track in enumerate(tracks)}
    figure = Figure(figsize=(11, 1.6 + 0.4 * max(3, len(tracks))), layout="constrained")
    axes = figure.add_subplot()

    def at(seconds: float) -> float:
        return seconds / DAY_SECONDS

    for track in tracks:
        for span in track.spans:
            width = at(max(span.last - span.first, made.terms.every))
            row = (rows[track.uid] - 0.3, 0.6)
            axes.broken_barh([(at(span.first), width)], row, facecolors=COLOURS[span.verdict])
    for what, mark in MARKS.items():
        points = [(at(d.time), rows[d.uid]) for d in made.deeds if d.what == what and d.uid in rows]
        if points:
            axes.plot(
                *zip(*points, strict=True), mark, color="black", markersize=8, mec="white", label=NAMES[what]
            )
    seen = {span.verdict for track in tracks for span in track.spans}
    for verdict in (v for v in Verdict if v in seen):
        axes.barh([0], [0], left=[at(made.first or 0.0)], color=COLOURS[verdict], label=verdict.value)
    axes.set_yticks(list(rows.values()), [track.name for track in tracks])
    axes.set_ylim(-0.6, len(tracks) - 0.4)
    axes.xaxis_date()
    formatter: Any = dates.DateFormatter
    axes.xaxis.set_major_formatter(formatter(_format(made)))
    axes.set_xlabel("time (UTC)")
    axes.set_title(f"{made.terms.deployment.metadata.name}: verdicts, and what would have been done")
    axes.grid(axis="x", alpha=0.3)
    if seen:
        figure.legend(loc="outside lower center", ncols=6)
    try:
        figure.savefig(path, format=path.suffix[1:].lower())
    except OSError as error:
        raise click.ClickException(f"{path}: {error.strerror or error}") from error


def _format(made: Replay) -> str:
    first, last = moment(made.first or 0.0), moment(made.last or 0.0)
    one_day: bool = datetime.date(first) == datetime.date(last)
    return "%H:%M" if one_day else "%m-%d %H:%M"
