"""A fleet to begin a scenario with, and the questions that scenarios ask of it again and again."""

from collections.abc import Callable
from functools import cache
from typing import Any

from kintsugi.api.crd import crd_documents
from kintsugi.api.model import format_timestamp
from kintsugi.api.objects import Remediation
from kintsugi.core import names
from kintsugi.core.ledger import RESET_BREAKERS_ANNOTATION
from kintsugi.core.moment import moment
from kintsugi.core.snapshot import Page, Scrape
from kintsugi.ports.engines import Address
from kintsugi.testing.cluster import FakeCluster, pods
from kintsugi.testing.cluster.schema import Schemas
from kintsugi.testing.cluster.store import Json
from kintsugi.testing.fleet import FakeEngines
from kintsugi.testing.rehearsal import WARM_SECONDS, Rehearsal
from tests.frozen import copied

PACE = 30.0
"""Seconds between two passes where a scenario does not measure in seconds: a sixth of the cost of 5."""
UNHURRIED = 15.0
"""Seconds between two passes where only the end of an attempt is asked: evidence may have gaps of 30."""

STATUS = "status DeepSeekV4Deployment chat"
LEARNED = "apply ConfigMap chat-kintsugi-learned"
"""What was learned of the engines, written at most once an hour."""


@cache
def schemas() -> Schemas:
    """The CRDs' schemas, generated once for all scenarios."""
    return Schemas.of_crds(crd_documents())


class Pages(FakeEngines):
    """Engines whose pages pass through somebody's hands: a proxy, an older version, a broken exporter."""

    def __init__(self, cluster: FakeCluster) -> None:
        super().__init__(cluster)
        self.rewrite: dict[str, Callable[[str], str]] = {}
        """By pod name: what becomes of its page."""

    def _scrape(self, pod: Json | None) -> Scrape:
        scrape = super()._scrape(pod)
        change = self.rewrite.get(str(pod["metadata"]["name"])) if pod is not None else None
        if change is None or not isinstance(scrape, Page):
            return scrape
        return Page(change(scrape.text), scrape.mono)


class Scene(Rehearsal):
    """A rehearsal whose operator looks, and whose engines are read, every `pace` seconds."""

    def __init__(
        self,
        nodes: int = 4,
        gpus: int = 1,
        pace: float = PACE,
        seed: int = 0,
        cluster: FakeCluster | None = None,
    ) -> None:
        super().__init__(seed, nodes, gpus, cluster or FakeCluster(seed=seed, schemas=schemas()))
        self.engines: Pages = Pages(self.cluster)
        self.operator = self._operator(self.cluster)
        self.pace = pace

    def deploy(self, pools: Any = None, **spec: Any) -> None:
        monitoring = {"scrapeIntervalSeconds": int(self.pace)}
        super().deploy(pools, **{"monitoring": monitoring, **spec})

    async def run(self, seconds: float, every: float | None = None) -> None:
        await super().run(seconds, every or self.pace)

    async def run_until(self, condition: Any, within: float, every: float | None = None) -> float:
        return await super().run_until(condition, within, every or self.pace)

    async def until_done(self, within: float = 3600.0, every: float | None = None) -> Remediation:
        """Run until no attempt is under way any more; the newest one."""

        def over(_: Rehearsal) -> bool:
            phases = self.phases()
            return bool(phases) and set(phases) == {"Done"}

        await self.run_until(over, within, every)
        return self.newest()

    async def until_removed(self, count: int = 1, within: float = 3600.0) -> float:
        """Run until so many pods were evicted; the seconds that took."""
        return await self.run_until(lambda scene: len(scene.removals()) >= count, within)

    async def until_phase(self, phase: str, within: float = 3600.0) -> Remediation:
        """Run until the newest attempt is in `phase`."""
        await self.run_until(
            lambda _: bool(self.remediations()) and self.newest().status.phase == phase, within
        )
        return self.newest()

    async def until_withdrawn(self, pod: str, within: float = 1200.0) -> float:
        """Run until `pod` is out of rotation; the seconds that took."""
        return await self.run_until(lambda _: self.rotation(pod) == "out", within)

    def reset(self) -> None:
        """What `kintsugi reset` does."""
        now = format_timestamp(moment(self.cluster.clock.now()))
        said = {RESET_BREAKERS_ANNOTATION: now, names.RESET_LADDERS_ANNOTATION: now}
        patch = {"metadata": {"annotations": said}}
        self.cluster.edit(names.DEPLOYMENT_KIND, self.key.namespace, self.key.name, patch)

    def approve(self, mend: str, by: str | None = "alice") -> None:
        """`kubectl annotate mend`; None takes it back."""
        patch = {"metadata": {"annotations": {names.APPROVE_ANNOTATION: by}}}
        self.cluster.edit(names.REMEDIATION_KIND, self.key.namespace, mend, patch)

    def phases(self) -> list[str]:
        """The phase of every attempt, read raw: cheap enough to ask after each pass."""
        found = self.cluster.all(names.REMEDIATION_KIND, self.key.namespace)
        return [str(each.get("status", {}).get("phase", "")) for each in found]

    def newest(self) -> Remediation:
        """The attempt that was decided last."""
        return max(self.remediations(), key=lambda each: str(each.status.timeline.decided))

    def pod(self, name: str) -> Json | None:
        """The pod of that name, or None."""
        return next((pod for pod in self.pods() if pod["metadata"]["name"] == name), None)

    def rotation(self, name: str) -> str:
        """'in' or 'out'; '' where the pod is gone."""
        pod = self.pod(name)
        return "" if pod is None else str(pod["metadata"]["labels"][names.ROTATION_LABEL])

    def uid(self, name: str) -> str:
        """UID of the pod of that name; '' where it is gone."""
        pod = self.pod(name)
        return "" if pod is None else str(pod["metadata"]["uid"])

    def node(self, name: str) -> str:
        """The node that the pod is bound to."""
        pod = self.pod(name)
        assert pod is not None
        return str(pod["spec"].get("nodeName", ""))

    def address(self, name: str) -> Address:
        """Where the pod's engine listens."""
        pod = self.pod(name)
        assert pod is not None
        return Address(str(pod["status"]["podIP"]))

    def serving(self, pool: str = "short") -> int:
        """Addresses to which the pool's Service sends new requests."""
        return len(self.cluster.endpoints(self.key.namespace, f"{self.key.name}-{pool}"))

    def serving_pod(self, name: str) -> bool:
        """Whether the pod takes new requests."""
        pod = self.pod(name)
        ready = pod is not None and pods.is_ready(pod) and not pods.deleting(pod)
        return ready and self.rotation(name) == names.ROTATION_IN

    def outcomes(self) -> list[str]:
        """Outcome of every attempt ('' while under way), in the order of their decisions."""
        found = sorted(self.remediations(), key=lambda each: str(each.status.timeline.decided))
        return [each.status.outcome or "" for each in found]

    def told(self, reason: str) -> int:
        """How many Events with this reason were posted."""
        return sum(event.reason == reason for event in self.cluster.events)

    def writes(self, *verbs: str, since: int = 0) -> list[str]:
        """Writes of the operator from the `since`-th on, as `verb Kind name`; only these verbs where any is named."""
        return [
            f"{w.verb} {w.kind} {w.name}" for w in self.cluster.writes[since:] if not verbs or w.verb in verbs
        ]


async def warm(
    pools: dict[str, int] | None = None,
    nodes: int = 4,
    gpus: int = 1,
    pace: float = PACE,
    seed: int = 0,
    seconds: float = WARM_SECONDS,
    then: float | None = None,
    **spec: Any,
) -> Scene:
    """A fleet that is up, warm and judged: anything that happens to it from now on counts.

    It is looked at every `pace` seconds; from the end of its warm-up on every `then` seconds, where that is given.
    Fleets that are alike are copies of one, which was warmed up once.
    """

    async def once() -> Scene:
        scene = Scene(nodes, gpus, pace, seed)
        scene.deploy(pools, **spec)
        await scene.run(seconds)
        return scene

    scene = await copied(("warm", pools, nodes, gpus, pace, seed, seconds, spec), once)
    if then is not None:
        scene.pace = then
        scene.edit(monitoring={"scrapeIntervalSeconds": int(then)})
        await scene.run(then)
    return scene
