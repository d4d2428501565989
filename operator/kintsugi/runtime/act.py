"""`commit` and `act`: record first, then do; each action idempotent and keyed on a UID."""

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kintsugi.adapters.kube import parse
from kintsugi.api.effective import pools_of
from kintsugi.api.objects import Remediation, parse_deployment
from kintsugi.api.status import ActiveRemediation
from kintsugi.core.judged import Judged
from kintsugi.core.live import needs_a_last_look, reason_to_refrain
from kintsugi.core.names import (
    ATTEMPT_ANNOTATION,
    DELETION_COST_ANNOTATION,
    MEMBER_LABEL,
    RETIRING_SINCE_ANNOTATION,
    ROTATION_IN,
    ROTATION_LABEL,
    ROTATION_OUT,
)
from kintsugi.core.plan import (
    Action,
    Apply,
    Ask,
    Avoid,
    Compact,
    Create,
    Delete,
    Discard,
    Evict,
    PatchNode,
    Plan,
    Release,
    Restore,
    Retire,
    Scale,
    Unretire,
    Withdraw,
)
from kintsugi.core.poolview import PoolView, pool_views
from kintsugi.core.render import owner_reference
from kintsugi.core.snapshot import Instance, Snapshot
from kintsugi.core.times import Times
from kintsugi.ports.audit import ATTEMPT
from kintsugi.ports.cluster import ClusterPort, Json
from kintsugi.ports.errors import AlreadyExists, Conflict, NotFound, PortError, Refused

log = logging.getLogger("kintsugi.act")

RETIRED_COST = "-1000"
"""Below the default 0, so that the ReplicaSet ends the pod that was withdrawn for it."""


class CrdOutdated(Exception):
    """The API server dropped parts of the status: a reservation would not be durable, so nothing may be done."""

    def __init__(self, paths: tuple[str, ...]) -> None:
        self.paths = paths
        super().__init__(f"the installed CRD lacks status fields: {', '.join(paths)}")


class Actor:
    """Carries plans out. Raises Conflict where the plan is stale, other PortErrors where Kubernetes can't be reached."""

    def __init__(self, cluster: ClusterPort) -> None:
        self._cluster = cluster

    async def commit(self, snapshot: Snapshot, plan: Plan) -> bool:
        """Write the status if it says something new, and see that it stands; whether it was written."""
        if plan.status == snapshot.deployment.status:  # no need to compare what would be written
            return False
        wanted = plan.status.dump()
        if wanted == snapshot.deployment.status.dump():
            return False
        version = await self._cluster.write_status(snapshot.key, wanted, snapshot.resource_version)
        standing = await self._cluster.get_deployment(snapshot.key)
        if standing is None or str(standing["metadata"]["resourceVersion"]) != version:
            raise Conflict(f"{snapshot.key}: somebody wrote right after the commit")
        lost = missing_paths(wanted, standing.get("status", {}))
        if lost:
            raise CrdOutdated(lost)
        return True

    async def record(self, snapshot: Snapshot, plan: Plan) -> None:
        """Create the Remediations that are missing, and bring their status up to date."""
        for remediation in plan.remediations:
            found = snapshot.remediations.get(remediation.spec.attempt_id)
            version = found.metadata.resource_version if found else None
            if found is None:
                version = await self._created(remediation)
            elif found.status.dump() == remediation.status.dump():
                continue
            namespace, name = remediation.metadata.namespace or "", remediation.metadata.name
            await self._cluster.write_remediation_status(
                namespace, name, remediation.status.dump(), version or ""
            )

    async def _created(self, remediation: Remediation) -> str:
        manifest = remediation.dump()
        manifest.pop("status", None)
        try:
            made = await self._cluster.create(manifest)
        except AlreadyExists:
            found = await self._cluster.get_remediation(
                remediation.metadata.namespace or "", remediation.metadata.name
            )
            if found is None:
                raise Conflict(
                    f"Remediation {remediation.metadata.name} went away while it was made"
                ) from None
            made = found
        return str(made["metadata"]["resourceVersion"])

    async def act(self, snapshot: Snapshot, plan: Plan, judged: Judged, times: Times) -> None:
        """Take the actions in order. One that is refused or stale stops nothing else; the next pass sees what is."""
        fresh: dict[str, PoolView] | None = None
        standing: tuple[ActiveRemediation, ...] | None = None
        for action in plan.actions:
            if needs_a_last_look(action):
                fresh = fresh or await self._fresh_views(snapshot, judged)
                standing = standing if standing is not None else await self._standing(snapshot)
                why = _refrain(action, snapshot, standing, fresh, times)
                if why:
                    log.warning(
                        "action withheld at the last look", extra=_told(snapshot, action) | {"why": why}
                    )
                    continue
            ATTEMPT.set(getattr(action, "attempt", ""))
            try:
                await self._take(snapshot, action)
            except (Conflict, NotFound, AlreadyExists) as error:
                log.info(
                    "action found the world changed", extra=_told(snapshot, action) | {"why": str(error)}
                )
            except Refused as error:
                log.warning("action refused for now", extra=_told(snapshot, action) | {"why": str(error)})
            except PortError as error:
                log.warning("action failed", extra=_told(snapshot, action) | {"why": str(error)})
            else:
                if not isinstance(action, Ask | Compact):
                    log.info("action taken", extra=_told(snapshot, action))

    async def _standing(self, snapshot: Snapshot) -> tuple[ActiveRemediation, ...]:
        """The reservations as they stand in the API at this moment: another operator may have ended one since."""
        raw = await self._cluster.get_deployment(snapshot.key)
        if raw is None:
            return ()
        active = parse_deployment(raw).status.remediations.active
        return tuple(a for a in active if a.outcome is None)

    async def _fresh_views(self, snapshot: Snapshot, judged: Judged) -> dict[str, PoolView]:
        pods = await self._cluster.list_pods(snapshot.key)
        scrapes: Mapping[str, Instance] = {i.uid: i for i in snapshot.instances}
        instances = tuple(
            parse.instance(pod, scrapes[uid].scrape)
            for pod in pods
            if (uid := str(pod["metadata"]["uid"])) in scrapes
        )
        views = pool_views(
            replace(snapshot, instances=instances), pools_of(snapshot.deployment.spec), judged.verdicts
        )
        return {view.name: view for view in views}

    async def _take(self, snapshot: Snapshot, action: Action) -> None:
        namespace = snapshot.key.namespace
        match action:
            case Create(manifest):
                await self._cluster.create(dict(manifest))
            case Apply(manifest):
                await self._cluster.apply(dict(manifest))
            case Delete(api_version, kind, name, uid):
                await self._cluster.delete(api_version, kind, namespace, name, uid)
            case Avoid(name, _, patch, version):
                await self._cluster.patch_replica_set(namespace, name, dict(patch), version)
            case PatchNode(name, patch, version):
                await self._cluster.patch_node(name, dict(patch), version)
            case Discard(pod, uid):
                await self._cluster.evict(namespace, pod, uid, None)
            case Scale(name, replicas, version):
                await self._cluster.scale_replica_set(namespace, name, replicas, version)
            case Evict(pod, uid, _, grace):
                await self._cluster.evict(namespace, pod, uid, grace)
            case Ask() | Compact():
                pass  # the pass sends it: it goes to an engine, not to Kubernetes
            case _:
                await self._cluster.patch_pod(namespace, action.pod, action.uid, _patch(snapshot, action))


def _refrain(
    action: Action,
    snapshot: Snapshot,
    standing: tuple[ActiveRemediation, ...],
    fresh: Mapping[str, PoolView],
    times: Times,
) -> str | None:
    attempt = getattr(action, "attempt", "")
    active = next((a for a in standing if a.id == attempt), None)
    if active is None:
        return "no reservation stands for it"
    view = fresh.get(active.pool)
    if view is None:
        released = isinstance(action, Evict) and active.path == "Surge"
        return None if released else "its pool is not in the spec any more"
    budget = snapshot.deployment.spec.healing.budget
    return reason_to_refrain(action, active, view, budget.min_healthy_percent, times)


def _patch(snapshot: Snapshot, action: Withdraw | Restore | Release | Retire | Unretire) -> Json:
    """The merge patch for one pod; lists are replaced whole, None removes a key."""
    match action:
        case Withdraw(attempt=attempt):
            return _metadata({ROTATION_LABEL: ROTATION_OUT}, {ATTEMPT_ANNOTATION: attempt})
        case Restore(attempt=attempt):
            return _metadata({ROTATION_LABEL: ROTATION_IN}, {ATTEMPT_ANNOTATION: attempt})
        case Release(attempt=attempt):
            patch = _metadata({MEMBER_LABEL: None}, {ATTEMPT_ANNOTATION: attempt})
            patch["metadata"]["ownerReferences"] = [owner_reference(snapshot.key.name, snapshot.uid)]
            return patch
        case Retire(since=since):
            cost = {RETIRING_SINCE_ANNOTATION: since, DELETION_COST_ANNOTATION: RETIRED_COST}
            return _metadata({ROTATION_LABEL: ROTATION_OUT}, cost)
        case Unretire():
            none = {RETIRING_SINCE_ANNOTATION: None, DELETION_COST_ANNOTATION: None}
            return _metadata({ROTATION_LABEL: ROTATION_IN}, none)


def _metadata(labels: Mapping[str, str | None], annotations: Mapping[str, str | None]) -> Json:
    return {"metadata": {"labels": dict(labels), "annotations": dict(annotations)}}


def _told(snapshot: Snapshot, action: Action) -> dict[str, str]:
    told = {"fleet": str(snapshot.key), "action": type(action).__name__}
    for name in ("pod", "name", "uid", "attempt"):
        if hasattr(action, name):
            told["target" if name == "name" else name] = str(getattr(action, name))
    return told


def missing_paths(wanted: Any, found: Any, at: str = "status") -> tuple[str, ...]:
    """Paths that were written and are not there: the installed schema pruned them."""
    lost: list[str] = []
    if isinstance(wanted, Mapping):
        for key, value in wanted.items():
            if not isinstance(found, Mapping) or key not in found:
                lost.append(f"{at}.{key}")
            else:
                lost += missing_paths(value, found[key], f"{at}.{key}")
    elif isinstance(wanted, list) and isinstance(found, list):
        for index, value in enumerate(wanted[: len(found)]):
            lost += missing_paths(value, found[index], f"{at}[{index}]")
    return tuple(dict.fromkeys(lost))[:20]
