"""Counts a block pool: blocks by state, slots held and not written, blocks that nothing explains.

Knows vLLM's objects only by the few attributes that it reads (`Block`, `Pool`), so it needs no vLLM to be tested.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol


class Block(Protocol):
    """One block of the pool."""

    block_id: int
    ref_cnt: int
    is_null: bool

    @property
    def block_hash(self) -> object | None:
        """What prefix caching finds it by; None where it is not kept for reuse."""


class Pool(Protocol):
    """All blocks of one engine."""

    @property
    def blocks(self) -> Sequence[Block]: ...

    def get_num_free_blocks(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Group:
    """One KV cache group: the layers that share block tables.

    `block_size`: tokens that one of its blocks holds. `by_position`: block i holds the tokens from i * size on. False for
    rings and states, which a request pins whole whatever its length: nothing in them can be called unwritten.
    """

    name: str
    kind: str
    block_size: int
    by_position: bool = True


@dataclass(frozen=True, slots=True)
class Holding:
    """What one request holds: `tokens` written or being written by the step in flight, and its blocks by group."""

    tokens: int
    blocks: Sequence[Sequence[Block]]


@dataclass(frozen=True, slots=True)
class GroupWaste:
    """One group's blocks held by live requests, each block once, and their unwritten part, both in blocks."""

    group: Group
    held: int
    unwritten: float

    @property
    def ratio(self) -> float | None:
        """0..1; None where nothing is held, or where the group can waste nothing."""
        return self.unwritten / self.held if self.held and self.group.by_position else None


@dataclass(frozen=True, slots=True)
class Census:
    """One look at a pool. The null block is not counted: no request can have it."""

    active: int
    cached_free: int
    empty_free: int
    waste: tuple[GroupWaste, ...]
    unexplained: frozenset[int]
    """Blocks with a reference count that no holding given explains."""

    @property
    def total(self) -> int:
        return self.active + self.cached_free + self.empty_free

    @property
    def waste_ratio(self) -> float | None:
        """Over the groups that can waste: unwritten ÷ held, each block weighing the same, since each takes the same memory.

        None where no live request holds a block of such a group.
        """
        able = [one for one in self.waste if one.group.by_position]
        held = sum(one.held for one in able)
        return sum(one.unwritten for one in able) / held if held else None


def census(pool: Pool, groups: Sequence[Group], holdings: Iterable[Holding], ahead: int = 0) -> Census:
    """Count every block of the pool once. Costs O(blocks + blocks held).

    `ahead`: tokens that the engine must keep room for beyond a request's length (speculative decoding); their slots
    are pinned, not wasted.
    """
    held: list[set[int]] = [set() for _ in groups]
    unwritten = [0.0] * len(groups)
    for holding in holdings:
        needed = holding.tokens + ahead
        for index, (group, blocks) in enumerate(zip(groups, holding.blocks, strict=False)):
            mine = held[index]
            if group.by_position:
                unwritten[index] += _unwritten(group.block_size, blocks, needed, mine)
            mine.update([block.block_id for block in blocks if not block.is_null])
    explained = set[int]().union(*held)
    usable = [block for block in pool.blocks if not block.is_null]
    busy = [block for block in usable if block.ref_cnt > 0]
    kept = sum([block.block_hash is not None for block in usable])
    cached = kept - sum([block.block_hash is not None for block in busy])
    return Census(
        len(busy),
        cached,
        len(usable) - len(busy) - cached,
        tuple(GroupWaste(*one) for one in zip(groups, map(len, held), unwritten, strict=True)),
        frozenset([block.block_id for block in busy if block.block_id not in explained]),
    )


def _unwritten(size: int, blocks: Sequence[Block], needed: int, seen: set[int]) -> float:
    """The unwritten part, in blocks, of one request's blocks. Only those from the last written one on can have any."""
    total = 0.0
    for index in range(needed // size, len(blocks)):
        block = blocks[index]
        if not block.is_null and block.block_id not in seen:
            total += 1.0 - min(max(needed - index * size, 0), size) / size
    return total


ORPHAN_SECONDS: Final = 30.0
"""For so long a block must stay unexplained before it is called an orphan. vLLM holds blocks of ended requests for a step
or two (deferred frees, copies in flight), never for seconds."""

ORPHAN_SIGHTINGS: Final = 5
"""And at so many looks in a row: blocks are reused, and two short holds of one block look like a long one."""


class Orphans:
    """Which blocks nothing has explained for long enough. One for each pool."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[float, int]] = {}

    def see(self, unexplained: Iterable[int], now: float) -> int:
        """Take the blocks that one census could not explain; returns how many are orphans. `now`: monotonic seconds."""
        before = self._seen
        self._seen = {}
        count = 0
        for block in unexplained:
            since, sightings = before.get(block, (now, 0))
            self._seen[block] = (since, sightings + 1)
            count += now - since >= ORPHAN_SECONDS and sightings + 1 >= ORPHAN_SIGHTINGS
        return count
