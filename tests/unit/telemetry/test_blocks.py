"""What is counted in a block pool, on pools made by hand."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from kintsugi_engine.telemetry.blocks import ORPHAN_SECONDS, ORPHAN_SIGHTINGS, Group, Holding, Orphans, census


@dataclass
class FakeBlock:
    block_id: int
    ref_cnt: int = 0
    is_null: bool = False
    block_hash: object | None = None


@dataclass
class FakePool:
    """One null block and `size` others, all free and empty."""

    size: int
    blocks: list[FakeBlock] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.blocks = [FakeBlock(0, is_null=True), *(FakeBlock(i) for i in range(1, self.size + 1))]

    def get_num_free_blocks(self) -> int:
        return sum(1 for block in self.blocks if not block.is_null and block.ref_cnt == 0)

    def take(self, *ids: int, hashed: bool = False) -> list[FakeBlock]:
        for block in (found := [self.blocks[i] for i in ids]):
            block.ref_cnt += 1
            block.block_hash = block.block_id if hashed else block.block_hash
        return found


FULL = Group("0", "FullAttention", 32)


def test_blocks_by_state_sum_to_the_pool_without_its_null_block() -> None:
    pool = FakePool(10)
    pool.take(1, 2, hashed=True)
    pool.take(3)
    for kept in (4, 5):
        pool.blocks[kept].block_hash = "kept for reuse"
    seen = census(pool, [FULL], [Holding(70, [[pool.blocks[1], pool.blocks[2], pool.blocks[3]]])])
    assert (seen.active, seen.cached_free, seen.empty_free, seen.total) == (3, 2, 5, 10)
    assert seen.active == 10 - pool.get_num_free_blocks()
    assert not seen.unexplained


@pytest.mark.parametrize(
    ("tokens", "blocks", "ratio"),
    [
        (17, (1,), 15 / 32),
        (32, (1,), 0.0),
        (33, (1, 2), 31 / 64),
        (64, (1, 2), 0.0),
        (40, (1, 2, 3), 56 / 96),  # one whole block allocated ahead
        (0, (1,), 1.0),
    ],
)
def test_waste_is_the_share_of_held_slots_that_is_not_written(
    tokens: int, blocks: Sequence[int], ratio: float
) -> None:
    pool = FakePool(10)
    seen = census(pool, [FULL], [Holding(tokens, [pool.take(*blocks)])])
    assert seen.waste_ratio == pytest.approx(ratio)


def test_room_that_speculation_must_have_is_not_waste() -> None:
    pool = FakePool(10)
    holding = Holding(30, [pool.take(1, 2)])
    assert census(pool, [FULL], [holding]).waste_ratio == pytest.approx(34 / 64)
    assert census(pool, [FULL], [holding], ahead=8).waste_ratio == pytest.approx(26 / 64)


def test_a_prefix_that_requests_share_counts_once() -> None:
    pool = FakePool(10)
    first = Holding(40, [pool.take(1, 2)])
    second = Holding(40, [[*pool.take(1), *pool.take(3)]])
    seen = census(pool, [FULL], [first, second])
    assert seen.active == 3
    assert seen.waste_ratio == pytest.approx(48 / 96)


def test_blocks_kept_for_reuse_are_not_waste() -> None:
    pool = FakePool(10)
    for block in pool.blocks[2:]:
        block.block_hash = "kept"
    seen = census(pool, [FULL], [Holding(32, [pool.take(1)])])
    assert seen.waste_ratio == 0.0
    assert seen.cached_free == 9


def test_nothing_held_has_no_ratio() -> None:
    seen = census(FakePool(10), [FULL], [])
    assert seen.waste_ratio is None
    assert seen.waste[0].ratio is None


def test_each_group_counts_with_its_own_block_size_and_window() -> None:
    """As on DeepSeek-V4: 1000 tokens in blocks of 256, a window of 128 in blocks of 64, states in blocks of 4."""
    pool = FakePool(30)
    null = pool.blocks[0]
    window = Group("1", "SlidingWindowMLA", 64)
    state = Group("2", "SlidingWindowMLA", 4)
    held = [
        pool.take(1, 2, 3, 4),
        [null] * 13 + pool.take(5, 6, 7),
        [null] * 248 + pool.take(8, 9),
    ]
    seen = census(pool, [Group("0", "MLAAttention", 256), window, state], [Holding(1000, held)])
    ratios = [one.ratio for one in seen.waste]
    assert ratios == [pytest.approx(24 / 1024), pytest.approx(24 / 192), 0.0]
    assert [one.held for one in seen.waste] == [4, 3, 2]
    assert seen.waste_ratio == pytest.approx((24 / 256 + 24 / 64) / 9)
    assert not seen.unexplained


def test_a_ring_that_is_pinned_whole_wastes_nothing() -> None:
    pool = FakePool(10)
    ring = Group("1", "CircularBuffer", 8, by_position=False)
    seen = census(pool, [FULL, ring], [Holding(32, [pool.take(1), pool.take(2)])])
    assert seen.waste_ratio == 0.0
    assert seen.waste[1].ratio is None
    assert not seen.unexplained


def test_blocks_that_no_request_holds_are_unexplained() -> None:
    pool = FakePool(10)
    pool.take(7, 8)
    seen = census(pool, [FULL], [Holding(32, [pool.take(1)])])
    assert seen.unexplained == {7, 8}


def test_an_orphan_is_unexplained_for_long_and_at_every_look() -> None:
    orphans = Orphans()
    looks = [orphans.see([7], now) for now in range(0, int(ORPHAN_SECONDS) + 2, 10)]
    assert looks == [0, 0, 0, 0], "long enough, but not looked at often enough"
    assert ORPHAN_SIGHTINGS == 5
    assert orphans.see([7, 8], 40.0) == 1
    assert orphans.see([8], 50.0) == 0
    assert orphans.see([7], 60.0) == 0, "freed in between: it begins anew"
