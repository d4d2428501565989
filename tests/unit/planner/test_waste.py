import pytest

from kintsugi.core.catalog.entities import KvLayout
from kintsugi.core.planner.waste import block_waste

LAYOUT = KvLayout(64, (("bf16", 64_000),), (0, 0), 0, True, "assumed")


def test_whole_blocks_waste_nothing_and_one_token_more_wastes_a_block() -> None:
    exact = {row.block_size: row for row in block_waste(LAYOUT, (), {256: 1})}
    assert all(row.percent == 0 for row in exact.values())
    over = {row.block_size: row for row in block_waste(LAYOUT, (), {257: 1})}
    assert over[256].percent == pytest.approx(100 * 255 / 512)
    assert over[16].percent == pytest.approx(100 * 15 / 272)
    assert over[256].bytes_per_request == pytest.approx(255 * 1000)


def test_lengths_count_by_their_weight() -> None:
    mixed = {row.block_size: row.percent for row in block_waste(LAYOUT, (), {1: 99, 256: 1})}
    assert mixed[256] > 95
    assert mixed[16] < 90


def test_means_waste_half_a_block() -> None:
    spread = {row.block_size: row.percent for row in block_waste(LAYOUT, (), {8192: 1}, spread=True)}
    assert spread[256] == pytest.approx(100 * 127.5 / (8192 + 127.5))
    assert list(spread.values()) == sorted(spread.values())


def test_only_the_models_own_sizes_are_legal() -> None:
    rows = block_waste(LAYOUT, (256,), {1000: 1})
    assert [row.block_size for row in rows if row.legal] == [256]


@pytest.mark.parametrize("lengths", [{}, {0: 1}, {100: 0}, {-5: 3}])
def test_no_lengths_give_no_rows(lengths: dict[int, float]) -> None:
    assert block_waste(LAYOUT, (), lengths) == ()
