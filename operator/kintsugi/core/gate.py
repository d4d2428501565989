"""The gates: reasons not to act now. Every gate is asked, and every answer is kept."""

from collections.abc import Mapping, Sequence
from typing import Final

from kintsugi.api.status import ActiveRemediation
from kintsugi.core.classify.of_instance import failed_again, start_failure
from kintsugi.core.finding import Detector, Verdict
from kintsugi.core.moment import epoch
from kintsugi.core.names import RESET_LADDERS_ANNOTATION
from kintsugi.core.question import Answer, Gate, Question
from kintsugi.core.room_gates import capacity, disruption_budget, operator_start
from kintsugi.core.storm import EVERY_POOL, storm_over
from kintsugi.core.strikes import in_force

__all__ = ["Answer", "Gate", "Question", "ask_gates", "first_closed"]


def ask_gates(question: Question) -> tuple[Answer, ...]:
    """Every gate's answer, in the declared order. A stalled engine's withdrawal asks fewer (hang paper §1.3)."""
    stall_withdrawal = not question.removal and question.finding.detector is Detector.STALLED
    gates = STALL_WITHDRAWAL_GATES if stall_withdrawal else GATES
    gates = GATES_OF.get(question.remedy, gates)
    return tuple(gate(question) for gate in gates)


def first_closed(answers: Sequence[Answer]) -> Answer | None:
    """The first gate that is closed, or None."""
    return next((answer for answer in answers if not answer.open), None)


def paused(q: Question) -> Answer:
    names = ", ".join(q.snapshot.paused)
    return Answer("paused", not names, f"healing is paused: {names}" if names else "not paused")


def mode(q: Question) -> Answer:
    """What the user allows, and no more than the engine's series allow: see `core.metric_contract`."""
    said = q.snapshot.deployment.spec.healing.mode_of(q.finding.detector.value)
    verdict = q.view.verdicts.get(q.instance.uid)
    lacks = verdict.lacking.get(q.finding.detector, ()) if verdict is not None else ()
    if lacks and said != "Observe":
        text = f"mode Observe for {q.finding.detector.value}, which needs {', '.join(lacks)}: the engine exports none"
        return Answer("mode", False, text[:500])
    match said:
        case "Act":
            return Answer("mode", True, "mode Act")
        case "Recommend":
            approved = next((a.approved_by for a in q.active if a.id == q.attempt), "")
            if approved:
                return Answer("approval", True, f"mode Recommend: approved by {approved}")
            return Answer(
                "approval", False, "mode Recommend: would remove it, and waits for a person's approval"
            )
        case _:
            return Answer(
                "mode", False, f"mode Observe for {q.finding.detector.value}: would have recreated it"
            )


def spec_accepted(q: Question) -> Answer:
    text = "; ".join(q.problems)
    return Answer("spec", not text, f"the spec is not accepted: {text}" if text else "spec accepted")


def data(q: Question) -> Answer:
    """More than half of the siblings unread means that our own sight is in doubt (S26).

    What is proven to serve nobody needs no fresh page of its own: a dead engine has none. Siblings that are down or
    sick themselves, or still starting, are no witnesses either way.
    """
    verdict = q.view.verdicts.get(q.instance.uid)
    if not q.finding.serves_nothing and (verdict is None or not verdict.fresh):
        return Answer("noData", False, "no fresh reading of this instance")
    no_witness = {Verdict.STARTING, Verdict.SICK}
    siblings = [
        i for i in q.view.members if i.uid != q.instance.uid and q.view.verdict(i.uid) not in no_witness
    ]
    blind = [i for i in siblings if not (found := q.view.verdicts.get(i.uid)) or not found.fresh]
    if siblings and 2 * len(blind) > len(siblings):
        return Answer("noData", False, f"{len(blind)} of {len(siblings)} siblings can't be read")
    return Answer("noData", True, "readings are fresh")


def storm(q: Question) -> Answer:
    found = storm_over(q.view.name, q.storms)
    if found is None:
        return Answer("storm", True, "no storm")
    where = "all instances of this operator" if found.pool == EVERY_POOL else f"pool {found.pool}"
    if found.state == "Open":
        return Answer(
            "storm",
            False,
            f"{len(found.sick)} instances fell sick together ({where}): a shared cause is likely, nothing is removed",
            epoch(found.last_sick_at) + q.times.storm_trial,
        )
    trials = q.everywhere if found.pool == EVERY_POOL else q.others
    if trials:
        text = f"half-open storm ({where}): one trial removal at a time, now {trials[0].name}"
        return Answer("storm", False, text)
    return Answer("storm", True, f"half-open storm ({where}): this is the trial")


def breaker(q: Question) -> Answer:
    for entry in q.status.remediations.breakers:
        if entry.pool == q.view.name and entry.revision == q.instance.revision:
            return Answer("breaker", False, f"removals are stopped ({entry.reason}): {entry.message}")
    for other in q.active:
        same = other.pool == q.view.name and other.revision == q.instance.revision
        if same and other.outcome in ("NotCured", "Ambiguous") and other.remedy != "Compact":
            return Answer("breaker", False, f"removals stop with {other.name}: {other.message}")
    return Answer("breaker", True, "closed circuit")


def exhausted(q: Question) -> Answer:
    for entry in q.status.remediations.lineages:
        if entry.uid == q.instance.uid and entry.exhausted:
            text = (
                "every remedy of the ladder was tried on this line: a person is asked. `kintsugi reset`, or the "
                f"annotation {RESET_LADDERS_ANNOTATION} with the time, lets healing begin anew"
            )
            return Answer("exhausted", False, text)
    return Answer("exhausted", True, "a remedy is left")


def elsewhere(q: Question) -> Answer:
    """For RecreateElsewhere: what the sick instance frees is on the wrong node, so that another must have room."""
    if q.remedy != "RecreateElsewhere":
        return Answer("elsewhere", True, "the same node may be used again")
    if (q.view.pool.hardware.nodes_per_instance or 1) > 1:
        text = f"an instance of several nodes can't be told to avoid {q.instance.node}: whoever mends nodes has to"
        return Answer("elsewhere", False, text)
    struck = in_force(q.status.remediations.strikes, q.view.name, q.snapshot.now)
    room = q.view.room_without({q.instance.node, *struck})
    if room is None:
        return Answer("elsewhere", False, "room on other nodes is not looked up yet")
    others = f" ({', '.join(sorted(struck))} avoided too)" if set(struck) - {q.instance.node} else ""
    if room <= 0:
        text = f"no node but {q.instance.node or 'its own'} has room for its replacement{others}: it is left where it is"
        return Answer("elsewhere", False, text)
    return Answer("elsewhere", True, f"other nodes have room for {room} instances{others}")


def cause(q: Question) -> Answer:
    """A new pod of the same spec would fail as this one does: what is named has to be corrected first (S01, S51, S52)."""
    failure = start_failure(q.instance, q.snapshot.deployment.spec)
    tried = q.finding.detector is Detector.DEAD and failed_again(q.instance, q.finding.since)
    over = q.instance.phase in ("Failed", "Succeeded")
    if failure is None or failure.recreate_helps or not tried or over:
        return Answer("cause", True, "nothing is known that a new pod would meet again")
    return Answer(failure.kind, False, f"a new pod would fail in the same way: {failure.message}"[:500])


def rollout(q: Question) -> Answer:
    return Answer("rollout", not q.rollout, q.rollout or "no rollout or scaling in the pool")


def in_flight(q: Question) -> Answer:
    said = q.snapshot.deployment.spec.healing.budget.max_in_flight_per_pool
    limit = said or (max(1, q.view.wanted // 10) if q.view.wanted > 8 else 1)
    if q.finding.detector is Detector.GROWING:
        limit = 1  # a planned recycle: the next one only after the replacement is Ready, warm and well (S20)
    under_way = q.others
    if len(under_way) >= limit:
        first = under_way[0]
        text = f"{first.name} {DOES.get(first.phase, 'is under way')}, at most {limit} at a time in a pool"
        return Answer("inFlight", False, text, _verified_at(first, q))
    return Answer("inFlight", True, f"{len(under_way)} of {limit} under way")


def _verified_at(active: ActiveRemediation, q: Question) -> float | None:
    """When its probation may be over; None where nobody can tell yet."""
    if active.phase == "Probation" and active.warm_at:
        return epoch(active.warm_at) + q.times.probation
    if active.phase == "Warming" and active.ready_at:
        return epoch(active.ready_at) + q.times.warm_up + q.times.probation
    return None


def replacement_pending(q: Question) -> Answer:
    """A replacement that does not come up blocks the next action (design §3)."""
    for other in q.view.members:
        if other.phase in ("Failed", "Succeeded"):
            continue  # over: its ReplicaSet has made another
        if other.uid != q.instance.uid and q.view.verdict(other.uid) is Verdict.STARTING and not other.ready:
            why = other.waiting_reason or ("not scheduled" if not other.node else "starting")
            return Answer("replacementPending", False, f"{other.name} is not Ready yet ({why})")
    return Answer("replacementPending", True, "every other member came up")


def pool_budget(q: Question) -> Answer:
    said = q.snapshot.deployment.spec.healing.budget.max_per_pool_per_30_minutes
    size = q.view.wanted
    limit = said or (max(2, -(-size // 8)) if size > 8 else 2)
    since = q.snapshot.now - q.times.budget_window
    starts = sorted(
        [epoch(a.draining_since or a.reserved_at) for a in q.others]
        + [
            epoch(r.started_at)
            for r in q.status.remediations.recent
            if r.pool == q.view.name and r.counts_towards_budget and epoch(r.started_at) > since
        ]
    )
    if len(starts) >= limit:
        return Answer(
            "budget",
            False,
            f"{len(starts)} replacements in this pool within the window, at most {limit}",
            starts[0] + q.times.budget_window,
        )
    return Answer("budget", True, f"{len(starts)} of {limit} used")


def hourly_budget(q: Question) -> Answer:
    said = q.snapshot.deployment.spec.healing.budget.max_per_hour
    limit = said or max(4, q.snapshot.fleet.instances // 20)
    counted = {a.id for a in q.status.remediations.active if a.counts_towards_budget}
    new = sum(1 for a in q.everywhere if a.id not in counted)
    used = q.snapshot.fleet.actions_last_hour - (q.attempt in counted) + new
    return Answer("hourlyBudget", used < limit, f"{used} of {limit} replacements of this operator in an hour")


def min_healthy(q: Question) -> Answer:
    """The hard stop. A victim that has served nobody for long needs no protection (design §9)."""
    if q.view.of_one:
        return Answer("minHealthy", True, "a pool of one is judged by poolOfOne")
    need = q.view.must_serve(q.snapshot.deployment.spec.healing.budget.min_healthy_percent)
    left = q.view.serving(without={q.instance.uid, *q.withdrawn_uids})
    if left >= need:
        return Answer("minHealthy", True, f"{left} serve without it, {need} must")
    if q.finding.serves_nothing and q.finding.silent_seconds >= q.times.protection_waiver:
        return Answer("minHealthy", True, "it has served nobody for so long that it needs no protection")
    return Answer("minHealthy", False, f"only {left} would serve without it, {need} must")


def pool_of_one(q: Question) -> Answer:
    if not q.view.of_one:
        return Answer("poolOfOne", True, "not a pool of one")
    if q.finding.serves_nothing or (q.view.room or 0) > 0:
        return Answer("poolOfOne", True, "it serves nobody, or its replacement comes first")
    if not q.removal and q.view.room is None:
        return Answer("poolOfOne", True, "room for a replacement is not looked up yet")
    return Answer(
        "poolOfOne", False, "the pool's only instance, and no free GPU for its replacement: a person is asked"
    )


DOES: Final = {"Warming": "brought a replacement that warms up", "Probation": "is on probation"}
GATES: Final[tuple[Gate, ...]] = (
    paused,
    spec_accepted,
    data,
    storm,
    mode,
    exhausted,
    elsewhere,
    breaker,
    cause,
    rollout,
    in_flight,
    replacement_pending,
    pool_budget,
    hourly_budget,
    min_healthy,
    pool_of_one,
    operator_start,
    disruption_budget,
    capacity,
)
STALL_WITHDRAWAL_GATES: Final[tuple[Gate, ...]] = (
    paused,
    spec_accepted,
    data,
    storm,
    mode,
    exhausted,
    min_healthy,
)
"""New requests are protected at once; in flight and budget count from the removal on (hang paper §1.3)."""
GATES_OF: Final[Mapping[str, tuple[Gate, ...]]] = {
    "Compact": (
        paused,
        spec_accepted,
        data,
        storm,
        mode,
        exhausted,
        in_flight,
        pool_budget,
        hourly_budget,
    ),
    "GiveUp": (paused, spec_accepted, data, storm, mode, exhausted),
}
"""Of remedies that take nothing from the pool. Compaction costs budget all the same, as every rung does."""
