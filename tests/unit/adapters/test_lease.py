"""Leader election over the Lease of a fake cluster, in simulated time."""

import pytest

from kintsugi.adapters.kube.lease import Leadership
from kintsugi.ports.errors import Forbidden, Unavailable
from kintsugi.testing.cluster import FakeApi, FakeCluster

NS = "kintsugi-system"


def candidate(cluster: FakeCluster, name: str, api: FakeApi | None = None) -> Leadership:
    return Leadership(api or cluster, cluster.clock, cluster.clock.now, NS, "kintsugi", name)


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


async def keep_for(cluster: FakeCluster, seconds: int, *candidates: Leadership) -> None:
    for _ in range(seconds // 2):
        for each in candidates:
            await each.keep()
        cluster.clock.move(2)


async def test_the_first_to_ask_leads_and_goes_on_leading(cluster: FakeCluster) -> None:
    a, b = candidate(cluster, "a"), candidate(cluster, "b")
    assert await a.keep()
    assert not await b.keep()
    await keep_for(cluster, 120, a, b)
    assert (a.leading, b.leading) == (True, False)
    spec = cluster.get("Lease", NS, "kintsugi")["spec"]
    assert (spec["holderIdentity"], spec["leaseTransitions"]) == ("a", 0)


async def test_another_takes_over_only_after_the_first_has_stopped_leading(cluster: FakeCluster) -> None:
    a, b = candidate(cluster, "a"), candidate(cluster, "b")
    await keep_for(cluster, 10, a, b)
    stopped = took_over = None
    for second in range(60):
        await b.keep()
        if stopped is None and not a.leading:
            stopped = second
        if took_over is None and b.leading:
            took_over = second
        assert not (a.leading and b.leading)
        cluster.clock.move(1)
    assert stopped is not None
    assert took_over is not None
    assert stopped < took_over <= 16
    spec = cluster.get("Lease", NS, "kintsugi")["spec"]
    assert (spec["holderIdentity"], spec["leaseTransitions"]) == ("b", 1)


async def test_a_leader_cut_off_from_the_api_stops_by_itself(cluster: FakeCluster) -> None:
    a = candidate(cluster, "a")
    await a.keep()
    cluster.outage(60)
    await keep_for(cluster, 8, a)
    assert a.leading
    await keep_for(cluster, 4, a)
    assert not a.leading
    await keep_for(cluster, 60, a)
    assert a.leading


async def test_a_lost_answer_does_not_prolong_the_lead(cluster: FakeCluster) -> None:
    a = candidate(cluster, "a")
    await a.keep()
    cluster.fail_next("update", "Lease", Unavailable, times=9, performed=True)
    await keep_for(cluster, 12, a)
    assert not a.leading


async def test_a_released_lease_is_taken_at_once(cluster: FakeCluster) -> None:
    a, b = candidate(cluster, "a"), candidate(cluster, "b")
    await a.keep()
    await a.release()
    assert not a.leading
    assert await b.keep()


async def test_of_two_that_grasp_an_expired_lease_one_leads(cluster: FakeCluster) -> None:
    old = candidate(cluster, "old")
    await old.keep()
    rivals = [candidate(cluster, name, cluster.client()) for name in ("b", "c")]
    await keep_for(cluster, 30, *rivals)
    assert sorted(each.leading for each in rivals) == [False, True]


async def test_a_machine_that_was_suspended_does_not_go_on_leading(cluster: FakeCluster) -> None:
    a = candidate(cluster, "a")
    await a.keep()
    cluster.clock.jump(3600)
    assert not a.leading
    assert await a.keep()


async def test_a_wall_clock_set_back_prolongs_nothing(cluster: FakeCluster) -> None:
    a = candidate(cluster, "a")
    await a.keep()
    cluster.clock.jump(-3600)
    cluster.clock.move(11)
    assert not a.leading


async def test_a_missing_permission_is_no_lead_and_no_crash(cluster: FakeCluster) -> None:
    a = candidate(cluster, "a")
    cluster.fail_next("create", "Lease", Forbidden)
    assert not await a.keep()
    await a.release()


async def test_the_same_identity_after_a_restart_renews_at_once(cluster: FakeCluster) -> None:
    await candidate(cluster, "a").keep()
    assert await candidate(cluster, "a").keep()


def test_a_lease_shorter_than_the_deadline_is_refused(cluster: FakeCluster) -> None:
    with pytest.raises(ValueError, match="must stop"):
        Leadership(cluster, cluster.clock, cluster.clock.now, NS, "kintsugi", "a", 10, 10)
