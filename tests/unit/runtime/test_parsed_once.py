"""The object of a deployment: parsed once for each of its versions, and its times with it."""

from typing import Any

import pytest

from kintsugi.api.spec import DeploymentSpec
from kintsugi.core import names
from kintsugi.core.snapshot import Key
from kintsugi.core.times import Times, effective_times
from kintsugi.runtime import reconcile
from kintsugi.runtime.reconcile import Reconciler
from kintsugi.testing.clock import SimulatedClock
from kintsugi.testing.cluster import FakeCluster
from kintsugi.testing.fleet import FakeEngines
from kintsugi.testing.rehearsal import SilentRecorder

KEY = Key("team", "chat")


def interval(seconds: int) -> dict[str, Any]:
    return {"monitoring": {"scrapeIntervalSeconds": seconds}}


async def settled() -> tuple[FakeCluster, Reconciler]:
    """A fleet of one that has said all that it has to say."""
    cluster = FakeCluster(SimulatedClock())
    cluster.add_node("n1")
    cluster.put(
        {
            "apiVersion": names.API_VERSION,
            "kind": names.DEPLOYMENT_KIND,
            "metadata": {"namespace": KEY.namespace, "name": KEY.name},
            "spec": {
                "model": {"id": "deepseek-ai/DeepSeek-V4-Flash"},
                "hardware": {"gpusPerInstance": 1},
                "pools": [{"name": "main", "replicas": 1}],
                **interval(5),
            },
        }
    )
    operator = Reconciler(cluster, FakeEngines(cluster), cluster.clock, SilentRecorder())
    for wait in (1.0, 900.0, 5.0, 5.0, 5.0):
        cluster.clock.move(wait)
        assert await operator.run(KEY, 0.0) == 5.0
    return cluster, operator


async def test_a_quiet_deployment_s_times_are_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[DeploymentSpec] = []

    def counted(spec: DeploymentSpec) -> Times:
        computed.append(spec)
        return effective_times(spec)

    monkeypatch.setattr(reconcile, "effective_times", counted)
    cluster, operator = await settled()
    so_far = len(computed)
    for _ in range(3):
        cluster.clock.move(5.0)
        await operator.run(KEY, 0.0)
    assert len(computed) == so_far


async def test_an_edited_spec_is_heeded_in_the_very_next_pass() -> None:
    cluster, operator = await settled()
    cluster.edit(names.DEPLOYMENT_KIND, KEY.namespace, KEY.name, {"spec": interval(15)})
    assert await operator.run(KEY, 0.0) == 15.0
