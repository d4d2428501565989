"""What a pool costs by the hour and by the million tokens."""

from typing import Final

from kintsugi.core.catalog.entities import Gpu, Model
from kintsugi.core.planner.figure import Figure, exact

REFERENCE_TOKENS_PER_SECOND: Final = 107.0
"""Output tokens a second of one GPU: V4-Pro under vLLM on 8xB200, 32 requests of 8,192 in and 2,048 out at a time, 855 in
all (https://lambda.ai/inference-models/deepseek-ai/deepseek-v4-pro)."""
REFERENCE_ACTIVE: Final = 49.0
"""Active parameters of that model in billions: other models are taken to be faster in proportion."""
GENERATION_SPEED: Final = {"Blackwell": 1.0, "Hopper": 0.6, "CDNA4": 0.9, "CDNA3": 0.5, "Ampere": 0.25}
"""By memory bandwidth against B200 (8.0 TB/s): decoding is bound by it. H200 4.8, A100 2.0, MI300X 5.3, MI355X 8.0."""
UNKNOWN_SPEED: Final = 0.3
THROUGHPUT_BAND: Final = (0.3, 10.0)
"""A lightly loaded instance gives a third; published sweeps at hundreds of requests reach ten times as much."""


def tokens_per_second(model: Model, gpu: Gpu, gpus: int, given: float | None) -> Figure:
    """Output tokens a second of one instance: as given, else a wide assumption."""
    if given is not None:
        return exact(given, "given with --tokens-per-second")
    speed = GENERATION_SPEED.get(gpu.generation, UNKNOWN_SPEED)
    active = model.active_parameters or REFERENCE_ACTIVE
    value = REFERENCE_TOKENS_PER_SECOND * speed * REFERENCE_ACTIVE / active * gpus
    low, high = THROUGHPUT_BAND
    return Figure(
        value,
        value * low,
        value * high,
        "assumed",
        "scaled from V4-Pro on 8xB200 at 32 parallel requests; measure yours and give --tokens-per-second",
    )


def per_million_tokens(instance_hour: Figure, speed: Figure) -> Figure:
    """Price of a million output tokens of an instance that is busy all the time."""

    def price(cost: float, tokens: float) -> float:
        return cost / (tokens * 3600) * 1e6 if tokens > 0 else 0.0

    return Figure(
        price(instance_hour.value, speed.value),
        price(instance_hour.low, speed.high),
        price(instance_hour.high, speed.low),
        "measured" if instance_hour.basis == speed.basis == "measured" else "assumed",
        f"{instance_hour.source}; {speed.source}",
    )
