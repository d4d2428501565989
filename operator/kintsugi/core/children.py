"""Services and disruption budgets of the pools, brought to their form only where they differ."""

from collections.abc import Iterable, Mapping
from typing import Any

from kintsugi.api.effective import Pool
from kintsugi.core.names import POOL_LABEL
from kintsugi.core.plan import Action, Apply, Create, Delete
from kintsugi.core.render import disruption_budget, service
from kintsugi.core.snapshot import Snapshot


def children(snapshot: Snapshot, pools: Iterable[Pool]) -> tuple[Action, ...]:
    """What to apply and what to delete; nothing while the children were not read in this pass."""
    if snapshot.children is None:
        return ()
    wanted: dict[tuple[str, str], Mapping[str, Any]] = {}
    for pool in pools:
        made = service(snapshot.deployment, snapshot.uid, pool.name)
        wanted[("Service", made["metadata"]["name"])] = made
        if pool.replicas > 1:
            budget = disruption_budget(snapshot.deployment, snapshot.uid, pool.name)
            wanted[("PodDisruptionBudget", budget["metadata"]["name"])] = budget
    found = {(c["kind"], c["metadata"]["name"]): c for c in snapshot.children}
    # What is not ours yet is created, never applied over: pool `a-b` of `chat` and pool `b` of `chat-a` share a name.
    actions: list[Action] = [Create(manifest) for key, manifest in wanted.items() if key not in found]
    actions += [Apply(made) for key, made in wanted.items() if key in found and not _holds(found[key], made)]
    serving = {s.pool for s in snapshot.replica_sets if s.actual > 0 or s.wanted > 0}
    for key, child in found.items():
        pool_name = child["metadata"].get("labels", {}).get(POOL_LABEL)
        if key not in wanted and not (key[0] == "Service" and pool_name in serving):
            api = "v1" if key[0] == "Service" else "policy/v1"
            actions.append(Delete(api, key[0], key[1], child["metadata"]["uid"]))
    return tuple(actions)


def _holds(found: Any, wanted: Any) -> bool:
    """Every value that we want is there; what others or defaults added does not matter."""
    if isinstance(wanted, Mapping):
        return isinstance(found, Mapping) and all(
            key in found and _holds(found[key], wanted[key]) for key in wanted
        )
    if isinstance(wanted, list):
        return (
            isinstance(found, list)
            and len(found) == len(wanted)
            and all(_holds(a, b) for a, b in zip(found, wanted, strict=True))
        )
    return bool(found == wanted)
