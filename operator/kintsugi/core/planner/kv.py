"""Blocks of KV cache: how many an engine has, how many a request takes, and so how many requests run at a time.

Per engine, that is per data-parallel rank. On V4 one block id serves any of five groups, and every decoding request
holds 22 to 26 blocks whatever its length.
"""

import math
from dataclasses import dataclass
from typing import Final

from kintsugi.core.catalog.entities import KvLayout
from kintsugi.core.catalog.version import EngineVersion
from kintsugi.core.planner.figure import Figure
from kintsugi.core.planner.settings import Settings

TWO_CHUNKS_SINCE: Final = EngineVersion(0, 26)
"""From here on a prefill reserves for two steps in flight under async scheduling. Logs of 0.22 and 0.25 (vllm#44376,
vllm#51454) fit one step; the source of August 2026, between 0.28 and 0.29, says two. Where in between is assumed."""
_CHUNK: Final = 8192


@dataclass(frozen=True, slots=True)
class Blocks:
    """The blocks of one model under one engine's settings."""

    tokens: int
    """Tokens of one block."""
    bytes: int
    """Bytes of one block on one GPU."""
    format: str
    """Which of the layout's sizes that is: `fp8`, `mxfp4`, `bf16`."""
    fixed: tuple[int, int]
    """Held by a decoding request whatever its length: least, most."""
    spike: int
    """Taken by a prefill while its steps are in flight, beside the fixed ones."""
    in_flight_tokens: int
    basis: str

    def request(self, tokens: int) -> int:
        """Blocks of one decoding request of that length, at most."""
        return math.ceil(tokens / self.tokens) + self.fixed[1]

    def alone(self, tokens: int) -> int:
        """Blocks that one request of that length needs to be computed at all: what the engine checks at its start."""
        share = min(1.0, tokens / self.in_flight_tokens) if self.in_flight_tokens else 1.0
        return self.request(tokens) + math.ceil(self.spike * share)


def blocks_of(
    kv: KvLayout,
    settings: Settings,
    version: EngineVersion | None,
    legal_sizes: tuple[int, ...] = (),
) -> Blocks:
    """The layout under these settings; a format that the layout lacks falls back to its first one.

    `legal_sizes` are block sizes that the model takes, none: any. An illegal one counts as not said.
    """
    formats = dict(kv.block_bytes)
    wanted = "mxfp4" if settings.fp4_indexer else settings.kv_cache_dtype
    name = next((n for n in formats if wanted == n or wanted.startswith(n)), next(iter(formats)))
    told = settings.block_size
    size = told if told and (not legal_sizes or told in legal_sizes) else kv.block_tokens
    steps = 2 if settings.async_scheduling and (version is None or version >= TWO_CHUNKS_SINCE) else 1
    in_flight = steps * settings.batched_tokens
    per_token = max(0, kv.prefill_blocks_per_8192_tokens - kv.fixed_blocks[1]) / _CHUNK
    shared = 1 if kv.replicated_over_tensor_parallel else settings.tensor_parallel
    return Blocks(
        tokens=size,
        bytes=max(1, math.ceil(formats[name] * size / kv.block_tokens / settings.pipeline_parallel / shared)),
        format=name,
        fixed=kv.fixed_blocks,
        spike=math.ceil(per_token * in_flight),
        in_flight_tokens=in_flight,
        basis=kv.confidence,
    )


def concurrency(engine_blocks: Figure, blocks: Blocks, tokens: int) -> Figure:
    """Requests of that length that run at a time in one engine.

    Middle: every request holds its most, and a prefill is under way. High: the least, and none is.
    """
    least = math.ceil(tokens / blocks.tokens) + blocks.fixed[0]
    return Figure(
        _held(engine_blocks.value, blocks, tokens),
        _held(engine_blocks.low, blocks, tokens),
        max(0, math.floor(engine_blocks.high / least)),
        "assumed" if engine_blocks.basis == "assumed" else "measured",
        f"blocks / (ceil(length / {blocks.tokens}) + {blocks.fixed[1]}), less the prefill's {blocks.spike:,}",
    )


def _held(available: float, blocks: Blocks, tokens: int) -> int:
    many = math.floor((available - blocks.spike) / blocks.request(tokens))
    return max(many, 1 if available >= blocks.alone(tokens) else 0)


def longest_request(available: float, blocks: Blocks, limit: int) -> int:
    """Tokens of the longest request that `available` blocks can hold, at most `limit`; 0 where none."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if blocks.alone(middle) <= available else (low, middle - 1)
    return low
