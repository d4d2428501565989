"""Who matches whom: label selectors, taints and node affinity, as the API server and the scheduler see them."""

from collections.abc import Mapping, Sequence
from typing import Any


def labels_match(selector: Mapping[str, Any] | None, labels: Mapping[str, str]) -> bool:
    """A LabelSelector object against labels. An empty selector matches all, an absent one nothing."""
    if selector is None:
        return False
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    return all(_expression(each, labels) for each in selector.get("matchExpressions") or ())


def equal_labels(wanted: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """Equality selectors, as in `Service.spec.selector`; an empty one selects nothing."""
    return bool(wanted) and all(labels.get(key) == value for key, value in wanted.items())


def node_fits(spec: Mapping[str, Any], node: Mapping[str, Any]) -> bool:
    """Whether the scheduler may bind a pod of `spec` to `node`, resources aside."""
    meta, node_spec = node.get("metadata") or {}, node.get("spec") or {}
    labels: Mapping[str, str] = meta.get("labels") or {}
    if node_spec.get("unschedulable"):
        return False
    if any(labels.get(key) != value for key, value in (spec.get("nodeSelector") or {}).items()):
        return False
    required = (
        ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
            "requiredDuringSchedulingIgnoredDuringExecution"
        )
    ) or {}
    terms = required.get("nodeSelectorTerms")
    if terms is not None and not any(_term(term, labels, str(meta.get("name"))) for term in terms):
        return False
    return all(
        tolerates(spec.get("tolerations") or (), taint)
        for taint in node_spec.get("taints") or ()
        if taint.get("effect") in ("NoSchedule", "NoExecute")
    )


def tolerates(tolerations: Sequence[Mapping[str, Any]], taint: Mapping[str, Any]) -> bool:
    """Whether one of `tolerations` covers `taint`."""
    return any(_tolerates(each, taint) for each in tolerations)


def _tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    if toleration.get("effect") not in (None, "", taint.get("effect")):
        return False
    if toleration.get("operator") == "Exists":
        return toleration.get("key") in (None, "", taint.get("key"))
    return toleration.get("key") == taint.get("key") and toleration.get("value", "") == taint.get("value", "")


def _term(term: Mapping[str, Any], labels: Mapping[str, str], name: str) -> bool:
    """One node selector term; a term without any requirement matches nothing."""
    expressions, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    if not expressions and not fields:
        return False
    return all(_expression(each, labels) for each in expressions) and all(
        _expression(each, {"metadata.name": name}) for each in fields
    )


def _expression(requirement: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    key, operator, values = requirement["key"], requirement["operator"], list(requirement.get("values") or ())
    held = labels.get(key)
    if operator == "In":
        return held in values
    if operator == "NotIn":
        return held not in values
    if operator == "Exists":
        return key in labels
    if operator == "DoesNotExist":
        return key not in labels
    if held is None:
        return False
    return int(held) > int(values[0]) if operator == "Gt" else int(held) < int(values[0])
