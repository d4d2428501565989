"""A world that checks, at every commit and every action, what must never happen whatever went before."""

from dataclasses import replace
from typing import Any

from kintsugi.core import plan as acts
from kintsugi.core.decide import decide
from kintsugi.core.finding import Detector
from kintsugi.core.judged import Judged
from kintsugi.core.live import needs_a_last_look, reason_to_refrain
from kintsugi.core.plan import Action, Plan
from kintsugi.core.snapshot import Snapshot
from tests.unit.core.decision.world import Pod, World

SERVES_NOTHING = {Detector.STALLED, Detector.DEAD}


class AuditedWorld(World):
    """Raises AssertionError at the first thing that must never happen."""

    def __init__(self, spec: dict[str, Any], gpus: int = 100, starts_in: float = 60.0) -> None:
        super().__init__(spec, gpus, starts_in)
        self.removed: dict[str, tuple[str, float]] = {}
        """UID → pool and time of the first release or eviction."""
        self.acting: tuple[Snapshot, Plan, Judged] | None = None
        self.user_moves = False
        """The user changed replicas or revision lately, so that pods may be retired."""

    # one pass of one operator ------------------------------------------------------------------------------------

    def look(self) -> tuple[Snapshot, Plan, Judged]:
        """What an operator would do now: decided twice, since the same input must give the same plan."""
        snapshot, judged = self.snapshot(), self.judged()
        plan = decide(snapshot, judged, self.times)
        assert decide(snapshot, judged, self.times) == plan, "same input, another plan"
        self.check_plan(snapshot, plan)
        return snapshot, plan, judged

    def pass_(self, seconds: float = 5.0, *, crash: str = "", rival: bool = False) -> Plan:
        """One pass; with a `rival`, another operator has looked at the same moment and acts afterwards."""
        self.now += seconds
        self.on_tick(self)
        self.kubernetes()
        first, second = self.look(), self.look() if rival else None
        self._carry_out(first, crash)
        if second is not None:
            self._carry_out(second, "")
        self.kubernetes()
        return first[1]

    def _carry_out(self, seen: tuple[Snapshot, Plan, Judged], crash: str) -> None:
        self.acting = seen
        if self.carry_out(seen[0], seen[1], crash):
            self.check_books()

    def act(self, action: Action) -> None:
        assert self.acting is not None
        snapshot, plan, judged = self.acting
        if needs_a_last_look(action) and self._refrains(action, snapshot, plan, judged):
            return
        before = self.serving_uids()
        self.check_action(action, snapshot, judged)
        super().act(action)
        self.check_serving(action, before)

    def _refrains(self, action: Action, snapshot: Snapshot, plan: Plan, judged: Judged) -> bool:
        """The runtime's last look: verdicts of the pass, pods as they are now."""
        attempt = getattr(action, "attempt", "")
        active = next((a for a in plan.status.remediations.active if a.id == attempt), None)
        now = self.snapshot()
        known = {i.uid for i in snapshot.instances}
        fresh = {
            v.name: v
            for v in self.views(
                replace(now, instances=tuple(i for i in now.instances if i.uid in known)), judged
            )
        }
        view = fresh.get(active.pool) if active else None
        if view is None:
            return not (isinstance(action, acts.Evict) and active is not None and active.path == "Surge")
        percent = snapshot.deployment.spec.healing.budget.min_healthy_percent
        return reason_to_refrain(action, active, view, percent, self.times) is not None

    # what must hold ----------------------------------------------------------------------------------------------

    def sick(self, pod: Pod) -> bool:
        return any(f.severity.name == "SICK" for f in self.verdict(pod).findings)

    def serving_uids(self) -> dict[str, str]:
        """UID → pool of what takes requests and is not sick."""
        return {
            p.uid: p.pool
            for p in self.pods.values()
            if p.in_rotation and self.instance(p).ready and not self.sick(p)
        }

    def check_action(self, action: Action, snapshot: Snapshot, judged: Judged) -> None:
        if isinstance(action, acts.Release | acts.Evict):
            held = {a.id: a for a in self.status.remediations.active}
            assert action.attempt in held, f"{action} without a reservation"
            assert held[action.attempt].uid == action.uid
            assert held[action.attempt].phase == "Draining", held[action.attempt].phase
            pod = self.pods.get(action.uid)
            if pod is not None and pod.member:
                said = judged.verdicts[action.uid]
                assert said.sick() is not None, f"{action} of a member that nobody calls sick now"
                self.removed.setdefault(action.uid, (pod.pool, self.now))
                self.check_budget(pod.pool)
        if isinstance(action, acts.Retire):
            pod = self.pods.get(action.uid)
            named = {p["name"] for p in self.spec["pools"]}
            if pod is not None and pod.pool in named and self.instance(pod).ready:
                view = next(v for v in self.views(snapshot) if v.name == pod.pool)
                total = sum(s.wanted for s in view.sets)
                moves = total > view.wanted or pod.revision != view.revision
                assert moves, f"{action} though nobody asked for another revision or size"
        if isinstance(action, acts.Scale):
            found = self.sets.get(action.name)
            if found and str(found.version) == action.resource_version and action.replicas < found.wanted:
                assert action.replicas == found.wanted - 1, f"{action} takes several at once"
                ending = len(self.pods_of(found)) - found.wanted
                assert ending <= 0, f"{action} before Kubernetes ended the last one"

    def check_budget(self, pool: str) -> None:
        times = sorted(at for where, at in self.removed.values() if where == pool)
        size = max(p["replicas"] for p in self.spec["pools"])
        if size <= 8 and times:
            lately = [at for at in times if at > self.now - self.times.budget_window + 1]
            assert len(lately) <= 2, f"{len(lately)} removals in {pool} within the window"

    def check_serving(self, action: Action, before: dict[str, str]) -> None:
        """Nothing that we do ourselves takes a pool below its minimum."""
        after = self.serving_uids()
        for view in self.views():
            lost = {uid for uid, pool in before.items() if pool == view.name and uid not in after}
            left = sum(1 for pool in after.values() if pool == view.name)
            if not lost or view.wanted <= 1:
                continue
            percent = self.deployment().spec.healing.budget.min_healthy_percent
            need = view.must_serve(percent)
            assert left >= need, f"{action} leaves {left} of {view.wanted} in {view.name}, {need} must serve"

    def check_books(self) -> None:
        book = self.status.remediations
        ids = [a.id for a in book.active] + [r.id for r in book.recent]
        assert len(ids) == len(set(ids)), f"an attempt is booked twice: {ids}"
        names = [a.name for a in book.active]
        assert len(names) == len(set(names))
        for pool in {a.pool for a in book.active}:
            flying = [
                a for a in book.active if a.pool == pool and a.counts_towards_budget and a.outcome is None
            ]
            assert len(flying) <= 1, f"{len(flying)} in flight in {pool}: {[a.name for a in flying]}"
        for active in book.active:
            assert active.message, f"{active.name} does not say what it is doing"

    def check_plan(self, snapshot: Snapshot, plan: Plan) -> None:
        """Every sick instance of a pool is under remediation, or its entry says why not."""
        book = plan.status.remediations
        active = (*book.active, *snapshot.deployment.status.remediations.active)
        under = {a.uid for a in active} | {a.replacement_uid for a in active}
        said = {w.instance for w in book.withheld}
        named = {p["name"] for p in self.spec["pools"]}
        for pod in self.alive_everywhere():
            if pod.pool in named and pod.member and self.sick(pod) and pod.uid not in under:
                assert pod.name in said, f"{pod.name} is sick, and nothing says why nothing is done"
        assert all(w.message and w.gate for w in book.withheld)
