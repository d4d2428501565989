"""What `status.capacity` holds: the planner's figures, then the engines' own."""

from typing import Annotated, Final, Literal

from pydantic import Field

from kintsugi.api.model import Keyed, Model
from kintsugi.api.remediation import Message, Word

MAX_AMOUNT: Final = 10**15
"""A petabyte, or as many tokens. The API server keeps bounds as floats: beyond 2**53 it would store another number, and
every apply of the CRD would change it again."""
Amount = Annotated[int, Field(ge=0, le=MAX_AMOUNT)]
MAX_LENGTHS: Final = 16


class LengthCapacity(Model):
    """Requests of one length."""

    tokens: Amount
    """Length of a request, prompt and answer together."""
    requests: Amount
    """How many of them the KV cache of one instance holds at a time."""


class PoolCapacity(Model):
    """One pool. Figures are of one instance; absent is what nobody can say."""

    name: Word
    """Name of the pool."""
    revision: Word = ""
    """The revision that the figures are about."""
    basis: Literal["Planned", "Measured"] = "Planned"
    """`Measured` once an engine of the revision has said its own figures."""
    fits: bool | None = None
    """Whether the planner believes that an instance runs on its hardware."""
    weights_bytes: Amount | None = None
    """Weights on all GPUs together, planned."""
    planned_kv_tokens: Amount | None = None
    """Tokens of KV cache of all engines together, planned."""
    kv_tokens: Amount | None = None
    """The same as the engines say it, once they run."""
    kv_blocks: Amount | None = None
    """Blocks of KV cache of all engines together, as they say it."""
    deviation_percent: float | None = None
    """By how much the engines' figure is above the planned one; negative where it is below."""
    previous_kv_tokens: Amount | None = None
    """What the pool's engines had in the revision before."""
    max_context: Amount | None = None
    """Longest request that an instance takes, planned."""
    concurrency: Annotated[tuple[LengthCapacity, ...], Keyed("tokens", max_items=MAX_LENGTHS)] = ()
    """Requests at a time by their length, planned, or scaled to the engines' own figure."""
    reason: Word = ""
    """`Planned`, `Measured`, `CannotPlan`, `DoesNotFit`, or `CapacityReduced`: the revision has over 5 % less KV cache
    than the one before."""
    message: Message = ""
    """The reason in a sentence, with figures."""


class CapacityStatus(Model):
    """What the pools can hold."""

    observed_generation: Annotated[int, Field(ge=0)] | None = None
    """Generation of the spec that was planned."""
    reason: Word = ""
    """The gravest reason of the pools."""
    message: Message = ""
    """Which pools that is about, and why; empty when all is well."""
    pools: Annotated[tuple[PoolCapacity, ...], Keyed("name", max_items=16)] = ()
    """The pools."""
