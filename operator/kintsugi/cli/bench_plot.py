"""A comparison, drawn: every run of both targets, one panel for each figure."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from kintsugi.core.bench import Compared


def draw(
    names: tuple[str, str],
    runs: tuple[Sequence[Mapping[str, Any]], Sequence[Mapping[str, Any]]],
    found: Sequence[Compared],
    path: Path,
) -> None:
    """To a .png or .svg file."""
    if path.suffix.lower() not in (".png", ".svg"):
        raise click.BadParameter(f"{path.name}: name a .png or .svg file", param_hint="--plot")
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise click.ClickException(
            "--plot needs matplotlib: install it with `pip install 'kintsugi[plot]'`, or leave --plot out"
        ) from None
    rows = -(-len(found) // 2)
    figure = Figure(figsize=(10, 2.6 * rows), layout="constrained")
    panels = figure.subplots(rows, 2, squeeze=False).flatten()
    for panel in panels[len(found) :]:
        panel.set_visible(False)
    for panel, one in zip(panels, found, strict=False):
        for values, middle, name in zip(runs, (one.first, one.second), names, strict=True):
            pairs = range(1, len(values) + 1)
            (line,) = panel.plot(pairs, [run[one.figure.key] for run in values], marker="o", label=name)
            panel.axhline(middle, color=line.get_color(), linestyle=":", linewidth=1)
        panel.set_title(f"{one.figure.name}, {one.figure.unit} ({one.percent:+.1f} %)", fontsize=10)
        panel.set_xticks(pairs)
        panel.set_ylim(bottom=0)
        panel.grid(alpha=0.3)
    panels[0].legend(fontsize=8)
    figure.supxlabel("pair")
    try:
        figure.savefig(path, format=path.suffix[1:].lower())
    except OSError as error:
        raise click.ClickException(f"{path}: {error.strerror or error}") from error
