"""Looks become passes: each is used once, none is invented, and a hole in the history is no pass."""

import pytest

from kintsugi.core.advisor.saved import SavedInvalid
from kintsugi.core.backtest.moments import in_order, moments, spacing
from kintsugi.core.snapshot import Failed, Page
from tests.unit.backtest.looks import look


def read(made: object) -> list[list[tuple[str, float | None]]]:
    """By pass: each instance with the time of its page, None where it gave none."""
    return [
        [(i.uid, i.scrape.mono if isinstance(i.scrape, Page) else None) for i in moment.instances]
        for moment in made  # type: ignore[attr-defined]
    ]


def test_each_look_is_used_once_whatever_its_offset() -> None:
    looks = [look(100 + 5 * n + offset, uid) for n in range(4) for uid, offset in (("a", 0.0), ("b", 2.49))]
    found = list(moments(looks, 5.0))
    assert read(found) == [[("a", 100 + 5 * n), ("b", 102.49 + 5 * n)] for n in range(4)]
    assert [m.now for m in found] == [102.5, 107.5, 112.5, 117.5]
    assert [m.pages for m in found] == [2, 2, 2, 2]


def test_a_look_that_comes_a_little_late_is_used_in_the_next_pass() -> None:
    late = [look(t, "a") for t in (0.0, 5.0, 12.6, 14.9, 20.0)]
    looks = sorted([*late, *(look(5.0 * n, "b") for n in range(6))], key=lambda each: each.time)
    used = [dict(row)["a"] for row in read(moments(looks, 5.0))]
    assert used == [0.0, 5.0, None, 12.6, 14.9, 20.0]


def test_a_history_denser_than_the_passes_is_thinned_to_the_newest() -> None:
    used = [row[0][1] for row in read(moments([look(float(t)) for t in range(60)], 15.0))]
    assert used == [7.0, 22.0, 37.0, 52.0, 59.0]


def test_an_instance_without_a_look_is_unread_for_a_while_and_then_gone() -> None:
    looks = [look(5.0 * n, "a") for n in range(20)] + [look(0.0, "b")]
    rows = read(moments(sorted(looks, key=lambda each: each.time), 5.0))
    seen = [dict(row).get("b", "gone") for row in rows]
    assert seen == [0.0, *[None] * 9, *["gone"] * 10]


def test_a_pod_that_is_said_to_be_gone_is_gone_at_once() -> None:
    looks = [look(0.0, "a"), look(0.1, "b"), look(5.0, "a"), look(5.1, "b", None, gone=True), look(10.0, "a")]
    assert [len(row) for row in read(moments(looks, 5.0))] == [2, 1, 1]


def test_a_hole_in_the_history_holds_no_pass() -> None:
    found = list(moments([look(0.0), look(5.0), look(605.0), look(610.0)], 5.0))
    assert [m.now for m in found] == [2.5, 7.5, 607.5, 612.5]
    assert all(m.pages == 1 for m in found)


def test_a_failed_look_stays_one() -> None:
    (moment,) = moments([look(0.0, text=None)], 5.0)
    assert isinstance(moment.instances[0].scrape, Failed)
    assert moment.pages == 0


def test_no_look_is_no_pass() -> None:
    assert list(moments([], 5.0)) == []
    assert spacing([])[0] is None
    assert spacing([look(1.0)])[0] is None


def test_the_spacing_is_that_between_two_looks_at_one_instance() -> None:
    looks = [look(15.0 * n + offset, uid) for n in range(5) for uid, offset in (("a", 0.0), ("b", 1.0))]
    found, again = spacing(looks)
    assert found == 15.0
    assert list(again) == looks


def test_looks_that_stand_a_little_too_late_are_put_in_their_place() -> None:
    times = [0.0, 10.0, 5.0, 20.0, 15.0, 90.0]
    assert [seen.time for seen in in_order([look(t) for t in times], 10.0)] == sorted(times)


def test_looks_too_far_out_of_order_are_refused_with_the_cure() -> None:
    looks = [look(1000.0, "a"), look(1900.0, "a"), look(1005.0, "b")]
    with pytest.raises(
        SavedInvalid, match=r"look at b at 1005 stands 895 s too late.* in the order of their time"
    ):
        list(in_order(looks, 60.0))
