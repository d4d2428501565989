"""Trouble on demand: each kind hits exactly what it is aimed at."""

from typing import Any

import pytest

from kintsugi.core import names
from kintsugi.core.snapshot import Key
from kintsugi.ports.errors import Conflict, NotFound, Unavailable
from kintsugi.testing.cluster import FakeCluster, OperatorKilled

KEY = Key("llm", "chat")


def service(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "llm", "name": name}, "spec": {}}


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


def there(cluster: FakeCluster) -> list[str]:
    return [each["metadata"]["name"] for each in cluster.all("Service")]


async def test_the_next_call_fails_and_the_one_after_does_not(cluster: FakeCluster) -> None:
    cluster.fail_next("create", "Service", Conflict)
    await cluster.list_pods(KEY)
    with pytest.raises(Conflict):
        await cluster.create(service("a"))
    await cluster.create(service("a"))
    assert there(cluster) == ["a"]


async def test_an_error_may_come_after_the_deed(cluster: FakeCluster) -> None:
    cluster.fail_next("*", "Service", Unavailable("lost"), performed=True)
    with pytest.raises(Unavailable, match="lost"):
        await cluster.create(service("a"))
    assert there(cluster) == ["a"]


async def test_an_outage_hits_reads_and_writes_of_one_client_for_its_time(cluster: FakeCluster) -> None:
    other = cluster.client()
    cluster.outage(60, after=10)
    await cluster.list_pods(KEY)
    cluster.clock.move(10)
    for call in (cluster.list_pods(KEY), cluster.create(service("a"))):
        with pytest.raises(Unavailable):
            await call
    await other.create(service("b"))
    cluster.clock.move(60)
    await cluster.create(service("c"))
    assert there(cluster) == ["b", "c"]


@pytest.mark.parametrize(("before", "done"), [(False, ["a", "b"]), (True, ["a"])])
async def test_death_comes_at_the_nth_write_before_or_after_it(
    cluster: FakeCluster, before: bool, done: list[str]
) -> None:
    cluster.crash_after(2, before=before)
    await cluster.create(service("a"))
    await cluster.list_pods(KEY)
    with pytest.raises(OperatorKilled):
        await cluster.create(service("b"))
    assert there(cluster) == done
    await cluster.create(service("c"))


async def test_a_write_that_is_refused_does_not_outlive_its_death(cluster: FakeCluster) -> None:
    cluster.crash_after(1)
    with pytest.raises(NotFound):
        await cluster.write_status(KEY, {}, "1")
    with pytest.raises(OperatorKilled):
        await cluster.create(service("a"))


def test_no_handler_of_ordinary_errors_catches_death() -> None:
    assert not issubclass(OperatorKilled, Exception)


async def test_only_what_was_done_is_in_the_log_of_writes(cluster: FakeCluster) -> None:
    other = cluster.client()
    cluster.fail_next("create", "Service", Conflict)
    with pytest.raises(Conflict):
        await cluster.create(service("a"))
    await cluster.create(service("a"))
    await other.create(service("b"))
    cluster.put(service("c"))
    assert [(w.verb, w.kind, w.name) for w in cluster.writes] == [("create", "Service", "a")]
    assert [w.name for w in other.writes] == ["b"]


async def test_everything_planned_can_be_called_off(cluster: FakeCluster) -> None:
    cluster.fail_next("*", "*", Conflict, times=9)
    cluster.outage(60)
    cluster.crash_after(1)
    cluster.faults.spare()
    await cluster.create(service("a"))


async def test_a_client_that_watches_some_namespaces_lists_those(cluster: FakeCluster) -> None:
    for namespace in ("a", "b"):
        cluster.put(
            {
                "apiVersion": names.API_VERSION,
                "kind": names.DEPLOYMENT_KIND,
                "metadata": {"namespace": namespace, "name": "chat"},
                "spec": {"model": {"id": "deepseek-ai/DeepSeek-V4-Flash"}},
            }
        )
    assert len(await cluster.list_deployments()) == 2
    assert [each["metadata"]["namespace"] for each in await cluster.client("b").list_deployments()] == ["b"]
