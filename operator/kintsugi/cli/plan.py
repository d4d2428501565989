"""`kintsugi plan`: what fits, how much of it, and what it costs, before any GPU is rented."""

import json
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import click

from kintsugi.cli.planfile import Unreadable, Wanted, from_file, from_flags, load
from kintsugi.cli.ranges import FiniteRange
from kintsugi.core.catalog.catalog import Catalog
from kintsugi.core.catalog.load import CatalogInvalid, builtin, extended
from kintsugi.core.command.number import whole
from kintsugi.core.planner.document import pool_document
from kintsugi.core.planner.finding import PlanFinding
from kintsugi.core.planner.options import LENGTHS, Options
from kintsugi.core.planner.plan import plan as plan_deployment
from kintsugi.core.planner.prices import Prices, PricesInvalid, builtin_prices, read_prices
from kintsugi.core.planner.result import PoolPlan

MOST_TOKENS: Final = 16_777_216
"""The longest context that the API takes."""

FLAGS_OF_A_MODEL: Final = frozenset(
    [
        "gpu",
        "gpus",
        "nodes",
        "tp",
        "pp",
        "dp",
        "ep",
        "context",
        "replicas",
        "profile",
        "max_num_seqs",
        "max_num_batched_tokens",
        "gpu_memory_utilization",
        "engine_version",
        "offload",
    ]
)
"""What describes an instance in place of a file."""


def tokens(text: str | int) -> int:
    """Tokens as the engine reads them: `8192`, `8k` (8,000), `8K` (8,192), `1M` (1,048,576)."""
    number = text if isinstance(text, int) else whole(text.strip())
    if number is None or not 1 <= number <= MOST_TOKENS:
        raise click.BadParameter(
            f"{text!r} is no number of tokens from 1 to {MOST_TOKENS}, such as 8192, 8K or 1M"
        )
    return number


def token_list(text: str) -> tuple[int, ...]:
    """Several of them, separated by commas."""
    parts = [part for part in text.split(",") if part.strip()]
    if not 1 <= len(parts) <= 64:
        raise click.BadParameter("give 1 to 64 lengths, separated by commas")
    return tuple(sorted({tokens(part) for part in parts}))


def requests(text: str) -> tuple[int, int]:
    """`LENGTH:N`: N requests of LENGTH tokens at the same time."""
    length, colon, many = text.partition(":")
    if not colon or not many.isascii() or not many.isdigit() or len(many) > 9 or int(many) < 1:
        raise click.BadParameter(f"{text!r} is not LENGTH:N, such as 1M:8")
    return tokens(length), int(many)


@click.command("plan")
@click.option(
    "-f",
    "--file",
    "file",
    type=click.Path(path_type=Path, allow_dash=True),
    help="YAML with deployments; - reads stdin.",
)
@click.option("--model", help="Hub id of the model, in place of a file.")
@click.option("--gpu", help="Kind of GPU, such as H200. Absent: the recipe's.")
@click.option("--gpus", type=click.IntRange(0, 1024), help="GPUs of one instance on each node.")
@click.option("--nodes", type=click.IntRange(1, 64), help="Nodes of one instance.")
@click.option("--tp", type=click.IntRange(1, 1024), help="Tensor parallel size.")
@click.option("--pp", type=click.IntRange(1, 1024), help="Pipeline parallel size.")
@click.option("--dp", type=click.IntRange(1, 1024), help="Data parallel size.")
@click.option("--ep/--no-ep", default=None, help="Expert parallelism.")
@click.option("--context", type=tokens, help="Longest request in tokens.")
@click.option("--replicas", type=click.IntRange(0, 1000), default=1, show_default=True, help="Instances.")
@click.option("--profile", type=click.Choice(["HighThroughput", "LongContext", "Balanced"]))
@click.option(
    "--max-num-seqs", type=click.IntRange(1, 65_536), help="Requests that one engine runs at a time."
)
@click.option("--max-num-batched-tokens", type=tokens, help="Tokens of one step.")
@click.option("--gpu-memory-utilization", type=FiniteRange(0, 1, min_open=True), help="Share of GPU memory.")
@click.option("--engine-version", help="Version of vLLM. Absent: the default image's.")
@click.option("--offload", help="Host memory of one engine for KV blocks, such as 200Gi.")
@click.option("--lengths", type=token_list, help="Lengths to give concurrency for.")
@click.option("--demand", type=requests, multiple=True, help="LENGTH:N requests at a time; may be repeated.")
@click.option("--mean-length", type=tokens, help="Mean length for the capacity formulas.")
@click.option(
    "--tokens-per-second",
    type=FiniteRange(0, 1e9, min_open=True),
    help="Output tokens per second that one instance was measured to give.",
)
@click.option("--offload-factor", type=FiniteRange(1, 10), help="Host bytes taken per byte of KV offload.")
@click.option("--prices", type=click.Path(path_type=Path), help="YAML with prices per GPU and hour.")
@click.option(
    "--catalog", "catalog_file", type=click.Path(path_type=Path), help="YAML with further models and GPUs."
)
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
@click.option(
    "--plot", type=click.Path(path_type=Path), help="Also draw concurrency over length to this .png or .svg."
)
def plan(file: Path | None, output: str, plot: Path | None, **said: Any) -> None:
    """Say what fits on which GPUs: weights, KV cache, concurrency, longest context, cost.

    Name a file (-f), or a model (--model) with the options from --gpu to --offload, which a file says itself.

    Exit 0: every pool fits. 1: one does not, or cannot be planned. 2: the input can't be read.
    """
    if (file is None) == (said["model"] is None):
        raise click.UsageError("give either --file or --model")
    if file is not None and (beside := _given(FLAGS_OF_A_MODEL)):
        raise click.UsageError(
            f"{', '.join(beside)}: goes with --model; with --file write it in the manifest"
        )
    catalog, prices = _catalog(said["catalog_file"]), _prices(said["prices"])
    wanted = from_file(file) if file is not None else (from_flags(said),)
    options = _options(said)
    plans: dict[str, PoolPlan] = {}
    for deployment in wanted:
        for name, made in _planned(deployment, len(wanted) > 1, catalog, prices, options).items():
            plans[_unused(name, plans)] = made
    if plot is not None:
        from kintsugi.cli.planplot import draw

        draw(plans, plot)
    if output == "json":
        click.echo(json.dumps({"pools": {n: pool_document(p) for n, p in plans.items()}}, indent=2))
    else:
        from kintsugi.cli.plantable import show

        show(plans)
    if any(made.fits is False for made in plans.values()):
        raise SystemExit(1)


def _given(names: Collection[str]) -> list[str]:
    """Those of these options that were on the command line."""
    context = click.get_current_context()
    return [
        option.opts[-1]
        for option in context.command.params
        if option.name in names
        and context.get_parameter_source(str(option.name)) is click.core.ParameterSource.COMMANDLINE
    ]


def _planned(
    wanted: Wanted, several: bool, catalog: Catalog, prices: Prices, options: Options
) -> dict[str, PoolPlan]:
    """By pool, with the deployment's name before it where the file holds several."""
    told = tuple(
        PlanFinding(
            "Warning", "UnknownField", problem.path, problem.message, "correct the name, or remove it"
        )
        for problem in wanted.unknown
    )
    plans = plan_deployment(wanted.spec, catalog, prices, options)
    return {
        f"{wanted.name or 'deployment'}/{made.name}" if several else made.name: replace(
            made, findings=(*told, *made.findings)
        )
        for made in plans
    }


def _unused(name: str, taken: Mapping[str, PoolPlan]) -> str:
    """`name`, numbered where another deployment of the file has it."""
    names = (name, *(f"{name}#{number}" for number in range(2, len(taken) + 2)))
    return next(each for each in names if each not in taken)


def _options(said: dict[str, Any]) -> Options:
    demand: dict[int, int] = {}
    for length, many in said["demand"]:
        demand[length] = demand.get(length, 0) + many
    return Options(
        lengths=said["lengths"] or LENGTHS,
        demand=demand,
        tokens_per_second=said["tokens_per_second"],
        mean_length=said["mean_length"],
        offload_factor=said["offload_factor"],
    )


def _catalog(path: Path | None) -> Catalog:
    if path is None:
        return builtin()
    found = builtin()
    for document in load(path):
        try:
            found = extended(found, document)
        except CatalogInvalid as error:
            raise Unreadable(f"{path}: {error}") from error
    return found


def _prices(path: Path | None) -> Prices:
    if path is None:
        return builtin_prices()
    documents = load(path)
    try:
        return read_prices(documents[0] if documents else None)
    except PricesInvalid as error:
        raise Unreadable(f"{path}: {error}") from error
