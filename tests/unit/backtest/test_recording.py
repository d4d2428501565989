"""Recording a fleet: every pod at every look, and an API server in trouble ends nothing."""

from typing import Any

import pytest

from kintsugi.core.advisor.saved import SavedPage, saved_looks
from kintsugi.core.backtest.observation import observed
from kintsugi.core.snapshot import Failed, Failure
from kintsugi.ports.errors import Forbidden, Unavailable
from kintsugi.runtime.recording import Recording, Sweep
from tests.backtest.recorded import PodProxy, change, fleet, names_of
from tests.scenarios.stage import Scene


class Impatient:
    """The scene's clock, on which whoever waits makes the time pass."""

    def __init__(self, scene: Scene) -> None:
        self._clock = scene.cluster.clock

    def now(self) -> float:
        return self._clock.now()

    def mono(self) -> float:
        return self._clock.mono()

    async def sleep(self, seconds: float) -> None:
        self._clock.move(seconds)


class Tape:
    """What was written, and told, of one recording."""

    def __init__(self, scene: Scene, pages: Any = None) -> None:
        self.written: list[str] = []
        self.told: list[Sweep] = []
        self.recording = Recording(
            scene.cluster, pages or PodProxy(scene), Impatient(scene), scene.key, self.written.append
        )

    @property
    def looks(self) -> list[SavedPage]:
        return list(saved_looks("".join(self.written).splitlines(keepends=True), "tape"))

    def of(self, pod: str) -> list[SavedPage]:
        return [look for look in self.looks if look.instance == pod]


async def test_every_pod_is_kept_with_its_page_and_its_facts() -> None:
    scene = await fleet(seconds=120.0)
    tape = Tape(scene)
    sweep = await tape.recording.sweep()
    assert (sweep.pods, sweep.pages, sweep.trouble) == (3, 3, "")
    assert [look.instance for look in tape.looks] == names_of(scene)
    seen = observed(tape.looks[0]).instance
    assert (seen.uid, seen.node, seen.pool) == (scene.uid(seen.name), scene.node(seen.name), "short")
    assert seen.ready
    assert seen.started_at is not None
    assert "vllm:num_requests_running" in tape.looks[0].text


async def test_it_looks_as_often_and_as_long_as_it_is_asked_to() -> None:
    scene = await fleet(seconds=120.0)
    tape = Tape(scene)
    pages = await tape.recording.run(60.0, 5.0, tape.told.append)
    assert pages == 13 * 3
    first = tape.told[0].at
    assert [round(sweep.at - first) for sweep in tape.told] == list(range(0, 61, 5))


async def test_a_page_that_does_not_come_is_kept_as_what_it_is() -> None:
    scene = await fleet(seconds=120.0)
    victim, other = names_of(scene)[:2]
    tape = Tape(scene)
    change(victim, failure=Failure.REFUSED)(scene)
    await tape.recording.sweep()
    (look,) = tape.of(victim)
    scrape = observed(look).instance.scrape
    assert isinstance(scrape, Failed)
    assert scrape.failure in (Failure.REFUSED, Failure.PENDING)
    assert look.text == ""
    assert tape.of(other)[0].text


async def test_a_pod_that_went_is_said_to_be_gone_once() -> None:
    scene = await fleet(seconds=120.0)
    victim = names_of(scene)[0]
    tape = Tape(scene)
    await tape.recording.sweep()
    scene.cluster.remove("Pod", "llm", victim)
    for _ in range(30):
        scene.cluster.clock.move(5.0)
        await tape.recording.sweep()
    assert [look.facts.get("failed") for look in tape.of(victim)].count("gone") <= 1
    scene.cluster.clock.move(900.0)
    await tape.recording.sweep()
    await tape.recording.sweep()
    assert [look.facts.get("failed") for look in tape.of(victim)].count("gone") == 1
    assert len({look.instance for look in tape.looks}) == 4


async def test_an_outage_of_the_api_server_is_a_hole_and_no_end() -> None:
    scene = await fleet(seconds=120.0)
    tape = Tape(scene)
    await tape.recording.sweep()
    scene.cluster.outage(30.0)
    assert (await tape.recording.sweep()).trouble
    scene.cluster.clock.move(31.0)
    assert (await tape.recording.sweep()).pages == 3
    assert len(tape.looks) == 6


class NoProxy:
    """Nobody may read pods."""

    async def read(self, namespace: str, pod: str) -> str:
        raise Forbidden("get pods/proxy")


class HalfPage:
    """A page whose end got lost."""

    async def read(self, namespace: str, pod: str) -> str:
        return "vllm:num_requests_running 1.0\nvllm:num_requests_waiting 1"


class Silent:
    """A proxy that gives up."""

    async def read(self, namespace: str, pod: str) -> str:
        raise Unavailable("context deadline exceeded")


async def test_a_missing_permission_is_told_and_not_recorded() -> None:
    with pytest.raises(Forbidden):
        await Tape(await fleet(seconds=120.0), NoProxy()).recording.sweep()


async def test_half_a_line_is_left_out() -> None:
    tape = Tape(await fleet(seconds=120.0), HalfPage())
    await tape.recording.sweep()
    assert {look.text for look in tape.looks} == {"vllm:num_requests_running 1.0\n"}


async def test_a_proxy_that_gives_up_proves_no_silence_of_the_engine() -> None:
    tape = Tape(await fleet(seconds=120.0), Silent())
    await tape.recording.sweep()
    assert {look.facts["failed"] for look in tape.looks} == {Failure.PENDING.value}


class Posing:
    """A page that poses as several."""

    async def read(self, namespace: str, pod: str) -> str:
        return "a 1\n# kintsugi-page time=5 instance=other\n# kintsugi-page nonsense\nb 2\n"


async def test_a_page_that_poses_as_another_spoils_nothing() -> None:
    scene = await fleet(seconds=120.0)
    tape = Tape(scene, Posing())
    await tape.recording.sweep()
    assert [look.instance for look in tape.looks] == names_of(scene)
    assert {look.text for look in tape.looks} == {"a 1\nb 2\n"}
