"""A GPU that falls sick under a running engine (S55), and a node that refuses every pod (S24)."""

import json
import time
from collections.abc import Iterator

import pytest

from kintsugi.core import names
from tests.cluster.cluster import Cluster
from tests.integration.fleet import PATIENCE, Fleet, is_ready, manifest
from tests.integration.healing.conftest import NewFleet
from tests.integration.sight import Json

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

WHOLE_LADDER = {"ladder": ["Compact", "Recreate", "RecreateElsewhere"]}


@pytest.fixture
def sick_gpus(local_cluster: Cluster) -> Iterator[Cluster]:
    """The cluster, whose GPUs are all well again, and given to everybody, when the test is over."""
    yield local_cluster
    for node in local_cluster.nodes:
        node.set_refusing(False)
        node.set_unhealthy([])


def node_of(pod: Json) -> str:
    return str(pod["spec"]["nodeName"])


def gpu_of(pod: Json) -> str:
    """The id of the pod's GPU, as the kubelet names it."""
    (resource,) = pod["status"]["containerStatuses"][0]["allocatedResourcesStatus"]
    return str(resource["resources"][0]["resourceID"])


def template_of(fleet: Fleet) -> Json:
    (found,) = json.loads(fleet.kubectl("get", "replicasets", "-o", "json"))["items"]
    spec: Json = found["spec"]["template"]["spec"]
    return spec


def terms_of(fleet: Fleet) -> list[Json]:
    required = template_of(fleet)["affinity"]["nodeAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]
    terms: list[Json] = required["nodeSelectorTerms"]
    return terms


def node_events(cluster: Cluster, node: str) -> str:
    return cluster.kubectl(
        "get", "events", "-n", "default", "--field-selector", f"involvedObject.name={node}"
    )


def refused_in(fleet: Fleet) -> set[str]:
    """UIDs of all pods that a node refused, those of before included."""
    return {
        seen.uid
        for seen in fleet.sight.seen("pods")
        if seen.object.get("status", {}).get("reason") == "UnexpectedAdmissionError"
    }


@pytest.mark.timeout(560)
def test_a_sick_gpu_is_left_for_another_node_and_a_node_that_refuses_pods_is_avoided(
    new_fleet: NewFleet, sick_gpus: Cluster
) -> None:
    """S55 and S24, side by side."""
    moved, refused = new_fleet(), new_fleet()
    mine = {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}
    required = {"nodeSelectorTerms": [{"matchExpressions": [mine]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    template = manifest(moved.image, {"short": 2})["spec"].get("podTemplate", {})
    template.setdefault("spec", {})["affinity"] = affinity
    moved.apply({"short": 2}, WHOLE_LADDER, podTemplate=template)
    pods = moved.wait_until_ready()
    victim = next(pod for pod in pods if node_of(pod) != "node3")
    other = next(pod for pod in pods if pod is not victim)
    node, gpu = node_of(victim), gpu_of(victim)

    # From now on node3 offers GPUs and gives none; three pods on three nodes, so that one is sent there.
    sick_gpus.refuse_gpus("node3")
    refused.apply({"short": 3}, WHOLE_LADDER)
    time.sleep(2.0)
    sick_gpus.set_gpu_health(node, int(gpu.rpartition("-")[2]), healthy=False)

    done = moved.wait_until_done()
    assert (done["spec"]["trigger"], done["spec"]["remedy"]) == ("deviceHealth", "RecreateElsewhere")
    assert done["status"]["outcome"] == "Cured", done["status"]
    assert done["spec"]["instance"]["node"] == node
    assert done["metadata"]["labels"][names.SUSPECT_NODE_LABEL] == node
    replacement = next(
        p for p in moved.pods() if p["metadata"]["uid"] == done["status"]["replacement"]["uid"]
    )
    assert node_of(replacement) not in (node, "node3")
    assert other["metadata"]["uid"] in moved.uids(), "its sibling was left alone"
    assert moved.ended() - refused_in(moved) == {victim["metadata"]["uid"]}
    (term,) = terms_of(moved)
    assert term["matchExpressions"][0] == mine, "what the user wrote stands"
    avoided = term["matchExpressions"][1]
    assert (avoided["key"], avoided["operator"]) == (names.HOSTNAME_LABEL, "NotIn")
    assert node in avoided["values"]
    strikes = {(s["node"], s["device"]): s["count"] for s in moved.status["remediations"]["strikes"]}
    assert (strikes[node, ""], strikes[node, gpu]) == (1, 1)
    assert "NodeSuspect" in node_events(sick_gpus, node)
    assert "SchedulingDisabled" not in sick_gpus.kubectl("get", "nodes"), (
        "cordoned only where that is allowed"
    )

    refused.sight.wait(
        "all three serve beside the node that refuses",
        lambda: len(refused.pods()) == 3 and all(map(is_ready, refused.pods())),
        PATIENCE,
    )
    assert "node3" not in map(node_of, refused.pods())
    turned_away = refused_in(refused)
    print({"refused": len(turned_away)})
    # Kubernetes makes the next pod at once: dozens on a busy machine until it is known that two were refused.
    assert 2 <= len(turned_away) <= 150
    strike = next(s for s in refused.status["remediations"]["strikes"] if s["node"] == "node3")
    assert (strike["reason"], strike["device"]) == ("NodeRefused", "")
    assert refused.mends() == [], "nothing that served was touched"
    assert not [pod for pod in refused.pods() if pod["status"]["phase"] == "Failed"], "none is left"
    assert refused.status["remediations"].get("storms", []) == []
