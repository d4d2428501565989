"""`kintsugi bench`: the same load against two engines or pools."""

import json
import shlex
from pathlib import Path

import click

from kintsugi.cli.bench_load import Load, Target, run_pairs, target_of
from kintsugi.cli.bench_table import show
from kintsugi.cli.ranges import FiniteRange
from kintsugi.core.bench import compared


class _TargetType(click.ParamType[Target]):
    name = "target"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Target:
        if isinstance(value, Target):
            return value
        found = target_of(str(value))
        if found is None:
            self.fail(
                f"{value!r} is neither a URL (http://host:8000, or NAME=URL) nor NAMESPACE/DEPLOYMENT/POOL",
                param,
                ctx,
            )
        return found


@click.command()
@click.argument("first", type=_TargetType())
@click.argument("second", type=_TargetType())
@click.option("--model", required=True, help="Name under which both serve the model.")
@click.option("--tokenizer", help="Folder or id of the model's tokenizer. [default: the model]")
@click.option("--requests", type=click.IntRange(1), default=100, show_default=True, help="Of each run.")
@click.option(
    "--concurrency", type=click.IntRange(1), default=16, show_default=True, help="Requests at a time."
)
@click.option("--rate", type=FiniteRange(0, min_open=True), help="Requests a second. [default: no limit]")
@click.option("--prompt", type=click.IntRange(1), default=512, show_default=True, help="Tokens of a prompt.")
@click.option("--answer", type=click.IntRange(1), default=128, show_default=True, help="Tokens of an answer.")
@click.option(
    "--pairs", type=click.IntRange(1), default=5, show_default=True, help="Runs against each target."
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of the prompts: the same for both.")
@click.option("--tool", default="vllm", show_default=True, help="Command that has `bench serve`.")
@click.option("--json", "as_json", type=click.Path(path_type=Path), help="Write all results to this file.")
@click.option("--plot", type=click.Path(path_type=Path), help="Draw them into this .png or .svg file.")
def bench(
    first: Target,
    second: Target,
    model: str,
    tokenizer: str | None,
    requests: int,
    concurrency: int,
    rate: float | None,
    prompt: int,
    answer: int,
    pairs: int,
    seed: int,
    tool: str,
    as_json: Path | None,
    plot: Path | None,
) -> None:
    """Put the same load on FIRST and SECOND in turns, and compare what comes back.

    A target is a URL, NAME=URL, or NAMESPACE/DEPLOYMENT/POOL where the cluster's names can be resolved. The load is made
    by vLLM's own `vllm bench serve`, which must be installed; a key is taken from OPENAI_API_KEY.
    """
    load = Load(model, tokenizer or model, requests, concurrency, rate, prompt, answer, seed)
    runs = run_pairs(shlex.split(tool), (first, second), load, pairs, lambda line: click.echo(line, err=True))
    found = compared(*runs)
    if not found:
        raise click.ClickException("no run gave a figure to compare: see what the load tool said above")
    show((first.name, second.name), found, pairs)
    if as_json is not None:
        document = {
            "targets": [{"name": each.name, "url": each.url} for each in (first, second)],
            "load": load.told(),
            "pairs": pairs,
            "runs": runs,
            "compared": {
                one.figure.key: {
                    "first": one.first, "second": one.second, "changePercent": one.percent, "ci95Percent": one.interval
                }
                for one in found
            },
        }  # fmt: skip
        as_json.write_text(json.dumps(document, indent=1) + "\n")
    if plot is not None:
        from kintsugi.cli.bench_plot import draw

        draw((first.name, second.name), runs, found, plot)
