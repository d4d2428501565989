"""The newest word of a Prometheus server: taken without waiting, absent when the server is, and never an exception."""

import asyncio
import logging
from collections.abc import Collection, Mapping
from pathlib import Path

import pytest

from kintsugi.api.spec import DeploymentSpec
from kintsugi.core.snapshot import Key, Measured
from kintsugi.ports.errors import Unavailable
from kintsugi.ports.measurements import Source
from kintsugi.runtime.measuring import EVERY_SECONDS, Measuring
from kintsugi.testing.clock import SimulatedClock
from tests.unit.core.staging import deployment, instance

KEY = Key("llm", "chat")
URL = "http://prometheus.monitoring:9090"
OWN = "http://own.kintsugi:9090"
ONE = [instance("pod-a")]


class Server:
    """A port whose answers a test decides."""

    def __init__(self, clock: SimulatedClock) -> None:
        self.clock = clock
        self.asked: list[Source] = []
        self.error: Exception | None = None
        self.hold: asyncio.Event | None = None

    async def measure(
        self, source: Source, namespace: str, deployment: str, pods: Collection[str]
    ) -> Mapping[str, Measured]:
        assert (namespace, deployment) == ("llm", "chat")
        self.asked.append(source)
        if self.hold is not None:
            await self.hold.wait()
        if self.error is not None:
            raise self.error
        return {pod: Measured(self.clock.mono(), memory_rss=float(len(self.asked))) for pod in pods}

    async def close(self) -> None:
        self.asked.clear()


def spec(url: str = URL, prefix: str = "") -> DeploymentSpec:
    return deployment(monitoring={"prometheus": {"url": url, "metricPrefix": prefix}}).spec


class Scene:
    def __init__(self, own: str = "", token_file: str = "") -> None:
        self.clock = SimulatedClock()
        self.server = Server(self.clock)
        self.measuring = Measuring(self.server, self.clock, own, token_file)

    async def look(
        self, seconds: float = 5.0, spec_: DeploymentSpec | None = None
    ) -> tuple[float | None, str]:
        """What is known of pod-a after so much time, and why nothing is."""
        said = spec_ if spec_ is not None else spec()
        self.measuring.look(KEY, said, ONE)
        self.clock.move(seconds)
        self.measuring.look(KEY, said, ONE)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        seen = self.measuring.look(KEY, said, ONE)
        found = seen.measured.get("pod-a")
        return (None if found is None else found.memory_rss), seen.trouble


async def test_a_server_is_asked_once_a_minute_whatever_the_pace_of_passes() -> None:
    scene = Scene()
    for _ in range(120):
        await scene.look(5.0)
    assert 9 <= len(scene.server.asked) <= 11


async def test_a_pass_waits_for_nothing_and_goes_on_with_what_is_young() -> None:
    scene = Scene()
    await scene.look(EVERY_SECONDS)
    value, _ = await scene.look(EVERY_SECONDS)
    scene.server.hold = asyncio.Event()
    held, trouble = await scene.look(EVERY_SECONDS)
    assert (held, trouble) == (value, ""), "a question under way takes nothing away"
    late, _ = await scene.look(200.0)
    assert late is None, "three minutes old is too old"
    assert len(scene.server.asked) == 3, "and no second question beside one that hangs"


async def test_an_outage_is_absence_with_its_reason_and_ends_by_itself() -> None:
    scene = Scene()
    scene.server.error = Unavailable("gives no answer")
    for _ in range(3):
        value, trouble = await scene.look(EVERY_SECONDS)
        assert value is None
        assert trouble == f"the Prometheus server {URL} gives no answer"
    scene.server.error = None
    value, trouble = await scene.look(EVERY_SECONDS)
    assert value is not None
    assert trouble == ""


async def test_a_fault_of_ours_holds_up_no_pass(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    scene.server.error = RuntimeError("a bug")
    with caplog.at_level(logging.ERROR):
        value, trouble = await scene.look(EVERY_SECONDS)
    assert value is None
    assert "RuntimeError" in trouble
    assert "a bug" not in trouble
    assert any(record.exc_info for record in caplog.records), "and is in the log whole"


async def test_without_an_address_nobody_is_asked() -> None:
    scene = Scene()
    assert await scene.look(100.0, spec("")) == (None, "")
    assert scene.server.asked == []


async def test_the_operators_own_server_fills_in_and_gets_its_token_alone(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret\n")
    scene = Scene(OWN, str(token))
    await scene.look(EVERY_SECONDS, spec("", "site_"))
    assert scene.server.asked == [Source(OWN, "secret", "site_")]
    await scene.look(EVERY_SECONDS, spec(URL))
    await scene.look(EVERY_SECONDS, spec(URL))
    assert scene.server.asked[-1] == Source(URL, ""), "an address out of an object never sees the token"


async def test_a_token_that_cannot_be_read_is_said_and_no_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene(OWN, str(tmp_path / "none"))
    with caplog.at_level(logging.WARNING):
        value, _ = await scene.look(EVERY_SECONDS, spec(""))
    assert value is not None
    assert any("token not read" in record.message for record in caplog.records)


async def test_another_address_begins_anew_and_a_forgotten_deployment_ends_its_question() -> None:
    scene = Scene()
    await scene.look(EVERY_SECONDS)
    value, _ = await scene.look(0.0, spec(OWN))
    assert value is None
    scene.server.hold = asyncio.Event()
    await scene.look(EVERY_SECONDS, spec(OWN))
    scene.measuring.forget(KEY)
    await scene.measuring.close()
    await asyncio.sleep(0)
    assert not [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
