"""Node avoidance: the one edit of a ReplicaSet's template, by which new pods keep off nodes with strikes (design §3).

A template change moves no running pod and is no part of the revision. What we add stands in an annotation beside it, so
that it can be told from what the user wrote, and is taken out when the strikes expire.
"""

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Final

from kintsugi.core.names import AVOIDS_ANNOTATION, HOSTNAME_LABEL
from kintsugi.core.plan import Avoid
from kintsugi.core.snapshot import NodeRoom, ReplicaSet

Json = dict[str, Any]

REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


def avoid(found: ReplicaSet, hosts: Sequence[str]) -> Avoid | None:
    """The edit by which new pods of `found` avoid exactly `hosts`; None where they do already."""
    wanted = tuple(sorted(set(hosts)))
    if wanted == found.avoids:
        return None
    affinity = with_avoidance(found.affinity, found.avoids, wanted)
    annotations = {AVOIDS_ANNOTATION: ",".join(wanted) or None}
    patch = {
        "metadata": {"annotations": annotations},
        "spec": {"template": {"spec": {"affinity": _replacing(found.affinity, affinity)}}},
    }
    return Avoid(found.name, wanted, patch, found.resource_version)


def avoiding(manifest: Mapping[str, Any], hosts: Sequence[str]) -> Mapping[str, Any]:
    """A ReplicaSet that is about to be made, whose first pods avoid `hosts` already."""
    wanted = tuple(sorted(set(hosts)))
    if not wanted:
        return manifest
    made: Json = copy.deepcopy(dict(manifest))
    pod = made["spec"]["template"]["spec"]
    pod["affinity"] = with_avoidance(pod.get("affinity") or {}, (), wanted)
    made["metadata"].setdefault("annotations", {})[AVOIDS_ANNOTATION] = ",".join(wanted)
    return made


def with_avoidance(affinity: Mapping[str, Any], before: Sequence[str], hosts: Sequence[str]) -> Json:
    """`affinity` with the requirement that we added for `before` replaced by one for `hosts`.

    Terms are alternatives, so the requirement goes into every one of them. A term without requirements matches no node
    (Kubernetes API, NodeSelectorTerm) and is left so: with ours in it, it would match nearly all.
    """
    made: Json = copy.deepcopy(dict(affinity))
    node: Json = dict(made.get("nodeAffinity") or {})
    terms = [dict(term) for term in (node.get(REQUIRED) or {}).get("nodeSelectorTerms") or ()]
    stripped = [_without(term, before) for term in terms]
    # A term that held nothing but ours was made by us.
    kept = [after for term, after in zip(terms, stripped, strict=True) if after == term or not _empty(after)]
    if hosts:
        ours = {"key": HOSTNAME_LABEL, "operator": "NotIn", "values": list(hosts)}
        kept = [term if _empty(term) else _with(term, ours) for term in kept] or [
            {"matchExpressions": [ours]}
        ]
    if kept:
        node[REQUIRED] = {"nodeSelectorTerms": kept}
    else:
        node.pop(REQUIRED, None)
    if node:
        made["nodeAffinity"] = node
    else:
        made.pop("nodeAffinity", None)
    return made


def _with(term: Json, ours: Json) -> Json:
    return {**term, "matchExpressions": [*(term.get("matchExpressions") or ()), ours]}


def _without(term: Json, hosts: Sequence[str]) -> Json:
    """`term` without the requirement that we added; one of the user's that reads alike comes first and stays."""
    if not hosts:
        return term
    ours = {"key": HOSTNAME_LABEL, "operator": "NotIn", "values": list(hosts)}
    expressions = list(term.get("matchExpressions") or ())
    places = [place for place, each in enumerate(expressions) if each == ours]
    if not places:
        return term
    del expressions[places[-1]]
    rest = {key: value for key, value in term.items() if key != "matchExpressions"}
    return {**rest, "matchExpressions": expressions} if expressions else rest


def _empty(term: Mapping[str, Any]) -> bool:
    return not term.get("matchExpressions") and not term.get("matchFields")


def _replacing(old: Mapping[str, Any], new: Mapping[str, Any]) -> Json | None:
    """The merge patch from `old` to `new`: what is gone is said, lists are replaced whole."""
    if not new:
        return None
    patch: Json = {key: None for key in old if key not in new}
    for key, value in new.items():
        was = old.get(key)
        if isinstance(value, Mapping) and isinstance(was, Mapping):
            if value != was:
                patch[key] = _replacing(was, value)
        elif value != was:
            patch[key] = value
    return patch


def may_land(found: ReplicaSet | None, node: NodeRoom) -> bool:
    """Whether new pods of `found` may be bound to `node`, as far as its labels tell."""
    if found is None:
        return True
    if any(node.labels.get(key) != value for key, value in found.node_selector.items()):
        return False
    required = (found.affinity.get("nodeAffinity") or {}).get(REQUIRED) or {}
    terms = required.get("nodeSelectorTerms")
    return terms is None or any(_matches(term, node) for term in terms)


def _matches(term: Mapping[str, Any], node: NodeRoom) -> bool:
    fields = {"metadata.name": node.name}
    return (
        not _empty(term)
        and all(_meets(each, node.labels) for each in term.get("matchExpressions") or ())
        and all(_meets(each, fields) for each in term.get("matchFields") or ())
    )


def _meets(requirement: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """One requirement of a term; one that nobody can read is met by no node, as in Kubernetes."""
    key, values = str(requirement.get("key")), [str(each) for each in requirement.get("values") or ()]
    held = labels.get(key)
    match requirement.get("operator"):
        case "In":
            return held in values
        case "NotIn":
            return held not in values
        case "Exists":
            return held is not None
        case "DoesNotExist":
            return held is None
        case "Gt" | "Lt" as way if held is not None and len(values) == 1:
            return _compares(way, held, values[0])
    return False


def _compares(way: str, held: str, limit: str) -> bool:
    try:
        return int(held) > int(limit) if way == "Gt" else int(held) < int(limit)
    except ValueError:
        return False
