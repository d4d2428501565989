"""Objects of others that limit what may be removed or made: disruption budgets and resource quotas."""

import math
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from kintsugi.core import names
from kintsugi.core.snapshot import Cover, Quota

_UNITS: Final = {
    "": Decimal(1),
    "m": Decimal("0.001"),
    **{unit: Decimal(1000) ** power for power, unit in enumerate(("k", "M", "G", "T", "P", "E"), 1)},
    **{unit: Decimal(1024) ** power for power, unit in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)},
}
"""Suffixes of quantities (Kubernetes documentation, "Quantity")."""
_PODS: Final = frozenset({"pods", "count/pods"})


def covers(
    budgets: Iterable[Mapping[str, Any]], pods: Iterable[Mapping[str, Any]]
) -> dict[str, tuple[Cover, ...]]:
    """By pod UID: the disruption budgets of others that cover the pod, as they stand."""
    theirs = [each for each in budgets if _labels(each).get(names.MANAGED_BY_LABEL) != names.MANAGED_BY]
    found: dict[str, tuple[Cover, ...]] = {}
    for pod in pods if theirs else ():
        over = tuple(
            _cover(each, pod) for each in theirs if selects(_map(each, "spec").get("selector"), _labels(pod))
        )
        if over:
            found[str(_map(pod, "metadata").get("uid", ""))] = over
    return found


def _cover(budget: Mapping[str, Any], pod: Mapping[str, Any]) -> Cover:
    spec, status = _map(budget, "spec"), _map(budget, "status")
    allowed = int(status.get("disruptionsAllowed") or 0)
    healthy = int(status.get("currentHealthy") or 0) >= int(status.get("desiredHealthy") or 0) > 0
    unready_may_go = spec.get("unhealthyPodEvictionPolicy") == "AlwaysAllow" or healthy
    never = spec.get("maxUnavailable") in (0, "0%") or spec.get("minAvailable") == "100%"
    return Cover(
        name=str(_map(budget, "metadata").get("name", "")),
        blocks=allowed <= 0 and (_ready(pod) or not unready_may_go),
        never=never,
    )


def selects(selector: Any, labels: Mapping[str, str]) -> bool:
    """Whether a label selector of policy/v1 selects these labels: an empty one selects all, none selects nothing."""
    if not isinstance(selector, Mapping):
        return False
    exact = _map(selector, "matchLabels")
    if any(labels.get(key) != value for key, value in exact.items()):
        return False
    return all(_meets(each, labels) for each in selector.get("matchExpressions") or ())


def _meets(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    key, values = str(expression.get("key")), expression.get("values") or ()
    match expression.get("operator"):
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
        case _:
            return False


def quotas(found: Iterable[Mapping[str, Any]], pods: Sequence[Mapping[str, Any]]) -> dict[str, Quota]:
    """By pool: the quota that leaves room for the fewest further pods like those of the pool.

    Quotas with scopes are left out: whether they count these pods stands in their scopes, not here.
    """
    plain = [
        q for q in found if not _map(q, "spec").get("scopes") and not _map(q, "spec").get("scopeSelector")
    ]
    patterns: dict[str, Mapping[str, Any]] = {}
    for pod in pods if plain else ():
        patterns.setdefault(_labels(pod).get(names.POOL_LABEL, ""), pod)
    tightest: dict[str, Quota] = {}
    for pool, pod in patterns.items():
        for quota in plain:
            for resource, room in _rooms(quota, pod):
                if pool not in tightest or room < tightest[pool].room:
                    tightest[pool] = Quota(str(_map(quota, "metadata").get("name", "")), resource, room)
    return tightest


def _rooms(quota: Mapping[str, Any], pod: Mapping[str, Any]) -> Iterable[tuple[str, int]]:
    """(resource, further pods like this one that it allows); negative where more is used than allowed."""
    status = _map(quota, "status")
    hard, used = _map(status, "hard") or _map(_map(quota, "spec"), "hard"), _map(status, "used")
    for resource, limit in hard.items():
        need = _need(pod, resource)
        most, now = quantity(limit), quantity(used.get(resource, "0"))
        if need is None or most is None or now is None or need <= 0:
            continue
        yield resource, math.floor((most - now) / need)


def _need(pod: Mapping[str, Any], resource: str) -> Decimal | None:
    if resource in _PODS:
        return Decimal(1)
    kind, _, name = resource.partition(".")
    if kind not in ("requests", "limits") or not name:
        kind, name = "requests", resource
    total = Decimal(0)
    for container in _map(pod, "spec").get("containers") or ():
        asked = _map(_map(container, "resources"), kind)
        if kind == "requests" and name not in asked:
            asked = _map(_map(container, "resources"), "limits")
        total += quantity(asked.get(name, "0")) or Decimal(0)
    return total


def quantity(text: Any) -> Decimal | None:
    """A Kubernetes quantity as a number; None where it is none."""
    written = str(text).strip()
    digits = written.rstrip("kKMGTPEim")
    try:
        return Decimal(digits) * _UNITS[written[len(digits) :]]
    except (InvalidOperation, KeyError):
        return None


def _ready(pod: Mapping[str, Any]) -> bool:
    conditions = _map(pod, "status").get("conditions") or ()
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)


def _labels(obj: Mapping[str, Any]) -> Mapping[str, str]:
    return _map(_map(obj, "metadata"), "labels")


def _map(obj: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = obj.get(key)
    return found if isinstance(found, Mapping) else {}
