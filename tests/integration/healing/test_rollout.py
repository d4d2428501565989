"""New revisions and new sizes: one engine at a time, no request lost, and no further than the first that fails."""

import time

import pytest

from kintsugi.core import names
from tests.integration.fleet import NAME, PATIENCE, Fleet, is_ready
from tests.integration.sight import Json

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

ROLLOUT_SECONDS = 3 * PATIENCE


def rollout(fleet: Fleet, pool: str = "short") -> Json:
    return next((r for r in fleet.status.get("rollouts", ()) if r["pool"] == pool), {})


def revisions(fleet: Fleet) -> set[str]:
    return {pod["metadata"]["labels"][names.REVISION_LABEL] for pod in fleet.pods()}


def test_a_changed_argument_reaches_the_engines_one_at_a_time_and_no_request_fails(fleet: Fleet) -> None:
    fleet.apply({"short": 3})
    fleet.wait_until_ready()
    (old,) = revisions(fleet)
    began = time.time()
    with fleet.traffic(short=4) as sent:
        fleet.edit(engine=fleet.manifest["spec"]["engine"] | {"args": {"maxNumSeqs": 32}})
        fleet.sight.wait("Done", lambda: rollout(fleet).get("state") == "Done", ROLLOUT_SECONDS)
        fleet.wait_until_ready()
    assert old not in revisions(fleet)
    assert len(revisions(fleet)) == 1
    assert all("--max-num-seqs" in " ".join(p["spec"]["containers"][0]["args"]) for p in fleet.pods())
    assert [one.error for one in sent if one.error] == []
    assert fleet.least_serving(began) >= 2
    assert len(fleet.ended()) == 3
    fleet.sight.wait("the old ReplicaSet is gone", lambda: len(fleet.sight.now("replicasets")) == 1, PATIENCE)


def test_an_image_that_does_not_start_stops_at_the_first_pod_while_the_old_ones_serve(fleet: Fleet) -> None:
    fleet.apply({"short": 2})
    fleet.wait_until_ready()
    before = fleet.uids()
    good = fleet.manifest["spec"]["engine"]
    fleet.edit(engine=good | {"image": f"{fleet.image}-that-nobody-pushed"})
    fleet.sight.wait("Stalled", lambda: rollout(fleet).get("state") == "Stalled", ROLLOUT_SECONDS)
    time.sleep(10.0)
    assert len(fleet.uids() - before) == 1, "one pod of the new revision, no more"
    assert before <= fleet.uids()
    assert fleet.ended() == set()
    assert all(is_ready(pod) for pod in fleet.pods() if pod["metadata"]["uid"] in before)
    assert len(fleet.addresses("short")) == 2
    assert "does not start" in fleet.condition("Progressing")["message"]
    assert fleet.status["why"] == fleet.condition("Progressing")["message"]

    fleet.edit(engine=good)
    fleet.sight.wait("the bad pod is gone", lambda: fleet.uids() == before, PATIENCE)
    fleet.sight.wait("all is well", lambda: fleet.status["why"] == "", PATIENCE)


def test_changes_that_follow_each_other_faster_than_engines_start_end_with_the_last_one(fleet: Fleet) -> None:
    """S32."""
    fleet.apply({"short": 2})
    fleet.sight.wait("pods are made", lambda: len(fleet.pods()) == 2, PATIENCE)
    (first,) = revisions(fleet)
    good = fleet.manifest["spec"]["engine"]
    fleet.edit(engine=good | {"args": {"maxNumSeqs": 32}}, pools=[{"name": "short", "replicas": 3}])
    time.sleep(2.0)
    fleet.edit(engine=good)

    def ended() -> bool:
        pods = fleet.pods()
        return len(pods) == 3 and revisions(fleet) == {first} and all(map(is_ready, pods))

    fleet.sight.wait("three of the first revision", ended, ROLLOUT_SECONDS)
    generation = fleet.sight.now("deepseekv4deployments")[NAME]["metadata"]["generation"]
    fleet.sight.wait(
        "it is said", lambda: fleet.status.get("observedGeneration") == generation == 3, PATIENCE
    )
    fleet.sight.wait("one ReplicaSet is left", lambda: len(fleet.sight.now("replicasets")) == 1, PATIENCE)


def test_kubectl_scale_changes_the_pool_once_spec_replicas_was_set(fleet: Fleet) -> None:
    fleet.apply({"short": 1, "long": 1}, replicas=2, scalePool="short")
    fleet.sight.wait("two of short", lambda: _ready(fleet, "short") == 2, PATIENCE)
    before = fleet.uids()
    with fleet.traffic(short=3) as sent:
        fleet.kubectl("scale", f"dsv4/{NAME}", "--replicas=3")
        fleet.sight.wait("three of short", lambda: _ready(fleet, "short") == 3, PATIENCE)
        assert before <= fleet.uids()
        fleet.kubectl("scale", f"dsv4/{NAME}", "--replicas=1")
        fleet.sight.wait("one of short", lambda: len(fleet.pods("short")) == 1, 2 * PATIENCE)
        fleet.sight.wait("/scale says so", lambda: fleet.status.get("replicas") == 1, PATIENCE)
    assert [one.error for one in sent if one.error] == []
    assert _ready(fleet, "long") == 1
    assert fleet.status["selector"] == f"{names.DEPLOYMENT_LABEL}={NAME},{names.POOL_LABEL}=short," + (
        f"{names.ROTATION_LABEL}={names.ROTATION_IN}"
    )


def _ready(fleet: Fleet, pool: str) -> int:
    return sum(map(is_ready, fleet.pods(pool)))
