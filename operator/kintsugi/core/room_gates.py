"""Gates about what lies outside of the fleet: this process's own youth, others' disruption budgets, nodes and quotas."""

from typing import Final

from kintsugi.core.question import Answer, Question
from kintsugi.core.snapshot import NodeRoom

ENDED: Final = frozenset({"Failed", "Succeeded"})


def operator_start(q: Question) -> Answer:
    """A new process, or a new leader, first looks for as long as the shortest evidence takes (safety rule 27).

    The judge's windows start again with every process, so only what Kubernetes itself tells (`dead`) could be acted
    upon sooner.
    """
    need = q.times.stall_withdraw
    seen = q.snapshot.mono - q.snapshot.observed_since
    if seen >= need:
        return Answer("operatorStart", True, f"this operator has watched for longer than {need:.0f} s")
    text = f"this operator has only begun to watch: it acts after {need:.0f} s"
    return Answer("operatorStart", False, text, q.snapshot.now + need - seen)


def disruption_budget(q: Question) -> Answer:
    """A budget of somebody else that refuses is waited for before anything is touched, and never forced."""
    covers = q.snapshot.covers.get(q.instance.uid, ())
    if q.instance.phase in ENDED:
        return Answer("disruptionBudget", True, "its pod has ended")
    if len(covers) > 1:
        names = ", ".join(cover.name for cover in covers)
        text = f"several PodDisruptionBudgets cover it ({names}), and Kubernetes evicts no such pod"
        return Answer("disruptionBudget", False, text)
    blocking = next((cover for cover in covers if cover.blocks), None)
    if blocking is None:
        return Answer("disruptionBudget", True, "no PodDisruptionBudget of others refuses its eviction")
    if blocking.never:
        text = f"PodDisruptionBudget {blocking.name} never allows an eviction: its owner has to change it"
        return Answer("disruptionBudget", False, text)
    if (q.view.room or 0) > 0 and q.instance.member:
        text = f"PodDisruptionBudget {blocking.name} allows none now: the replacement starts first"
        return Answer("disruptionBudget", True, text)
    text = f"PodDisruptionBudget {blocking.name} allows no eviction at this moment: waited for, never forced"
    return Answer("disruptionBudget", False, text)


def capacity(q: Question) -> Answer:
    """Whether a replacement could run at all, what the sick instance frees included; a spare GPU is not asked for."""
    if q.remedy == "RecreateElsewhere" or q.instance.phase in ENDED:
        return Answer("capacity", True, "asked of other nodes alone")
    quota = q.snapshot.quotas.get(q.view.name)
    if quota is not None and quota.room < 0:
        text = (
            f"ResourceQuota {quota.name} is overdrawn ({quota.resource}): its replacement would not be made"
        )
        return Answer("capacity", False, text)
    room = q.view.room
    if room is None or not q.view.nodes or q.view.gpus == 0:
        return Answer("capacity", True, "room on nodes is not known, or not needed")
    if room > 0:
        return Answer("capacity", True, f"room for {room} more")
    if quota is not None and quota.room == 0 and _fits_elsewhere(q):
        return Answer("capacity", True, f"ResourceQuota {quota.name} is full: it goes first")
    own = next((node for node in q.view.nodes if node.name == q.instance.node), None)
    if own is not None and own.ready and own.schedulable and own.gpus_free >= 0:
        return Answer("capacity", True, f"no free GPU: it goes first, and frees its own on {own.name}")
    text = f"no node could take its replacement: {_fault(q.instance.node, own)}, and no other has room"
    return Answer("capacity", False, text)


def _fits_elsewhere(q: Question) -> bool:
    nodes = q.view.nodes or ()
    return any(n.ready and n.schedulable and n.gpus_free >= q.view.gpus for n in nodes)


def _fault(name: str, node: NodeRoom | None) -> str:
    if not name:
        return "it runs on none"
    if node is None:
        return f"{name} is gone or must be avoided"
    if not node.ready:
        return f"{name} is not Ready"
    if not node.schedulable:
        return f"{name} is cordoned or tainted"
    return f"{name} has fewer healthy GPUs than are in use"
