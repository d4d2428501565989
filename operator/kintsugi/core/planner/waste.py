"""How much KV cache the last, half-filled block of each request wastes, by block size."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kintsugi.core.catalog.entities import KvLayout

SIZES: Final = (16, 32, 64, 128, 256)


@dataclass(frozen=True, slots=True)
class BlockWaste:
    """One block size under a distribution of lengths."""

    block_size: int
    percent: float
    """Of the token slots held, those that no token is written to."""
    bytes_per_request: float
    legal: bool
    """Whether the model's kernels take this size."""


def block_waste(
    kv: KvLayout, legal_sizes: tuple[int, ...], lengths: Mapping[int, float], spread: bool = False
) -> tuple[BlockWaste, ...]:
    """A row per size, ascending. `lengths`: requests (or weights) by length in tokens; empty gives no rows.

    With `spread` the lengths are means of requests whose last block is half full, rather than exact.
    """
    kept = {length: weight for length, weight in lengths.items() if length > 0 and weight > 0}
    total = math.fsum(kept.values())
    if not kept or not total:
        return ()
    per_token = kv.block_bytes[0][1] / kv.block_tokens
    written = math.fsum(length * weight for length, weight in kept.items()) / total
    rows = []
    for size in sorted({*SIZES, *legal_sizes}):
        if spread:
            held = written + (size - 1) / 2
        else:
            held = math.fsum(math.ceil(n / size) * size * weight for n, weight in kept.items()) / total
        rows.append(
            BlockWaste(
                block_size=size,
                percent=100 * (held - written) / held,
                bytes_per_request=(held - written) * per_token,
                legal=not legal_sizes or size in legal_sizes,
            )
        )
    return tuple(rows)
