"""Hours of simulated fleets, recorded as `kintsugi record` does it, without waiting for them."""

from collections.abc import Callable, Iterable, Iterator

from kintsugi.api.objects import DeepSeekV4Deployment, parse_deployment
from kintsugi.core import names
from kintsugi.core.advisor.saved import saved_looks
from kintsugi.core.backtest.completion import completed
from kintsugi.core.backtest.observation import Observed, observed
from kintsugi.core.backtest.replay import Replay, Terms, replay
from kintsugi.core.snapshot import Page
from kintsugi.ports.engines import Address
from kintsugi.ports.errors import Unavailable
from kintsugi.runtime.recording import Recording, Sweep
from tests.scenarios.stage import Scene, warm

EVERY = 5.0
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


async def fleet(replicas: int = 3, **spec: object) -> Scene:
    """A warm fleet whose operator only observes; it is stopped, so that nobody heals what is recorded."""
    healing = {"mode": "Observe"}
    return await warm({"short": replicas}, nodes=replicas + 1, healing=healing, **spec)  # type: ignore[arg-type]


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


def policy(scene: Scene, **spec: object) -> DeepSeekV4Deployment:
    """The scene's own deployment under other settings: healing acts, unless said otherwise. No status."""
    raw = dict(scene.cluster.get(names.DEPLOYMENT_KIND, scene.key.namespace, scene.key.name))
    raw.pop("status", None)
    raw["spec"] = {**raw["spec"], "healing": {"mode": "Act"}, **spec}
    return parse_deployment(raw)


def looks(text: str, deployment: str = "chat", pools: Iterable[str] = ("short",)) -> Iterator[Observed]:
    """The record as the replay takes it."""
    pages = saved_looks(text.splitlines(keepends=True), "record")
    return completed(map(observed, pages), dict.fromkeys(pools), deployment)


def backtest(text: str, deployment: DeepSeekV4Deployment, every: float = EVERY, infer: bool = True) -> Replay:
    """What the policy makes of the record."""
    terms = Terms(deployment, every, start_seconds=300.0, infer=infer)
    return replay(looks(text), terms, lambda now: None)


__all__ = ["Recording", "Sweep", "backtest", "fleet", "looks", "policy", "record"]
