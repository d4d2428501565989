"""The command line of `kintsugi-engine native`: vLLM's names for the same things, so that one pool spec serves both."""

import argparse
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

_FACTORS: Final = {
    "": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "K": 1024, "M": 1024**2, "G": 1024**3,
}  # fmt: skip
"""vLLM reads `8k` as 8000 and `8K` as 8192 (its `human_readable_int`)."""


@dataclass(frozen=True, slots=True)
class Options:
    """What one server was asked to be. Lengths are in tokens, times in seconds."""

    model: str
    served_names: tuple[str, ...]
    revision: str | None
    host: str
    port: int
    max_model_len: int | None
    max_num_seqs: int
    max_num_queued_reqs: int
    chunk_tokens: int
    dtype: str
    device: str
    api_key: str | None
    chat_template: str | None
    shutdown_timeout: float
    memory_share: float
    priority: bool
    selfcheck: bool


def parse(words: Sequence[str]) -> Options:
    """Exits with code 2 and one line where a word is not understood."""
    found = _parser().parse_args(words)
    return Options(
        model=found.model,
        served_names=tuple(found.served_model_name or (found.model,)),
        revision=found.revision,
        host=found.host,
        port=found.port,
        max_model_len=found.max_model_len,
        max_num_seqs=found.max_num_seqs,
        max_num_queued_reqs=found.max_num_queued_reqs or 8 * found.max_num_seqs,
        chunk_tokens=found.max_num_batched_tokens,
        dtype=found.dtype,
        device=found.device,
        api_key=found.api_key or os.environ.get("VLLM_API_KEY") or None,
        chat_template=found.chat_template,
        shutdown_timeout=found.shutdown_timeout,
        memory_share=found.gpu_memory_utilization,
        priority=found.scheduling_policy == "priority",
        selfcheck=found.selfcheck,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="kintsugi-engine native", allow_abbrev=False)
    add = parser.add_argument
    add("--model", required=True, help="folder with the model, or an id of the hub")
    add("--served-model-name", nargs="+", help="names that clients may use; the model's own if absent")
    add("--revision", help="revision on the hub")
    add("--host", default="0.0.0.0")
    add("--port", type=int, default=8000)
    add("--max-model-len", type=_count, help="tokens that one slot holds; the model's own limit if absent")
    add("--max-num-seqs", type=_count, default=8, help="slots: requests that are worked on at once")
    add(
        "--max-num-queued-reqs",
        type=_count,
        help="requests running and waiting before 503; 8 a slot if absent",
    )
    add("--max-num-batched-tokens", type=_count, default=512, help="prompt tokens of one step")
    add("--dtype", default="auto", choices=("auto", "float32", "bfloat16", "float16"))
    add("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    add("--api-key", help="key that clients must send; VLLM_API_KEY if absent")
    add("--chat-template", help="file with a chat template, for tokenizers without one")
    add("--shutdown-timeout", type=float, default=0.0, help="seconds that running requests get after SIGTERM")
    add(
        "--gpu-memory-utilization",
        type=_share,
        default=0.9,
        help="share of the free memory the slots may take",
    )
    add("--scheduling-policy", choices=("fcfs", "priority"), default="fcfs")
    add(
        "--no-selfcheck",
        dest="selfcheck",
        action="store_false",
        help="skip the comparison with the uncached model",
    )
    return parser


def _count(text: str) -> int:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kmgKMG]?)", text)
    value = float(match[1]) * _FACTORS[match[2]] if match else 0.0
    if value < 1 or value != int(value):
        raise argparse.ArgumentTypeError(
            f"{text!r} is no whole number above 0, such as 4096, 8k (8000) or 8K (8192)"
        )
    return int(value)


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no share above 0 and up to 1")
    return value
