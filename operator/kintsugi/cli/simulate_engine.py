"""`kintsugi simulate-engine`: an engine without a model or a GPU, which takes vLLM's command line."""

import asyncio
import json
import sys
from pathlib import Path

import click

from kintsugi.cli.ranges import FiniteRange
from kintsugi.core.catalog.load import builtin
from kintsugi.core.catalog.version import parse_version
from kintsugi.core.command.argument import Argument
from kintsugi.core.command.read import read_words
from kintsugi.testing.engine.adapters import Adapter, AdapterError, load, read_adapters
from kintsugi.testing.engine.faults import Fault, FaultError, parse_fault_argument
from kintsugi.testing.engine.process import ProcessSettings, run_engine
from kintsugi.testing.engine.server import VERSION
from kintsugi.testing.engine.settings import ServerSettings
from kintsugi.testing.engine.shape import EngineShape, StepCost

_SUFFIXES = {"k": 10**3, "m": 10**6, "g": 10**9, "K": 2**10, "M": 2**20, "G": 2**30}

_MODEL_CONTEXT = 2**20
"""The context of DeepSeek-V4."""
_KV_TOKENS = 2**20
"""Token slots of the KV pool where nothing is said: one request of 1,048,576 tokens, or many short ones."""


def count(text: str) -> int:
    """A whole number as vLLM reads it: `8192`, `8k` (8,000) or `8K` (8,192)."""
    factor = _SUFFIXES.get(text[-1:], 1)
    try:
        number = int(float(text[:-1]) * factor) if factor > 1 else int(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a whole number") from None
    if number < 1:
        raise click.BadParameter(f"{text!r} is not greater than 0")
    return number


def context_length(text: str) -> int:
    """`--max-model-len`: also `auto` or `-1`, where vLLM takes what the model and the memory allow."""
    return _MODEL_CONTEXT if text in ("auto", "-1") else count(text)


def fault(text: str) -> Fault:
    """A fault in short form."""
    try:
        return parse_fault_argument(text)
    except FaultError as error:
        raise click.BadParameter(str(error)) from error


class VllmCommand(click.Command):
    """Takes `vllm serve MODEL ...` as well, underscores for dashes, and several values of one flag."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        while args and args[0] in ("vllm", "serve"):
            args = args[1:]
        if args and not args[0].startswith("-"):
            args = ["--model", *args]
        options = {name for option in self.params for name in (*option.opts, *option.secondary_opts)}
        plain: list[str] = []
        for argument in read_words(args, str):
            plain += _plain(argument) if options & {argument.flag, argument.words[0]} else argument.words
        return super().parse_args(ctx, plain)


def _plain(argument: Argument) -> list[str]:
    """The words as click takes them: a flag with several values is said several times."""
    off = f"--no-{argument.flag[2:]}"
    if argument.words[0].replace("_", "-") == off:
        return [off]
    if not argument.values:
        return [argument.flag]
    return [word for value in argument.values for word in (argument.flag, value)]


@click.command(cls=VllmCommand, context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
@click.option(
    "--model", default="deepseek-ai/DeepSeek-V4-Flash", help="Shown as the model's name; nothing is loaded."
)
@click.option("--served-model-name", multiple=True, help="Names that requests may use. [default: the model]")
@click.option("--host", default="0.0.0.0", show_default=True)
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True)
@click.option("--api-key", default=None, envvar="VLLM_API_KEY", help="Ask for this bearer token on /v1.")
@click.option("--max-num-seqs", type=count, default="64", show_default=True)
@click.option("--max-model-len", type=context_length, default="131072", show_default=True)
@click.option("--max-num-batched-tokens", type=count, default="8192", show_default=True)
@click.option("--block-size", type=count, default="256", show_default=True)
@click.option("--num-gpu-blocks-override", type=count, default=None, help="KV blocks. [default: 1Mi tokens]")
@click.option("--max-num-queued-reqs", type=count, default=None, help="Refuse while so many wait or run.")
@click.option("--gpu-memory-utilization", type=float, default=0.9, show_default=True)
@click.option("--data-parallel-size", type=click.IntRange(1, 64), default=1, show_default=True)
@click.option("--tensor-parallel-size", type=click.IntRange(1, 64), default=1, show_default=True)
@click.option("--enable-prefix-caching/--no-enable-prefix-caching", default=True)
@click.option("--enable-chunked-prefill/--no-enable-chunked-prefill", default=True)
@click.option("--disable-log-stats", is_flag=True, help="A page without any vllm: family.")
@click.option("--kv-cache-metrics", is_flag=True)
@click.option(
    "--lora-modules", multiple=True, help="NAME=PATH: served beside the model, if an adapter lies there."
)
@click.option(
    "--only-known-flags",
    is_flag=True,
    envvar="KINTSUGI_SIMULATOR_ONLY_KNOWN_FLAGS",
    help=f"End as vLLM {VERSION} does on flags that it does not know.",
)
@click.option("--shutdown-timeout", type=FiniteRange(0), default=0.0, show_default=True, help="Seconds.")
@click.option("--admin-host", default="0.0.0.0", show_default=True)
@click.option(
    "--admin-port", type=click.IntRange(0, 65535), default=8001, show_default=True, help="Faults and state."
)
@click.option(
    "--fault",
    "faults",
    type=fault,
    multiple=True,
    envvar="KINTSUGI_SIMULATOR_FAULTS",
    help="Begin sick, e.g. slowStart=30 or hang; may be repeated (in the environment: separated by spaces).",
)
@click.option("--seed", type=int, default=0, show_default=True)
@click.option(
    "--step-ms",
    type=FiniteRange(min=0, min_open=True),
    default=22.0,
    show_default=True,
    help="Milliseconds of an engine step with one decode; all else scales with it.",
)
@click.option(
    "--step-noise", type=FiniteRange(0, 2), default=0.04, show_default=True, help="Lognormal sigma."
)
@click.option("--fragmentation", type=FiniteRange(0, 1), default=0.08, show_default=True, help="Calm level.")
@click.option("--no-telemetry", is_flag=True, help="No kintsugi_ series, as an engine without the plugin.")
@click.option(
    "--natural-tokens", type=count, default="60", show_default=True, help="Output where no limit is asked."
)
@click.option("--bytes-per-token", type=count, default="4", show_default=True)
@click.option(
    "--answers",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    default=None,
    help="JSON file: ending of a prompt -> answer.",
)
@click.pass_context
def simulate_engine(
    ctx: click.Context,
    model: str,
    served_model_name: tuple[str, ...],
    host: str,
    port: int,
    api_key: str | None,
    max_num_seqs: int,
    max_model_len: int,
    max_num_batched_tokens: int,
    block_size: int,
    num_gpu_blocks_override: int | None,
    max_num_queued_reqs: int | None,
    gpu_memory_utilization: float,
    data_parallel_size: int,
    tensor_parallel_size: int,
    enable_prefix_caching: bool,
    enable_chunked_prefill: bool,
    disable_log_stats: bool,
    kv_cache_metrics: bool,
    lora_modules: tuple[str, ...],
    only_known_flags: bool,
    shutdown_timeout: float,
    admin_host: str,
    admin_port: int,
    faults: tuple[Fault, ...],
    seed: int,
    step_ms: float,
    step_noise: float,
    fragmentation: float,
    no_telemetry: bool,
    natural_tokens: int,
    bytes_per_token: int,
    answers: Path | None,
) -> None:
    """Serve a simulated vLLM engine: real /metrics names, streaming, and faults to rehearse with.

    Takes vLLM's own command line (`vllm serve MODEL ...` too); flags that mean nothing to a simulation are
    accepted and named in the log. Faults are switched at run time on the admin port:
    POST /simulator/faults {"fault": "hang"}, DELETE /simulator/faults/hang, GET /simulator/state.
    """
    if only_known_flags:
        _refuse_unknown(ctx.args)
    adapters = _loaded(lora_modules)
    try:
        shape = EngineShape(
            max_num_seqs=max_num_seqs,
            max_model_len=max_model_len,
            max_num_batched_tokens=max(max_num_batched_tokens, max_num_seqs),
            block_size=block_size,
            num_gpu_blocks=num_gpu_blocks_override or max(_KV_TOKENS, max_model_len) // block_size,
            chunked_prefill=enable_chunked_prefill,
            prefix_caching=enable_prefix_caching,
            max_num_queued_reqs=max_num_queued_reqs,
            gpu_memory_utilization=gpu_memory_utilization,
        )
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    cost = StepCost(noise_sigma=step_noise)
    settings = ProcessSettings(
        server=ServerSettings(
            host=host,
            port=port,
            admin_host=admin_host,
            admin_port=admin_port,
            api_key=api_key,
            served_names=served_model_name or (model,),
            adapters=tuple(adapter.name for adapter in adapters),
            max_model_len=max_model_len,
            bytes_per_token=bytes_per_token,
            natural_tokens=natural_tokens,
            answers=_answers(answers),
            seed=seed,
        ),
        shape=shape,
        cost=cost.scaled(step_ms / 1000.0 / cost.mean(1)),
        ranks=data_parallel_size,
        workers=tensor_parallel_size,
        fragmentation=fragmentation,
        seed=seed,
        log_stats=not disable_log_stats,
        kv_cache_metrics=kv_cache_metrics,
        telemetry=not no_telemetry,
        shutdown_timeout=shutdown_timeout,
        faults=faults,
        ignored=ctx.args,
    )
    sys.exit(asyncio.run(run_engine(settings)))


def _refuse_unknown(words: list[str]) -> None:
    """End as argparse does where one of the flags is none of the simulated engine's version."""
    version = parse_version(VERSION)
    known = builtin().known_flags(version) if version else None
    flags = [argument.flag for argument in read_words(words, str)]
    unknown = [flag for flag in flags if known is not None and flag.startswith("-") and flag not in known]
    if unknown:
        print("usage: vllm serve [model_tag] [options]", file=sys.stderr)
        print(f"vllm serve: error: unrecognized arguments: {' '.join(unknown)}", file=sys.stderr)
        sys.exit(2)


def _loaded(modules: tuple[str, ...]) -> tuple[Adapter, ...]:
    """The adapters, or the end of the start that vLLM makes of one that is not there."""
    try:
        adapters = read_adapters(modules)
        load(adapters)
    except AdapterError as error:
        print(f"ValueError: {error}", file=sys.stderr)
        sys.exit(1)
    return adapters


def _answers(path: Path | None) -> dict[str, str]:
    if path is None:
        return {}
    try:
        document = json.loads(path.read_text())
    except ValueError as error:
        raise click.BadParameter(f"{path} is not JSON: {error}", param_hint="--answers") from error
    if not isinstance(document, dict) or not all(isinstance(value, str) for value in document.values()):
        raise click.BadParameter(f"{path} must hold an object of texts", param_hint="--answers")
    return document
