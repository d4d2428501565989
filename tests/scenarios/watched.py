"""A fleet of which every verdict and every finding is remembered, and the questions that are asked of those."""

import json
from collections.abc import Mapping

from kintsugi.core.finding import InstanceVerdict
from kintsugi.core.judged import Judged
from kintsugi.core.plan import Plan
from kintsugi.core.snapshot import Snapshot
from kintsugi.ports.cluster import ClusterPort
from kintsugi.runtime.reconcile import Reconciler
from kintsugi.testing.rehearsal import WARM_SECONDS, SilentRecorder
from tests.frozen import copied
from tests.scenarios.stage import PACE, Scene


class Keeping(SilentRecorder):
    """Remembers what was last judged, and every verdict that each instance ever had."""

    def __init__(self) -> None:
        self.judged: Judged | None = None
        self.seen: dict[str, set[tuple[str, str]]] = {}
        self.findings: dict[str, set[str]] = {}

    def note(self, snapshot: Snapshot, judged: Judged, plan: Plan) -> None:
        self.judged = judged
        for verdict in judged.verdicts.values():
            self.seen.setdefault(verdict.name, set()).add((verdict.verdict.value, verdict.reason))
            self.findings.setdefault(verdict.name, set()).update(f.reason for f in verdict.findings)


class WatchedScene(Scene):
    """A scene that remembers what was judged."""

    def __init__(self, nodes: int = 4, gpus: int = 1, pace: float = PACE) -> None:
        self.kept = Keeping()
        super().__init__(nodes, gpus, pace)

    def _operator(self, port: ClusterPort) -> Reconciler:
        return Reconciler(port, self.engines, self.cluster.clock, self.kept)

    def verdict(self, pod: str) -> InstanceVerdict:
        """The newest verdict on `pod`."""
        assert self.kept.judged is not None
        return next(v for v in self.kept.judged.verdicts.values() if v.name == pod)

    def reasons(self, pod: str) -> set[str]:
        """Reasons of the newest findings on `pod`."""
        return {finding.reason for finding in self.verdict(pod).findings}

    def forget(self) -> None:
        """What was seen so far is over: only what follows counts."""
        self.kept.seen.clear()
        self.kept.findings.clear()

    def status_json(self) -> str:
        """The deployment's status as strict JSON, which knows no NaN."""
        raw = self.cluster.get("DeepSeekV4Deployment", self.key.namespace, self.key.name)
        return json.dumps(raw["status"], allow_nan=False)


async def watched(pools: Mapping[str, int], nodes: int = 4) -> WatchedScene:
    """A fleet that is up and warm, as `stage.warm` makes it, and watched from now on."""

    async def once() -> WatchedScene:
        scene = WatchedScene(nodes)
        scene.deploy(dict(pools))
        await scene.run(WARM_SECONDS)
        scene.forget()
        return scene

    return await copied(("watched", dict(pools), nodes), once)


def nothing_happened(scene: WatchedScene) -> None:
    """No attempt, nobody withdrawn, nobody removed."""
    assert scene.remediations() == []
    assert scene.removals() == []
    assert {scene.rotation(name) for name in scene.names_of("short")} == {"in"}
