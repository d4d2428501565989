"""From `helm install` and one `kubectl apply` to a fleet that serves, under the restricted Pod Security level."""

import json
from typing import Any

import pytest

from kintsugi.core import names
from tests.integration.fleet import NAME, PATIENCE, Fleet
from tests.integration.installed import NAMESPACE, Release

pytestmark = pytest.mark.cluster

RESTRICTED = "pod-security.kubernetes.io/enforce"


def listed(fleet: Fleet, kind: str) -> dict[str, Any]:
    """Objects of that kind in the fleet's namespace, by name."""
    found = json.loads(fleet.kubectl("get", kind, "-o", "json"))["items"]
    return {one["metadata"]["name"]: one for one in found}


def test_the_operator_runs_and_leads_where_only_restricted_pods_may(installed: Release) -> None:
    labels = installed.cluster.get("namespace", NAMESPACE)["metadata"]["labels"]
    assert labels[RESTRICTED] == "restricted"
    assert installed.is_ready()
    lease = installed.cluster.get("lease", NAMESPACE, NAMESPACE)
    assert lease["spec"]["holderIdentity"] == installed.pod()["metadata"]["name"]


def test_one_apply_makes_services_budgets_and_pods_that_are_ready_and_says_so(fleet: Fleet) -> None:
    fleet.apply({"short": 2, "long": 1})
    pods = fleet.wait_until_ready()
    (short, long) = sorted(listed(fleet, "replicasets").values(), key=lambda one: -one["spec"]["replicas"])
    assert short["metadata"]["name"].startswith(f"{NAME}-short-")
    assert long["metadata"]["name"].startswith(f"{NAME}-long-")
    assert [one["status"]["readyReplicas"] for one in (short, long)] == [2, 1]
    services = listed(fleet, "services")
    assert set(services) == {f"{NAME}-short", f"{NAME}-long"}
    assert all(one["spec"]["selector"][names.ROTATION_LABEL] == "in" for one in services.values())
    assert set(listed(fleet, "poddisruptionbudgets")) == {f"{NAME}-short"}, "a pool of one has no budget"
    fleet.sight.wait(
        "all pods take traffic",
        lambda: (
            {pod["status"]["podIP"] for pod in pods} == fleet.addresses("short") | fleet.addresses("long")
        ),
        PATIENCE,
    )

    fleet.sight.wait("the status says that all is well", lambda: fleet.status.get("why", "…") == "", PATIENCE)
    said = {c["type"]: c["status"] for c in fleet.status["conditions"]}
    assert said == {
        "SpecAccepted": "True",
        "Available": "True",
        "Progressing": "False",
        "DataFresh": "True",
        "HealingAllowed": "True",
        "Degraded": "False",
    }
    assert all(c["observedGeneration"] == 1 for c in fleet.status["conditions"])
    assert fleet.status["rehearsal"]["speedUp"] > 1, "a faster clock is said in the status"
    head, row = fleet.kubectl("get", "dsv4").splitlines()
    assert head.split() == ["NAME", "READY", "AVAILABLE", "REASON", "HEALING", "MENDING", "WHY", "AGE"]
    assert row.split()[:6] == [NAME, "3/3", "True", "Serving", "Act", "0"]
