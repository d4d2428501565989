"""The memory of nodes: who strikes, for how long, what is counted once, and what is forgotten."""

from dataclasses import replace
from datetime import datetime

from kintsugi.api.status import StrikeStatus
from kintsugi.core.moment import moment
from kintsugi.core.snapshot import Device, Failed, Failure, Instance, NodeRoom
from kintsugi.core.strikes import MOST, Blow, in_force, moved_away, strikes_after
from kintsugi.core.times import Times

NOW = 1_800_000_000.0
TIMES = Times()
NODES = (NodeRoom("n1", True, True, 8, {"kubernetes.io/hostname": "host1"}),)


def pod(uid: str, node: str = "n1", pool: str = "short", sick: str = "") -> Instance:
    devices = [Device("nvidia.com/gpu", "GPU-0", "Healthy")]
    devices += [Device("nvidia.com/gpu", sick, "Unhealthy")] if sick else []
    return Instance(
        name=uid,
        uid=uid,
        pool=pool,
        revision="r",
        node=node,
        created_at=NOW,
        phase="Running",
        phase_reason="",
        started_at=NOW,
        ready=True,
        ready_since=NOW,
        in_rotation=True,
        member=True,
        deleting=False,
        restarts=0,
        waiting_reason="",
        waiting_message="",
        last_termination=None,
        pod_ip="",
        annotations={},
        scrape=Failed(Failure.PENDING, "", 0.0),
        devices=tuple(devices),
    )


def dealt(
    before: tuple[StrikeStatus, ...], *blows: Blow, at: float = NOW, reset: datetime | None = None
) -> tuple[StrikeStatus, ...]:
    return strikes_after(before, blows, NODES, at, reset, TIMES)


def refusal(uid: str, node: str = "n1") -> Blow:
    return Blow(pod(uid, node), "NodeRefused", False)


def lasts(entry: StrikeStatus, since: float = NOW) -> float:
    assert entry.expires_at is not None
    return entry.expires_at.timestamp() - since


def test_a_move_strikes_the_node_and_its_sick_gpus_alone() -> None:
    node, gpu = dealt((), moved_away(pod("a", sick="GPU-7"), "deviceHealth"))
    assert (node.node, node.device, node.host, node.reason) == ("n1", "", "host1", "DeviceHealth")
    assert (gpu.device, gpu.count) == ("GPU-7", 1)
    assert lasts(node) == TIMES.strike_first
    assert in_force((node, gpu), "short", NOW + 7199) == {"n1": "host1"}
    assert in_force((node, gpu), "short", NOW + 7200) == {}
    assert in_force((node, gpu), "long", NOW) == {}, "other pools met nothing there"


def test_the_same_pod_counts_once_however_often_it_is_seen() -> None:
    once = dealt((), moved_away(pod("a"), "stall"))
    assert dealt(once, moved_away(pod("a"), "stall"), at=NOW + 5) == once


def test_again_within_the_week_lasts_longer_and_later_is_new() -> None:
    once = dealt((), moved_away(pod("a"), "stall"))
    again = dealt(once, moved_away(pod("b"), "stall"), at=NOW + 86_400)
    assert (again[0].count, lasts(again[0], NOW + 86_400)) == (2, TIMES.strike_again)
    much_later = dealt(once, moved_away(pod("b"), "stall"), at=NOW + 605_000)
    assert (much_later[0].count, lasts(much_later[0], NOW + 605_000)) == (1, TIMES.strike_first)


def test_one_refusal_is_counted_and_the_second_one_counts() -> None:
    one = dealt((), refusal("a"))
    assert (one[0].count, one[0].expires_at) == (1, None)
    assert in_force(one, "short", NOW) == {}
    two = dealt(one, refusal("b"), at=NOW + 5)
    assert lasts(two[0], NOW + 5) == TIMES.strike_first
    three = dealt(two, refusal("c"), at=NOW + 10)
    assert three[0].expires_at == two[0].expires_at, "those under way when it was told do not add to it"
    later = dealt(three, refusal("d"), at=NOW + 8000)
    assert lasts(later[0], NOW + 8000) == TIMES.strike_again


def test_pools_add_up_and_a_pod_without_a_node_strikes_none() -> None:
    both = dealt((), moved_away(pod("a"), "stall"), moved_away(pod("b", pool="long"), "stall"))
    assert both[0].pools == ("long", "short")
    assert dealt((), refusal("a", node="")) == ()


def test_a_reset_forgets_what_was_before_it_and_nothing_after() -> None:
    once = dealt((), moved_away(pod("a"), "stall"))
    assert dealt(once, at=NOW + 60, reset=moment(NOW + 30)) == ()
    assert dealt(once, at=NOW + 60, reset=moment(NOW - 30)) == once


def test_a_strike_whose_node_is_still_cordoned_is_lifted_and_not_forgotten() -> None:
    once = tuple(s.model_copy(update={"action": "Cordon"}) for s in dealt((), moved_away(pod("a"), "stall")))
    (kept,) = dealt(once, at=NOW + 60, reset=moment(NOW + 30))
    assert kept.action == "Cordon"
    assert in_force((kept,), "short", NOW + 60) == {}


def test_the_book_is_bounded_and_keeps_the_newest() -> None:
    blows = [moved_away(replace(pod(f"u{n}"), node=f"n{n:04d}"), "stall") for n in range(MOST)]
    full = dealt((), *blows)
    assert len(full) == MOST
    more = dealt(full, moved_away(pod("new", node="zzz"), "stall"), at=NOW + 5)
    assert len(more) == MOST
    assert more[-1].node == "zzz"
