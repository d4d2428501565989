"""Weeks of a whole fleet under a real operator: `kintsugi simulate`. Faults strike, and somebody heals, or nobody does.

Judge, gates, ladder and writes are the product's own, on a cluster and engines in memory, one pass every `PACE`
seconds (the longest interval that a user may set, so verdicts come up to half a minute later than on defaults).
Hours in which every instance is well and nobody is being replaced are jumped over: nothing is read and judged then
until `LEAD_SECONDS` before the next trouble. What a judge gets wrong in quiet hours is for `suite` to show.
"""

import math
import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kintsugi.adapters.kube.parse import epoch
from kintsugi.core import names
from kintsugi.testing.cluster import FakeCluster, Start, pods
from kintsugi.testing.cluster.store import Json
from kintsugi.testing.rehearsal import Rehearsal
from kintsugi.testing.simulation.healing import acting, observing
from kintsugi.testing.simulation.rates import (
    NEIGHBOURS_PER_HOUR,
    PAUSES_PER_HOUR,
    PERSON_MINUTES,
    SOFTWARE,
    SOFTWARE_FAULT_DAYS,
    START_SECONDS,
    rates,
)

PACE: Final = 30.0
SETTLED_SECONDS: Final = 4_500.0
"""After its start everything that the judge learns of a process is learned: 600 s warm-up, 600 s for a reference of
fragmentation, 30 minutes for a baseline of its steps."""
LEAD_SECONDS: Final = 300.0
"""Passes begin so long before something strikes."""
MOST_JUMP_SECONDS: Final = 3_600.0
REQUESTS_PER_SECOND: Final = 1.0
"""Of each wanted instance, on average."""
HEADROOM: Final = 1.6
"""What an instance can serve, as a multiple of that."""
DAY_AMPLITUDE: Final = 0.4
IN_FLIGHT: Final = 4.0
"""Requests that an engine holds when it ends."""
ERROR_SHARE: Final = 0.6
FRAGMENTED_LEVEL: Final = 0.5
FRAGMENTED_CAPACITY: Final = 0.8
"""Assumed: what a fragmented engine still serves of its share."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is simulated."""

    weeks: float = 1.0
    pools: int = 2
    replicas: int = 4
    seed: int = 1
    spec: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of the deployment's spec, as a user writes them."""
    fault_days: float = SOFTWARE_FAULT_DAYS
    person_minutes: float = PERSON_MINUTES
    """0: nobody ever comes."""
    gpus: int = 8


@dataclass(slots=True)
class Outcome:
    """What came of it."""

    healing: bool
    hours: float = 0.0
    """Instance-hours wanted."""
    serving_hours: float = 0.0
    """Instance-hours in rotation, Ready and well."""
    offered: float = 0.0
    lost: float = 0.0
    """Requests: failed, sent to an engine that hangs, or beyond what the others can serve."""
    faults: Counter[str] = field(default_factory=Counter)
    removals: int = 0
    false_removals: int = 0
    """Of instances to which nothing had happened."""
    by_person: int = 0

    @property
    def availability(self) -> float:
        """Share of requests answered."""
        return 1.0 - self.lost / self.offered if self.offered else 1.0

    def report(self) -> dict[str, Any]:
        """As JSON holds it."""
        return {
            "healing": self.healing,
            "instanceHours": round(self.hours, 1),
            "instancesServingPercent": round(100 * self.serving_hours / max(self.hours, 1e-9), 3),
            "requests": round(self.offered),
            "requestsLost": round(self.lost),
            "availabilityPercent": round(100 * self.availability, 4),
            "faults": dict(self.faults),
            "removals": self.removals,
            "falseRemovals": self.false_removals,
            "removedByPerson": self.by_person,
        }


class FleetLife:
    """One run. `healing`: whatever the mode in the spec, the operator acts. Off: the operator only observes, and a person removes what is sick after a while."""

    def __init__(self, plan: Plan, healing: bool) -> None:
        self._plan = plan
        self._healing = healing
        self._luck = random.Random(plan.seed)
        cluster = FakeCluster(seed=plan.seed)
        nodes = plan.pools * plan.replicas + 2
        self.scene = Rehearsal(plan.seed, nodes, plan.gpus, cluster)
        cluster.on_start(lambda pod: Start(boot_seconds=START_SECONDS))
        self._sick: dict[str, tuple[str, float]] = {}
        """By pod UID: the kind of its fault, and since when."""
        self._ends: dict[str, tuple[float, dict[str, Any]]] = {}
        """By pod name: when a passing trouble ends, and what undoes it."""
        self._removed: set[str] = set()
        self._known: dict[str, str] = {}
        self.outcome = Outcome(healing)

    async def run(self, told: Callable[[float], None] | None = None) -> Outcome:
        """All of it; `told` hears the share done."""
        plan, scene = self._plan, self.scene
        spec = dict(plan.spec)
        spec["monitoring"] = {**spec.get("monitoring", {}), "scrapeIntervalSeconds": int(PACE)}
        spec["healing"] = (acting if self._healing else observing)(spec.get("healing", {}))
        spec["hardware"] = {**spec.get("hardware", {}), "gpusPerInstance": plan.gpus}
        scene.deploy({f"pool{n + 1}": plan.replicas for n in range(plan.pools)}, **spec)
        await scene.run(SETTLED_SECONDS, PACE)
        clock = scene.cluster.clock
        began, until = clock.mono(), clock.mono() + plan.weeks * 7 * 86_400
        lead = 0.0
        while clock.mono() < until:
            if told is not None:
                told((clock.mono() - began) / (until - began))
            if lead <= 0 and self._quiet():
                lead = LEAD_SECONDS
                self._jump(min(until, clock.mono() + self._luck.expovariate(self._hourly() / 3_600)))
            elif lead <= 0:
                self._befall()
            self._undo()
            clock.move(PACE)
            self._account(PACE)
            await scene.step()
            self._note_removals()
            if not self._healing:
                self._person()
            if lead > 0:
                lead -= PACE
                if lead <= 0:
                    self._strike(self._luck.choice(self._targets() or [None]))
        return self.outcome

    def _hourly(self) -> float:
        """Troubles an hour, of all instances that something can strike."""
        rate = rates(self._plan.fault_days, self._plan.gpus)
        each = rate.software + rate.hardware + PAUSES_PER_HOUR + NEIGHBOURS_PER_HOUR
        return max(1, len(self._targets())) * each

    def _targets(self) -> list[Json]:
        """Pods that are up and well."""
        return [
            pod
            for pod in self.scene.pods()
            if pods.is_ready(pod)
            and not pods.deleting(pod)
            and str(pod["metadata"]["uid"]) not in self._sick
            and str(pod["metadata"]["name"]) not in self._ends
        ]

    def _quiet(self) -> bool:
        """Everybody serves and is known well, and nobody is being replaced."""
        plan, cluster, key = self._plan, self.scene.cluster, self.scene.key
        members = self.scene.pods()
        if self._ends or len(members) != plan.pools * plan.replicas:
            return False
        raw = cluster.get(names.DEPLOYMENT_KIND, key.namespace, key.name)
        if raw.get("status", {}).get("remediations", {}).get("active"):
            return False
        now = cluster.clock.now()
        return all(
            _serves(pod)
            and str(pod["metadata"]["uid"]) not in self._sick
            and now - (_ready_since(pod) or now) >= SETTLED_SECONDS
            for pod in members
        )

    def _jump(self, to: float) -> None:
        """Let quiet time pass until a little before `to`."""
        clock = self.scene.cluster.clock
        while (left := to - LEAD_SECONDS - clock.mono()) > 0:
            part = min(left, MOST_JUMP_SECONDS)
            clock.move(part)
            self._account(part)

    def _befall(self) -> None:
        """In a time that is not quiet trouble comes by chance, pass by pass."""
        if self._luck.random() < 1 - math.exp(-self._hourly() * PACE / 3_600):
            self._strike(self._luck.choice(self._targets() or [None]))

    def _undo(self) -> None:
        """End what passes by itself."""
        now = self.scene.cluster.clock.mono()
        for name in [name for name, (until, _) in self._ends.items() if now >= until]:
            self._change(name, **self._ends.pop(name)[1])

    def _strike(self, pod: Json | None) -> None:
        """One trouble, by the shares of the rates."""
        if pod is None:
            return
        luck, now = self._luck, self.scene.cluster.clock.mono()
        name, uid = str(pod["metadata"]["name"]), str(pod["metadata"]["uid"])
        rate = rates(self._plan.fault_days, self._plan.gpus)
        weights = (rate.software, rate.hardware, PAUSES_PER_HOUR, NEIGHBOURS_PER_HOUR)
        what = luck.choices(("software", "hardware", "pause", "neighbour"), weights)[0]
        if what == "software":
            self._break(luck.choices(list(SOFTWARE), list(SOFTWARE.values()))[0], name, uid, now)
        elif what == "hardware":
            self._break("hardware", name, uid, now)
        elif what == "pause" and self._change(name, hung=True):
            self._ends[name] = (now + min(270.0, 30.0 * luck.paretovariate(1.3)), {"hung": False})
            self.outcome.faults["passing pause"] += 1
        elif what == "neighbour" and self._change(name, slow=luck.uniform(1.2, 2.5)):
            self._ends[name] = (now + luck.uniform(30, 360), {"slow": 1.0})
            self.outcome.faults["passing neighbour"] += 1

    def _break(self, kind: str, name: str, uid: str, now: float) -> None:
        luck, cluster, namespace = self._luck, self.scene.cluster, self.scene.key.namespace
        if kind == "crash":
            cluster.exit_container(namespace, name)
            self.outcome.lost += IN_FLIGHT
        elif kind == "hardware":
            cluster.fail_pod(namespace, name, "UnexpectedAdmissionError", "simulated: the GPU is gone")
            self.outcome.lost += IN_FLIGHT
            self._sick[uid] = kind, now
        else:
            changes = _changes(kind, luck)
            if not self._change(name, **changes):
                return
            self._sick[uid] = kind, now
        self.outcome.faults[kind] += 1

    def _change(self, name: str, **changes: Any) -> bool:
        try:
            self.scene.engines.change(name, **changes)
        except (LookupError, StopIteration):
            return False
        return True

    def _account(self, seconds: float) -> None:
        """Requests and service of the `seconds` that have just passed, as things stand at their end."""
        out, plan = self.outcome, self._plan
        now = self.scene.cluster.clock.mono()
        day = 1 + DAY_AMPLITUDE * math.sin(2 * math.pi * now / 86_400)
        by_pool: dict[str, list[Json]] = {f"pool{n + 1}": [] for n in range(plan.pools)}
        for pod in self.scene.pods():
            self._known[str(pod["metadata"]["name"])] = str(pod["metadata"]["uid"])
            if _serves(pod):
                by_pool.setdefault(pods.labels(pod)[names.POOL_LABEL], []).append(pod)
        for members in by_pool.values():
            wanted = plan.replicas
            offered = REQUESTS_PER_SECOND * wanted * day * seconds
            out.offered += offered
            out.hours += wanted * seconds / 3_600
            out.lost += self._lost(members, offered, seconds)

    def _lost(self, members: list[Json], offered: float, seconds: float) -> float:
        """Requests lost of those offered to one pool's endpoints, spread evenly over them."""
        if not members:
            return offered
        each, room, lost, works = offered / len(members), 0.0, 0.0, 0.0
        for pod in members:
            behaviour = self.scene.engines.behaviour_of(str(pod["metadata"]["name"]))
            if behaviour is None or behaviour.hung:
                lost += each
                continue
            share = 1 / behaviour.slow
            if (behaviour.fragmentation or 0.0) > FRAGMENTED_LEVEL / 2:
                share *= FRAGMENTED_CAPACITY
            room += HEADROOM * REQUESTS_PER_SECOND * seconds * share
            lost += each * behaviour.errors
            works += each
            well = str(pod["metadata"]["uid"]) not in self._sick
            self.outcome.serving_hours += seconds / 3_600 * well
        return lost + max(0.0, works - room)

    def _note_removals(self) -> None:
        for name in self.scene.removals():
            if name in self._removed:
                continue
            self._removed.add(name)
            uid = self._known.get(name, "")
            self.outcome.removals += 1
            self.outcome.false_removals += uid not in self._sick
            self._ends.pop(name, None)

    def _person(self) -> None:
        """Somebody deletes what has been sick for as long as it takes to be noticed."""
        if self._plan.person_minutes <= 0:
            return
        now, namespace = self.scene.cluster.clock.mono(), self.scene.key.namespace
        for pod in self.scene.pods():
            uid = str(pod["metadata"]["uid"])
            since = self._sick.get(uid)
            if (
                since is not None
                and not pods.deleting(pod)
                and now - since[1] >= 60 * self._plan.person_minutes
            ):
                self.scene.cluster.remove("Pod", namespace, str(pod["metadata"]["name"]))
                self.outcome.by_person += 1


def _changes(kind: str, luck: random.Random) -> dict[str, Any]:
    """What a fault does to an engine's behaviour."""
    if kind == "hang":
        return {"hung": True}
    if kind == "slow":
        return {"slow": luck.uniform(2.2, 5.0)}
    if kind == "fragmentation":
        return {"fragmentation": FRAGMENTED_LEVEL}
    return {"errors": ERROR_SHARE, "canary_errors": ERROR_SHARE}


def _ready_since(pod: Json) -> float | None:
    """When it became Ready, epoch seconds."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    found = next((c for c in conditions if c["type"] == "Ready" and c["status"] == "True"), None)
    return None if found is None else epoch(found.get("lastTransitionTime"))


def _serves(pod: Json) -> bool:
    ready = pods.is_ready(pod) and not pods.deleting(pod)
    return ready and pods.labels(pod).get(names.ROTATION_LABEL) == names.ROTATION_IN
