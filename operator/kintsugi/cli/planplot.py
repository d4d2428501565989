"""Concurrency over request length, drawn."""

from collections.abc import Mapping
from pathlib import Path

import click

from kintsugi.core.planner.result import PoolPlan


def draw(plans: Mapping[str, PoolPlan], path: Path) -> None:
    """One line with its band per pool, to a .png or .svg file."""
    if path.suffix.lower() not in (".png", ".svg"):
        raise click.BadParameter(f"{path.name}: name a .png or .svg file", param_hint="--plot")
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise click.ClickException(
            "--plot needs matplotlib: install it with `pip install 'kintsugi[plot]'`, or leave --plot out"
        ) from None
    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.add_subplot()
    drawn = False
    for name, plan in plans.items():
        if plan.kv is None:
            continue
        drawn = True
        lengths = [tokens for tokens, _ in plan.kv.concurrency]
        figures = [held for _, held in plan.kv.concurrency]
        label = f"{name}: {plan.gpus}x{plan.gpu}, {plan.layout}"
        axes.plot(lengths, [held.value for held in figures], marker="o", label=label)
        axes.fill_between(lengths, [h.low for h in figures], [h.high for h in figures], alpha=0.2)
    axes.set_xscale("log", base=2)
    axes.set_yscale("symlog", linthresh=1)
    axes.set_xlabel("tokens per request")
    axes.set_ylabel("requests at a time, one instance")
    axes.set_title("KV cache (band: assumed)")
    axes.grid(alpha=0.3)
    if drawn:
        axes.legend()
    try:
        figure.savefig(path, format=path.suffix[1:].lower())
    except OSError as error:
        raise click.ClickException(f"{path}: {error.strerror or error}") from error
