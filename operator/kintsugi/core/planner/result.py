"""A pool's plan: what the planner says, as values."""

from dataclasses import dataclass

from kintsugi.core.planner.article import Formulas
from kintsugi.core.planner.figure import Figure
from kintsugi.core.planner.finding import PlanFinding
from kintsugi.core.planner.kv import Blocks
from kintsugi.core.planner.memory import GpuMemory
from kintsugi.core.planner.offload import OffloadNeeds
from kintsugi.core.planner.waste import BlockWaste


@dataclass(frozen=True, slots=True)
class KvPlan:
    """The KV cache of one instance."""

    blocks: Blocks
    engine_blocks: Figure
    """Of one engine (DP rank)."""
    engines: int
    tokens: Figure
    """Of all engines of the instance together: blocks times tokens of a block."""
    concurrency: tuple[tuple[int, Figure], ...]
    """By length in tokens, ascending: requests that the instance's KV cache holds at a time."""
    longest: int
    """Tokens of the longest request that the instance takes."""


@dataclass(frozen=True, slots=True)
class Alternative:
    """The same GPUs, divided another way."""

    layout: str
    tokens: Figure
    factor: float
    """Its KV tokens to the plan's."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Money. None: no price is known."""

    currency: str
    date: str
    instance_hour: Figure
    pool_hour: Figure
    tokens_per_second: Figure
    """Output tokens of one instance."""
    per_million_tokens: Figure


@dataclass(frozen=True, slots=True)
class Margin:
    """What the pool has to lose and to gain."""

    after_one_failure: int
    """Instances left."""
    concurrency_after: tuple[tuple[int, int], ...]
    """By length: requests that those hold."""
    surge_gpus: int
    """Free GPUs that one replacement needs to start before the old instance goes."""


@dataclass(frozen=True, slots=True)
class PoolPlan:
    """Everything said of one pool. Fields are None where nobody can say, never a guess."""

    name: str
    model: str
    gpu: str
    """Kind, '' where unknown."""
    gpus: int
    """Of one instance, over all its nodes."""
    nodes: int
    replicas: int
    layout: str
    fits: bool | None
    """None: not a question of GPUs (an instance on the CPU)."""
    context: int | None
    """Tokens that the engine is told to take at most."""
    memory: GpuMemory | None
    weights: Figure | None
    """On all GPUs of one instance together."""
    kv: KvPlan | None
    admitted: int | None
    """Requests that the schedulers of one instance run at a time: max_num_seqs of all its engines."""
    alternative: Alternative | None
    cost: Cost | None
    margin: Margin | None
    offload: OffloadNeeds | None
    offload_tokens: int | None
    """Tokens that the offloaded blocks of one instance hold."""
    formulas: Formulas | None
    waste: tuple[BlockWaste, ...]
    findings: tuple[PlanFinding, ...]

    def sustained(self, tokens: int) -> int | None:
        """Requests of that length that the whole pool runs at a time: what memory holds and schedulers admit."""
        if self.kv is None:
            return None
        held = dict(self.kv.concurrency).get(tokens)
        if held is None:
            return None
        one = int(held.value) if self.admitted is None else min(int(held.value), self.admitted)
        return one * self.replicas
