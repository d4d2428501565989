"""A plan as tables for people."""

from collections.abc import Iterator, Mapping

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from kintsugi.core.planner.figure import Figure
from kintsugi.core.planner.result import PoolPlan

WIDTH = 140
"""Columns where nobody says how wide the screen is."""
ROOM_FOR_SOURCES = 110
"""Columns below which the sources stand under the table: beside it they would be a few letters a line."""
COLOURS = {"Error": "red", "Warning": "yellow", "Info": "cyan"}


def show(plans: Mapping[str, PoolPlan]) -> None:
    """Print every pool."""
    console = Console(soft_wrap=True, highlight=False)
    console = console if console.is_terminal else Console(soft_wrap=True, highlight=False, width=WIDTH)
    for name, plan in plans.items():
        word = {True: "[green]fits[/]", False: "[red]does not fit[/]", None: "[yellow]cannot say[/]"}[
            plan.fits
        ]
        if any(finding.rule == "CannotPlan" for finding in plan.findings):
            word = "[red]cannot be planned[/]"
        hardware = f"{plan.gpus} x {plan.gpu or 'unknown GPU'}" + (
            f" on {plan.nodes} nodes" if plan.nodes > 1 else ""
        )
        console.print(
            f"[bold]{escape(name)}[/]: {escape(plan.model)} on {escape(hardware)}, {plan.layout}, "
            f"{_many(plan.replicas, 'instance')}: {word}"
        )
        if plan.memory is not None:
            table, notes = _figures(plan, console.width < ROOM_FOR_SOURCES)
            console.print(table)
            for number, source in enumerate(notes, 1):
                console.print(Padding(f"({number}) {escape(source)}", (0, 0, 0, 2)), soft_wrap=False)
        if plan.kv is not None:
            console.print(_concurrency(plan))
        _formulas(console, plan)
        _waste(console, plan)
        for finding in plan.findings:
            colour = COLOURS[finding.severity]
            cure = f" — {finding.cure}" if finding.cure else ""
            console.print(
                f"  [{colour}]{finding.severity}[/] {finding.rule} {escape(finding.path)}: "
                f"{escape(finding.message)}{escape(cure)}"
            )
        console.print()


def _figures(plan: PoolPlan, narrow: bool) -> tuple[Table, list[str]]:
    """The table, and what stands under it: the sources that its last column numbers, where that is narrow."""
    table = Table(box=None, pad_edge=False)
    for name in ("figure", "value", "low", "high", "basis"):
        table.add_column(name, no_wrap=True)
    table.add_column("" if narrow else "source", overflow="fold")
    notes: list[str] = []
    for *figures, source in _rows(plan):
        if narrow and source and source not in notes:
            notes.append(source)
        table.add_row(*figures, f"({notes.index(source) + 1})" if narrow and source else escape(source))
    return table, notes


def _rows(plan: PoolPlan) -> Iterator[tuple[str, str, str, str, str, str]]:
    memory, kv, cost = plan.memory, plan.kv, plan.cost
    if memory is not None:
        rows = (
            ("memory per GPU", memory.total),
            ("for the engine", memory.usable),
            ("weights", memory.weights),
            ("runtime reserve", memory.reserve),
            ("KV cache", memory.kv),
        )
        for name, figure in rows:
            yield _row(name, figure, 1e9, " GB")
    if plan.weights is not None:
        yield _row("weights, instance", plan.weights, 1e9, " GB")
    if kv is not None:
        yield _row("KV blocks per engine", kv.engine_blocks, 1, "")
        yield _row(f"KV tokens, {_many(kv.engines, 'engine')}", kv.tokens, 1, "")
        yield "longest request", f"{kv.longest:,}", "", "", "", "tokens; never above --max-model-len"
    if plan.offload is not None:
        holds = f"holds {plan.offload_tokens or 0:,} tokens"
        yield (
            "offload: shm, memory limit",
            f"{plan.offload.shared_memory_bytes / 2**30:,.0f} Gi",
            f"{plan.offload.memory_limit_bytes / 2**30:,.0f} Gi",
            "",
            "assumed",
            f"least; {_many(plan.offload.engines, 'engine')}, factor {plan.offload.factor:g}; {holds}",
        )
    if cost is not None:
        money = f" {cost.currency}"
        yield _row("cost per hour, pool", cost.pool_hour, 1, money)
        yield _row("output tokens/s, instance", cost.tokens_per_second, 1, "")
        yield _row("cost per million tokens", cost.per_million_tokens, 1, money)


def _many(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _row(name: str, figure: Figure, unit: float, suffix: str) -> tuple[str, str, str, str, str, str]:
    def text(value: float) -> str:
        size = value / unit
        return (
            f"{size:,.0f}{suffix}"
            if abs(size) >= 1000 or (unit == 1 and size == int(size))
            else f"{size:,.2f}{suffix}"
        )

    return name, text(figure.value), text(figure.low), text(figure.high), figure.basis, figure.source


def _concurrency(plan: PoolPlan) -> Table:
    title = "requests at a time"
    table = Table("tokens", title, "low", "high", "admitted", "pool", "one lost", box=None, pad_edge=False)
    after = dict(plan.margin.concurrency_after) if plan.margin else {}
    for tokens, figure in plan.kv.concurrency if plan.kv else ():
        runs = plan.sustained(tokens) or 0
        admitted = min(int(figure.value), plan.admitted or 0)
        row = (figure.value, figure.low, figure.high, admitted, runs, after.get(tokens, 0))
        table.add_row(f"{tokens:,}", *(f"{value:,.0f}" for value in row))
    return table


def _formulas(console: Console, plan: PoolPlan) -> None:
    told = plan.formulas
    if told is None:
        return
    console.print(
        f"{told.sequences:,} requests of {told.mean_length:,} tokens: weights + max_num_seqs x mean length x "
        f"{told.bytes_per_token:,.0f} bytes = {told.simple / 1e9:,.0f} GB; really {told.corrected.value / 1e9:,.0f} GB "
        f"({told.corrected.low / 1e9:,.0f} to {told.corrected.high / 1e9:,.0f}): {told.corrected.source}"
    )
    if plan.margin:
        console.print(
            f"one instance lost leaves {plan.margin.after_one_failure}; a surge needs {plan.margin.surge_gpus} free GPUs"
        )


def _waste(console: Console, plan: PoolPlan) -> None:
    legal = [row for row in plan.waste if row.legal]
    if len(legal) == 1 and len(plan.waste) > 1:
        console.print(
            f"block size {legal[0].block_size} is fixed by the kernels: the last block wastes {legal[0].percent:.2f} % "
            "of a request's KV cache; other sizes are illegal"
        )
    elif legal:
        table = Table("block size", "waste", "bytes per request", box=None, pad_edge=False)
        for row in legal:
            table.add_row(str(row.block_size), f"{row.percent:.2f} %", f"{row.bytes_per_request:,.0f}")
        console.print(table)
