"""PodDisruptionBudgets: whether an eviction may go ahead, and what it answers if not.

Rules: Kubernetes documentation, "Specifying a Disruption Budget", including `unhealthyPodEvictionPolicy`.
"""

import math

from kintsugi.ports.errors import Refused
from kintsugi.testing.cluster import pods
from kintsugi.testing.cluster.matching import labels_match
from kintsugi.testing.cluster.store import Json, ObjectStore


def check_eviction(store: ObjectStore, pod: Json) -> None:
    """Refused where a budget says not now, or where several budgets cover the pod."""
    if pods.ended(pod) or pods.deleting(pod) or pods.phase(pod) == "Pending":
        return
    namespace = pod["metadata"]["namespace"]
    budgets = [
        each
        for each in store.each("PodDisruptionBudget", namespace)
        if labels_match(each["spec"].get("selector"), pods.labels(pod))
    ]
    if not budgets:
        return
    if len(budgets) > 1:
        raise Refused(
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        )
    budget = budgets[0]
    spare, healthy, desired = _spare(store, budget)
    if not pods.is_ready(pod) and (
        budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow" or healthy >= desired > 0
    ):
        return
    if spare <= 0:
        raise Refused("Cannot evict pod as it would violate the pod's disruption budget.")


def budget_status(store: ObjectStore, budget: Json) -> Json:
    """The status that the disruption controller would write."""
    spare, healthy, desired = _spare(store, budget)
    return {"disruptionsAllowed": spare, "currentHealthy": healthy, "desiredHealthy": max(0, desired)}


def _spare(store: ObjectStore, budget: Json) -> tuple[int, int, int]:
    """(disruptions allowed, healthy now, healthy wanted) of one budget."""
    namespace, spec = budget["metadata"]["namespace"], budget["spec"]
    covered = [
        pod
        for pod in store.each("Pod", namespace)
        if labels_match(spec.get("selector"), pods.labels(pod)) and not pods.ended(pod)
    ]
    healthy = sum(pods.is_ready(pod) and not pods.deleting(pod) for pod in covered)
    if "maxUnavailable" in spec:
        expected = _expected(store, namespace, covered)
        if expected is None:
            return 0, healthy, healthy + 1
        desired = expected - _share(spec["maxUnavailable"], expected)
    else:
        wanted = spec.get("minAvailable", 1)
        expected = len(covered) if isinstance(wanted, int) else _expected(store, namespace, covered)
        if expected is None:
            return 0, healthy, healthy + 1
        desired = _share(wanted, expected)
    return max(0, healthy - max(0, desired)), healthy, desired


def _expected(store: ObjectStore, namespace: str, covered: list[Json]) -> int | None:
    """Sum of the scales of the covered pods' controllers; None where one has no readable scale (then none may go)."""
    scales: dict[str, int] = {}
    for pod in covered:
        boss = pods.controller(pod)
        owner = boss and store.find(boss["kind"], namespace, boss["name"])
        if (
            not boss
            or not owner
            or owner["metadata"]["uid"] != boss["uid"]
            or "replicas" not in owner["spec"]
        ):
            return None
        scales[boss["uid"]] = int(owner["spec"]["replicas"])
    return sum(scales.values())


def _share(value: int | str, whole: int) -> int:
    """A count, or a percentage of `whole`, rounded up as Kubernetes does."""
    return value if isinstance(value, int) else math.ceil(whole * int(value.rstrip("%")) / 100)
