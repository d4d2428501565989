"""The light engines of the fake cluster, read by the operator's own reader of pages."""

from typing import Any

import pytest

from kintsugi.adapters.kube import parse
from kintsugi.core import names
from kintsugi.core.page import PageReader
from kintsugi.core.reading import Unreadable
from kintsugi.core.sample import Sample, read_sample
from kintsugi.core.series import Signal
from kintsugi.core.snapshot import Canary, CanaryOutcome, Failed, Failure, Page, ProcessKey
from kintsugi.ports.engines import Address
from kintsugi.testing.cluster import FakeCluster
from kintsugi.testing.fleet import Behaviour, FakeEngines

NS = "llm"


def pod(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": NS, "name": name, "labels": {names.ROTATION_LABEL: names.ROTATION_IN}},
        "spec": {"containers": [{"name": "engine", "image": "engine:1"}]},
    }


class Bench:
    def __init__(self, behaviour: Behaviour | None = None) -> None:
        self.cluster = FakeCluster()
        self.cluster.add_node("n1")
        self.cluster.put(pod("a"))
        self.engines = FakeEngines(self.cluster, lambda _: behaviour or Behaviour())
        self.reader = PageReader()

    async def until_ready(self) -> None:
        await self.cluster.advance(60)

    @property
    def address(self) -> Address:
        return Address(self.cluster.get("Pod", NS, "a")["status"]["podIP"])

    @property
    def process(self) -> ProcessKey:
        held = parse.instance(self.cluster.get("Pod", NS, "a"), Failed(Failure.NO_ADDRESS, "", 0.0)).process
        assert held is not None
        return held

    async def sample(self) -> Sample:
        (scrape,) = await self.engines.scrape([self.address], 4.0)
        assert isinstance(scrape, Page), scrape
        read = read_sample(self.reader, scrape)
        assert not isinstance(read, Unreadable)
        return read

    async def failure(self) -> Failure:
        (scrape,) = await self.engines.scrape([self.address], 4.0)
        assert isinstance(scrape, Failed)
        return scrape.failure

    def send(self, number: int = 1, abandon_after: float = 120.0) -> Canary:
        canary = Canary(f"kintsugi-canary-0-{number}", self.process, "0", self.cluster.clock.mono())
        self.engines.send_canary(self.address, canary, abandon_after)
        return canary


@pytest.fixture
async def bench() -> Bench:
    made = Bench()
    await made.until_ready()
    return made


async def test_counters_rise_with_time_and_gauges_stand(bench: Bench) -> None:
    first = await bench.sample()
    await bench.cluster.advance(5)
    second = await bench.sample()
    steps = (first.total("steps"), second.total("steps"))
    assert steps[0] is not None
    assert steps[1] == pytest.approx(steps[0] + 100, abs=1)
    assert second.total("running") == 4
    assert second.telemetry[Signal.GPU_FRAGMENTATION] == {"0": 0.05}


async def test_a_hung_engine_serves_its_page_and_steps_no_more(bench: Bench) -> None:
    bench.engines.change("a", hung=True)
    first = await bench.sample()
    await bench.cluster.advance(30)
    second = await bench.sample()
    assert second.total("steps") == first.total("steps")
    assert second.total("running") == 4


async def test_a_slow_engine_takes_longer_for_each_step(bench: Bench) -> None:
    bench.engines.change("a", slow=2.0)
    first = await bench.sample()
    await bench.cluster.advance(10)
    second = await bench.sample()
    steps, gaps = (
        (second.total(name) or 0.0) - (first.total(name) or 0.0) for name in ("steps", "itl_count")
    )
    assert steps == pytest.approx(100, abs=1)
    assert ((second.total("itl_sum") or 0.0) - (first.total("itl_sum") or 0.0)) / gaps == pytest.approx(
        0.1, rel=0.02
    )


async def test_a_withdrawn_engine_drains(bench: Bench) -> None:
    bench.cluster.edit("Pod", NS, "a", {"metadata": {"labels": {names.ROTATION_LABEL: names.ROTATION_OUT}}})
    assert (await bench.sample()).total("running") == 4
    await bench.cluster.advance(21)
    assert (await bench.sample()).total("running") == 0
    bench.cluster.edit("Pod", NS, "a", {"metadata": {"labels": {names.ROTATION_LABEL: names.ROTATION_IN}}})
    assert (await bench.sample()).total("running") == 4


async def test_a_canary_is_answered_and_moves_the_counters_of_an_idle_engine(bench: Bench) -> None:
    bench.engines.change("a", running=0.0)
    before = await bench.sample()
    sent = bench.send()
    await bench.cluster.advance(1)
    (result,) = bench.engines.canary_results()
    assert (result.canary, result.outcome, result.status) == (sent, CanaryOutcome.ANSWERED, 200)
    after = await bench.sample()
    assert (after.total("steps"), after.total("prompt_tokens")) == (
        (before.total("steps") or 0) + 1,
        (before.total("prompt_tokens") or 0) + 4,
    )
    assert bench.engines.canary_results() == []


async def test_a_canary_waits_while_the_engine_hangs_and_is_answered_when_it_resumes(bench: Bench) -> None:
    bench.engines.change("a", hung=True)
    bench.send()
    await bench.cluster.advance(60)
    assert bench.engines.canary_results() == []
    bench.engines.change("a", hung=False)
    assert [each.outcome for each in bench.engines.canary_results()] == [CanaryOutcome.ANSWERED]


async def test_an_unanswered_canary_is_abandoned_at_its_deadline(bench: Bench) -> None:
    bench.engines.change("a", hung=True)
    bench.send(abandon_after=100)
    await bench.cluster.advance(101)
    assert [each.outcome for each in bench.engines.canary_results()] == [CanaryOutcome.ABANDONED]


async def test_a_restart_ends_open_canaries_and_resets_the_counters(bench: Bench) -> None:
    bench.engines.change("a", hung=True)
    bench.send()
    bench.cluster.exit_container(NS, "a", 1)
    await bench.cluster.advance(2)
    assert [each.outcome for each in bench.engines.canary_results()] == [CanaryOutcome.CONNECTION_REFUSED]
    assert ((await bench.sample()).total("steps") or 0) < 60
    behaviour = bench.engines.behaviour_of("a")
    assert behaviour is not None
    assert not behaviour.hung


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (401, CanaryOutcome.REFUSED_BY_ENGINE),
        (500, CanaryOutcome.SERVER_ERROR),
        (503, CanaryOutcome.ADMISSION_FULL),
    ],
)
async def test_a_refusal_says_what_it_is(bench: Bench, status: int, outcome: CanaryOutcome) -> None:
    bench.engines.change("a", canary_status=status)
    bench.send()
    await bench.cluster.advance(1)
    assert [each.outcome for each in bench.engines.canary_results()] == [outcome]
    assert not await bench.engines.ask(bench.address, 10)


async def test_each_kind_of_silence_is_told_apart(bench: Bench) -> None:
    bench.engines.change("a", silent=True)
    assert await bench.failure() is Failure.SILENT
    bench.engines.change("a", silent=False, failure=Failure.HTTP_ERROR)
    assert await bench.failure() is Failure.HTTP_ERROR
    bench.engines.change("a", failure=None)
    bench.cluster.cut("n1")
    assert await bench.failure() is Failure.CONNECT_TIMEOUT
    bench.cluster.join("n1")
    bench.cluster.exit_container(NS, "a", 1)
    assert await bench.failure() is Failure.REFUSED


async def test_a_healthy_engine_answers_a_real_request(bench: Bench) -> None:
    assert await bench.engines.ask(bench.address, 10)
    bench.engines.change("a", hung=True)
    assert not await bench.engines.ask(bench.address, 10)
    assert bench.engines.asked == ["a", "a"]
