"""What is done to a node itself, where `healing.nodeActions` allows it: cordoned or tainted while a strike is in force.

Every deployment that wants it leaves its mark, and the last one that lets go undoes what was done; what people or other
controllers did is left alone. A mark whose time is over is taken off by whichever pass reads the nodes next.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from kintsugi.api.healing import NodeActions
from kintsugi.api.status import StrikeStatus
from kintsugi.core.moment import epoch, moment
from kintsugi.core.names import NODE_ACTION_ANNOTATION, NODE_HOLDER_PREFIX, SUSPECT_LABEL
from kintsugi.core.plan import PatchNode
from kintsugi.core.snapshot import NodeRoom

Json = dict[str, Any]

TAINT: Final[Mapping[str, str]] = {"key": SUSPECT_LABEL, "value": "true", "effect": "NoSchedule"}
MOST_PERCENT: Final = 10
"""Of all nodes, and at least one: a fault that strikes more of them is none of the nodes', and taking them away would
make it an outage (node-healthcheck-operator's minHealthy is there for the same reason)."""


def node_marks(
    strikes: tuple[StrikeStatus, ...],
    nodes: tuple[NodeRoom, ...] | None,
    allowed: NodeActions,
    holder: str,
    now: float,
) -> tuple[tuple[StrikeStatus, ...], tuple[PatchNode, ...], bool]:
    """(strikes that say what stands on their nodes, edits of nodes, whether nodes must be read for it)."""
    wanted = {
        s.node: epoch(s.expires_at)
        for s in strikes
        if allowed != "None" and not s.device and s.expires_at and epoch(s.expires_at) > now
    }
    standing = {s.node for s in strikes if s.action}
    if nodes is None:
        return strikes, (), wanted.keys() != standing
    found = {node.name: node for node in nodes}
    held = {name for name, node in found.items() if holder in node.holders}
    room = max(1, len(found) * MOST_PERCENT // 100) - sum(1 for node in nodes if node.holders)
    edits = [
        _unmarked(found[name], gone)
        for name in found
        if (gone := _over(found[name], holder, name in wanted, now))
    ]
    for name, until in sorted(wanted.items()):
        if name in found and name not in held and (room > 0 or found[name].holders):
            room -= not found[name].holders
            edits.append(_marked(found[name], holder, until, allowed))
    said = tuple(
        _saying(s, allowed if s.node in held and s.node in wanted else _left(s, held)) for s in strikes
    )
    return said, tuple(edits), bool(edits)


def _left(strike: StrikeStatus, held: Iterable[str]) -> str:
    """What still stands there of an action that nobody wants any more."""
    return strike.action if strike.node in held else ""


def _saying(strike: StrikeStatus, action: str) -> StrikeStatus:
    told = "" if strike.device else action
    return strike if strike.action == told else strike.model_copy(update={"action": told})


def _over(node: NodeRoom, holder: str, wanted: bool, now: float) -> tuple[str, ...]:
    """Holders whose mark is to go: ours where it is wanted no more, and any whose time is over."""
    return tuple(
        each
        for each, until in sorted(node.holders.items())
        if (each == holder and not wanted) or (each != holder and _passed(until, now))
    )


def _passed(until: str, now: float) -> bool:
    try:
        when = datetime.fromisoformat(until)
    except ValueError:
        return True
    return when.tzinfo is None or epoch(when) <= now


def _marked(node: NodeRoom, holder: str, until: float, action: NodeActions) -> PatchNode:
    annotations: Json = {f"{NODE_HOLDER_PREFIX}{holder}": moment(until).isoformat(timespec="seconds")}
    patch: Json = {"metadata": {"annotations": annotations, "labels": {SUSPECT_LABEL: "true"}}}
    if action == "Cordon" and not node.cordoned:
        annotations[NODE_ACTION_ANNOTATION] = action
        patch["spec"] = {"unschedulable": True}
    if action == "Taint" and TAINT not in node.taints:
        annotations[NODE_ACTION_ANNOTATION] = action
        patch["spec"] = {"taints": [*node.taints, dict(TAINT)]}
    return PatchNode(node.name, patch, node.resource_version)


def _unmarked(node: NodeRoom, holders: Iterable[str]) -> PatchNode:
    gone = set(holders)
    annotations: Json = {f"{NODE_HOLDER_PREFIX}{each}": None for each in sorted(gone)}
    patch: Json = {"metadata": {"annotations": annotations}}
    if not set(node.holders) - gone:
        patch["metadata"]["labels"] = {SUSPECT_LABEL: None}
        annotations[NODE_ACTION_ANNOTATION] = None
        if node.action == "Cordon":
            patch["spec"] = {"unschedulable": None}
        if node.action == "Taint":
            patch["spec"] = {"taints": [taint for taint in node.taints if taint != TAINT]}
    return PatchNode(node.name, patch, node.resource_version)
