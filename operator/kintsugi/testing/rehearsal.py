"""The whole loop against a fleet in memory: real passes, a fake cluster, fake engines, simulated time."""

from collections.abc import Callable, Mapping
from typing import Any

from kintsugi.api.objects import Remediation, parse_deployment, parse_remediation
from kintsugi.api.status import DeploymentStatus
from kintsugi.core import names
from kintsugi.core.judged import Judged
from kintsugi.core.plan import Plan
from kintsugi.core.snapshot import Key, Snapshot
from kintsugi.ports.cluster import ClusterPort
from kintsugi.ports.errors import PortError
from kintsugi.runtime.reconcile import Reconciler
from kintsugi.testing.cluster import FakeCluster, OperatorKilled
from kintsugi.testing.cluster.store import Json
from kintsugi.testing.fleet import FakeEngines

WARM_SECONDS = 1300.0
"""Warm-up and the reference window of `fragmentation` are over."""


class SilentRecorder:
    """A `ports.recorder.Recorder` that keeps nothing."""

    def note(self, snapshot: Snapshot, judged: Judged, plan: Plan) -> None:
        """Nothing."""

    def forget(self, key: Key) -> None:
        """Nothing."""

    def passed(self, key: Key, result: str, seconds: float) -> None:
        """Nothing."""


class Rehearsal:
    """A cluster, engines and an operator. `run` moves time pass by pass; `restart` kills and restarts the operator."""

    def __init__(
        self, seed: int = 0, nodes: int = 3, gpus: int = 2, cluster: FakeCluster | None = None
    ) -> None:
        self.cluster = cluster or FakeCluster(seed=seed)
        self.engines = FakeEngines(self.cluster)
        for number in range(1, nodes + 1):
            self.cluster.add_node(f"node{number}", gpus=gpus)
        self.key = Key("llm", "chat")
        self.restarts = 0
        self.operator = self._operator(self.cluster)

    def _operator(self, port: ClusterPort) -> Reconciler:
        return Reconciler(port, self.engines, self.cluster.clock, SilentRecorder())

    def deploy(self, pools: Mapping[str, int] | None = None, **spec: Any) -> None:
        """Create the deployment as a user would: one GPU an instance, `pools` by name and replicas."""
        wanted: Json = {
            "model": {"id": "deepseek-ai/DeepSeek-V4-Flash"},
            "hardware": {"gpusPerInstance": 1},
            "pools": [{"name": n, "replicas": c} for n, c in (pools or {"short": 3}).items()],
            **spec,
        }
        self.cluster.put(
            {
                "apiVersion": names.API_VERSION,
                "kind": names.DEPLOYMENT_KIND,
                "metadata": {"namespace": self.key.namespace, "name": self.key.name},
                "spec": wanted,
            }
        )

    def edit(self, **spec: Any) -> None:
        """Change the spec as a user would."""
        self.cluster.edit(names.DEPLOYMENT_KIND, self.key.namespace, self.key.name, {"spec": spec})

    def annotate(self, **annotations: str | None) -> None:
        """Annotate the deployment; `__` in a name stands for a slash and `_` for a dash."""
        told = {k.replace("__", "/").replace("_", "-"): v for k, v in annotations.items()}
        patch = {"metadata": {"annotations": told}}
        self.cluster.edit(names.DEPLOYMENT_KIND, self.key.namespace, self.key.name, patch)

    def restart(self) -> None:
        """kill -9 and a new process: everything it remembered is gone."""
        self.restarts += 1
        self.operator = self._operator(self.cluster)

    async def run(self, seconds: float, every: float = 5.0) -> None:
        """Let time pass, one pass every `every` seconds; an operator that is killed is restarted."""
        until = self.cluster.clock.mono() + seconds
        while self.cluster.clock.mono() < until - 1e-9:
            self.cluster.clock.move(min(every, until - self.cluster.clock.mono()))
            await self.step()

    async def step(self) -> None:
        """One pass, whatever it meets."""
        try:
            await self.operator.run(self.key, 0.0)
        except OperatorKilled:
            self.restart()
        except PortError:
            return

    async def run_until(
        self, condition: "Callable[[Rehearsal], bool]", within: float, every: float = 5.0
    ) -> float:
        """Run until `condition(self)` holds; the seconds that took. Raises TimeoutError after `within` seconds."""
        began = self.cluster.clock.mono()
        while not condition(self):
            if self.cluster.clock.mono() - began >= within:
                raise TimeoutError(f"not so within {within:.0f} s: {self.status.why}")
            await self.run(every, every)
        return self.cluster.clock.mono() - began

    @property
    def status(self) -> DeploymentStatus:
        """The deployment's status as it stands in the API."""
        raw = self.cluster.get(names.DEPLOYMENT_KIND, self.key.namespace, self.key.name)
        return parse_deployment(raw).status

    def condition(self, kind: str) -> tuple[str, str]:
        """(status, reason) of one condition; ('', '') where it is not there."""
        found = next((c for c in self.status.conditions if c.type == kind), None)
        return (found.status, found.reason) if found else ("", "")

    def pods(self, pool: str | None = None) -> list[Json]:
        """Pods of the deployment, by name."""
        found = self.cluster.all("Pod", self.key.namespace, deployment=self.key.name)
        labelled = [p for p in found if pool in (None, p["metadata"]["labels"][names.POOL_LABEL])]
        return sorted(labelled, key=lambda p: str(p["metadata"]["name"]))

    def uids(self, pool: str | None = None) -> set[str]:
        """UIDs of the pods."""
        return {str(pod["metadata"]["uid"]) for pod in self.pods(pool)}

    def names_of(self, pool: str) -> list[str]:
        """Names of the pool's pods."""
        return [str(pod["metadata"]["name"]) for pod in self.pods(pool)]

    def remediations(self) -> list[Remediation]:
        """Every Remediation, by name."""
        return [
            parse_remediation(raw) for raw in self.cluster.all(names.REMEDIATION_KIND, self.key.namespace)
        ]

    def removals(self) -> list[str]:
        """Names of the pods that the operator evicted, in order, each once."""
        evicted = [w.name for w in self.cluster.writes if w.verb == "evict"]
        return list(dict.fromkeys(evicted))

    def withheld(self) -> dict[str, str]:
        """Instance to the gate that holds its cure back."""
        return {entry.instance: entry.gate for entry in self.status.remediations.withheld}
