"""The Remediation object of one attempt: the proof that is left behind, projected from its reservation."""

from typing import Final

from kintsugi.api.objects import ObjectMeta, Remediation
from kintsugi.api.remediation import (
    Evidence,
    GateAnswer,
    RemediationSpec,
    RemediationStatus,
    Replacement,
    Timeline,
    Victim,
)
from kintsugi.api.status import ActiveRemediation
from kintsugi.core import names
from kintsugi.core.attempt import finding_of
from kintsugi.core.finding import InstanceVerdict
from kintsugi.core.gate import Answer
from kintsugi.core.render import owner_reference
from kintsugi.core.snapshot import Snapshot

LABEL_LENGTH: Final = 63
"""Characters of a label's value (Kubernetes documentation, "Labels and Selectors")."""


def remediation_of(
    active: ActiveRemediation,
    snapshot: Snapshot,
    verdict: InstanceVerdict | None,
    answers: tuple[Answer, ...],
) -> Remediation:
    """The object as it must be: created where absent, its status brought to this where it differs."""
    found = snapshot.remediations.get(active.id)
    before = found.status if found else RemediationStatus()
    metadata = ObjectMeta(
        name=active.name,
        namespace=snapshot.key.namespace,
        labels={
            names.MANAGED_BY_LABEL: names.MANAGED_BY,
            names.DEPLOYMENT_LABEL: snapshot.key.name,
            names.POOL_LABEL: active.pool,
            **_suspect(active),
        },
        owner_references=(owner_reference(snapshot.key.name, snapshot.uid),),
    )
    return Remediation(
        metadata=metadata,
        spec=RemediationSpec(
            deployment=snapshot.key.name,
            instance=Victim(
                name=active.instance, uid=active.uid, node=active.node, started_at=active.started_at
            ),
            pool=active.pool,
            revision=active.revision,
            trigger=active.trigger,
            remedy=active.remedy,
            attempt_id=active.id,
            attempt=active.attempt,
            lineage=active.lineage,
        ),
        status=RemediationStatus(
            phase=active.phase,
            outcome=active.outcome,
            path=active.path,
            why=before.why or _why(active, verdict),
            message=active.message,
            approved_by=active.approved_by,
            timeline=_timeline(active),
            evidence=before.evidence or _evidence(active, verdict),
            gates=_gates(before, answers),
            replacement=_replacement(active),
            black_box=before.black_box,
            streams_cut=active.streams_cut,
        ),
    )


def _suspect(active: ActiveRemediation) -> dict[str, str]:
    """The node that is left, for those who mend nodes, where its name may be a label's value."""
    moved = active.remedy == "RecreateElsewhere" and 0 < len(active.node) <= LABEL_LENGTH
    return {names.SUSPECT_NODE_LABEL: active.node} if moved else {}


def _timeline(active: ActiveRemediation) -> Timeline:
    verified = active.finished_at if active.outcome in ("Cured", "NotCured") else None
    return Timeline(
        detected=active.detected_at,
        decided=active.reserved_at,
        approved=active.approved_at,
        withdrawn=active.withdrawn_at,
        released=active.released_at,
        drained=active.evicting_since,
        deleted=active.deleted_at,
        replaced=active.replaced_at,
        ready=active.ready_at,
        verified=verified,
        finished=active.finished_at,
    )


def _why(active: ActiveRemediation, verdict: InstanceVerdict | None) -> str:
    """What convinced, in words; '' where nothing is known of it any more."""
    finding = finding_of(verdict, active.trigger)
    return finding.message if finding else ""


def _evidence(active: ActiveRemediation, verdict: InstanceVerdict | None) -> tuple[Evidence, ...]:
    finding = finding_of(verdict, active.trigger)
    if finding is None:
        return ()
    return tuple(
        Evidence(
            signal=e.signal, value=e.value, unit=e.unit, samples=e.samples, message=finding.message[:500]
        )
        for e in finding.evidence
    ) or (
        Evidence(
            signal=finding.reason, value=finding.silent_seconds, unit="s", message=finding.message[:500]
        ),
    )


def _gates(before: RemediationStatus, answers: tuple[Answer, ...]) -> tuple[GateAnswer, ...]:
    """The latest answers; kept as they were while no gate opened or closed, so that numbers cause no write."""
    if not answers or {(g.name, g.open) for g in before.gates} == {(a.gate, a.open) for a in answers}:
        return before.gates
    return tuple(GateAnswer(name=a.gate, open=a.open, message=a.message[:500]) for a in answers)


def _replacement(active: ActiveRemediation) -> Replacement | None:
    if not active.replacement_uid or not active.replacement_name:
        return None
    return Replacement(name=active.replacement_name, uid=active.replacement_uid)
