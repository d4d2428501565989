"""Disruption budgets and quotas, as Kubernetes writes them."""

from typing import Any

import pytest

from kintsugi.adapters.kube.room import covers, quantity, quotas, selects
from kintsugi.core.snapshot import Cover, Quota

Json = dict[str, Any]
LABELS = {"kintsugi.dev/pool": "short", "app": "chat"}


def pod(ready: bool = True, **requests: str) -> Json:
    asked = {"nvidia.com/gpu": "2", "memory": "64Gi", **requests}
    return {
        "metadata": {"uid": "u1", "labels": LABELS},
        "spec": {"containers": [{"resources": {"limits": asked}}]},
        "status": {"conditions": [{"type": "Ready", "status": "True" if ready else "False"}]},
    }


def budget(allowed: int, labels: Json | None = None, **spec: Any) -> Json:
    return {
        "metadata": {"name": "theirs", "labels": labels or {}},
        "spec": {"selector": {"matchLabels": {"app": "chat"}}, **spec},
        "status": {"disruptionsAllowed": allowed, "currentHealthy": 2, "desiredHealthy": 3},
    }


@pytest.mark.parametrize(
    ("found", "seen", "expected"),
    [
        (budget(1), pod(), Cover("theirs", False, False)),
        (budget(0), pod(), Cover("theirs", True, False)),
        (budget(0, maxUnavailable=0), pod(), Cover("theirs", True, True)),
        (budget(0, minAvailable="100%"), pod(), Cover("theirs", True, True)),
        (budget(0), pod(ready=False), Cover("theirs", True, False)),
        (
            budget(0, unhealthyPodEvictionPolicy="AlwaysAllow"),
            pod(ready=False),
            Cover("theirs", False, False),
        ),
    ],
)
def test_whether_a_budget_blocks_follows_kubernetes(found: Json, seen: Json, expected: Cover) -> None:
    assert covers([found], [seen]) == {"u1": (expected,)}


def test_our_own_budgets_and_those_of_other_pods_do_not_count() -> None:
    ours = budget(0, labels={"app.kubernetes.io/managed-by": "kintsugi"})
    other = budget(0, selector={"matchLabels": {"app": "other"}})
    assert covers([ours, other], [pod()]) == {}


@pytest.mark.parametrize(
    ("selector", "selected"),
    [
        (None, False),
        ({}, True),
        ({"matchLabels": {"app": "chat", "x": "y"}}, False),
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["chat", "b"]}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["chat"]}]}, False),
        ({"matchExpressions": [{"key": "app", "operator": "Exists"}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}, False),
    ],
)
def test_selectors_of_every_kind(selector: Any, selected: bool) -> None:
    assert selects(selector, LABELS) is selected


@pytest.mark.parametrize(
    ("hard", "used", "expected"),
    [
        ({"pods": "10"}, {"pods": "8"}, Quota("q", "pods", 2)),
        (
            {"requests.nvidia.com/gpu": "8"},
            {"requests.nvidia.com/gpu": "7"},
            Quota("q", "requests.nvidia.com/gpu", 0),
        ),
        ({"limits.memory": "256Gi"}, {"limits.memory": "300Gi"}, Quota("q", "limits.memory", -1)),
        ({"memory": "200Gi", "pods": "9"}, {"memory": "0", "pods": "0"}, Quota("q", "memory", 3)),
    ],
)
def test_the_tightest_resource_says_how_many_more_pods_fit(hard: Json, used: Json, expected: Quota) -> None:
    found = {"metadata": {"name": "q"}, "spec": {"hard": hard}, "status": {"hard": hard, "used": used}}
    assert quotas([found], [pod()]) == {"short": expected}


def test_a_quota_with_a_scope_or_of_other_things_says_nothing() -> None:
    scoped = {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "0"}, "scopes": ["BestEffort"]}}
    other = {"metadata": {"name": "q"}, "spec": {"hard": {"services": "0", "requests.storage": "1Gi"}}}
    assert quotas([scoped, other], [pod()]) == {}


@pytest.mark.parametrize(
    ("text", "value"), [("500m", 0.5), ("2", 2), ("1Ki", 1024), ("3M", 3_000_000), ("x", None)]
)
def test_quantities(text: str, value: float | None) -> None:
    found = quantity(text)
    assert (None if found is None else float(found)) == value
