"""Hours of simulated fleets, recorded as `kintsugi record` does it, without waiting for them."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from kintsugi.api.objects import DeepSeekV4Deployment, parse_deployment
from kintsugi.core import names
from kintsugi.core.advisor.saved import saved_looks
from kintsugi.core.backtest.completion import completed
from kintsugi.core.backtest.observation import Observed, observed
from kintsugi.core.backtest.replay import Replay, Terms, replay
from kintsugi.core.finding import Severity
from kintsugi.core.snapshot import Page
from kintsugi.ports.engines import Address
from kintsugi.ports.errors import Unavailable
from kintsugi.runtime.recording import Recording
from kintsugi.testing.rehearsal import WARM_SECONDS
from tests.scenarios.stage import Scene, warm

EVERY = 10.0
"""Seconds between looks: half the cost of 5."""
HOUR = 3600.0
Act = Callable[[Scene], None]


class PodProxy:
    """`runtime.traffic.Pages` over the engines of a scene."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene

    async def read(self, namespace: str, pod: str) -> str:
        found = self._scene.pod(pod)
        assert found is not None
        (scrape,) = await self._scene.engines.scrape([Address(str(found["status"]["podIP"]))], 1.0)
        if isinstance(scrape, Page):
            return scrape.text
        raise Unavailable(f"dial tcp: connect: {scrape.why}")


async def fleet(replicas: int = 3, seconds: float = WARM_SECONDS) -> Scene:
    """A fleet of one pool, `seconds` old. Its operator is stopped then, so that nobody heals what is recorded."""
    return await warm({"short": replicas}, nodes=replicas + 1, seconds=seconds, healing={"mode": "Observe"})


async def record(
    scene: Scene, acts: Iterable[tuple[float, Act]] = (), seconds: float = HOUR, every: float = EVERY
) -> str:
    """What `kintsugi record` writes in `seconds`; each of `acts` happens so many seconds after the beginning."""
    written: list[str] = []
    recording = Recording(scene.cluster, PodProxy(scene), scene.cluster.clock, scene.key, written.append)
    begin = scene.cluster.clock.mono()
    left = sorted(acts, key=lambda act: act[0])
    while (since := scene.cluster.clock.mono() - begin) < seconds:
        while left and left[0][0] <= since:
            left.pop(0)[1](scene)
        await recording.sweep()
        scene.cluster.clock.move(every)
    return "".join(written)


def policy(**healing: Any) -> DeepSeekV4Deployment:
    """The fleet's deployment, whose healing acts, unless `healing` says otherwise."""
    return parse_deployment(policy_manifest(**healing))


def policy_manifest(**healing: Any) -> dict[str, Any]:
    """The same as a manifest."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.DEPLOYMENT_KIND,
        "metadata": {"namespace": "llm", "name": "chat"},
        "spec": {
            "model": {"id": "deepseek-ai/DeepSeek-V4-Flash"},
            "hardware": {"gpusPerInstance": 1},
            "pools": [{"name": "short"}],
            "healing": {"mode": "Act", **healing},
        },
    }


def looks(text: str, deployment: str = "chat", pools: Iterable[str] = ("short",)) -> Iterator[Observed]:
    """The record as the replay takes it."""
    pages = saved_looks(text.splitlines(keepends=True), "record")
    return completed(map(observed, pages), dict.fromkeys(pools), deployment)


def change(pod: str, **behaviour: Any) -> Act:
    """From now on the engine in `pod` behaves otherwise."""
    return lambda scene: scene.engines.change(pod, **behaviour)


def names_of(scene: Scene) -> list[str]:
    """Names of the fleet's pods."""
    return [str(pod["metadata"]["name"]) for pod in scene.pods()]


def found(made: Replay) -> list[tuple[str, str]]:
    """Who was called sick, and of what."""
    return [(i.instance, i.finding.detector.value) for i in made.timeline.incidents]


def done(made: Replay) -> list[tuple[str, str]]:
    """What would have been done, to whom, in order."""
    return [(deed.what, deed.instance) for deed in made.deeds]


def suspected(made: Replay) -> set[tuple[str, str]]:
    """Who was suspected, and of what."""
    return {(d.instance, d.detector) for d in made.timeline.doubts if d.severity is Severity.SUSPECT}


def advised(made: Replay, detector: str) -> set[str]:
    """Whom this detector gave an advice on."""
    doubts = made.timeline.doubts
    return {d.instance for d in doubts if d.severity is Severity.ADVICE and d.detector == detector}


def backtest(text: str, deployment: DeepSeekV4Deployment, every: float = EVERY, infer: bool = True) -> Replay:
    """What the policy makes of the record."""
    terms = Terms(deployment, every, start_seconds=300.0, infer=infer)
    return replay(looks(text), terms, lambda now: None)
