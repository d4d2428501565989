"""What the demo saw happen in the cluster, and when. Nothing is taken from anybody's word but the API server's."""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")

POOL = "kintsugi.dev/pool"
ROTATION = "kintsugi.dev/rotation"


@dataclass(slots=True)
class PodFact:
    """One engine's pod; times in epoch seconds, when this program saw it."""

    uid: str
    name: str
    pool: str
    created: float
    ready: float | None = None
    """First Ready."""
    in_rotation: bool = True
    withdrawn: float | None = None
    """Last left rotation."""
    ending: float | None = None
    """Marked for deletion, or gone."""
    gone: float | None = None
    ready_now: bool = False


@dataclass(slots=True)
class VerdictFact:
    """The verdict of one instance in the deployment's status, and since when it was seen there."""

    verdict: str
    seen: float
    why: str = ""
    signals: dict[str, Any] = field(default_factory=dict)


class Facts:
    """Everything seen so far. Fed by watches on their threads; read and waited for by the scenarios on another."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._trouble: Exception | None = None
        self.pods: dict[str, PodFact] = {}
        self.verdicts: dict[str, VerdictFact] = {}
        """By pod UID."""
        self.first_sick: dict[tuple[str, str], float] = {}
        """(pod UID, trigger) → first seen Sick with a finding of that detector."""
        self.withheld: dict[str, tuple[str, str]] = {}
        """By pod name: gate and message, as the status says now."""
        self.withheld_ever: list[tuple[float, str, str, str]] = []
        """(when, pod name, gate, message) each time an entry appeared or changed its gate."""
        self.status: Mapping[str, Any] = {}
        self.mends: dict[str, Mapping[str, Any]] = {}
        """Remediations by name."""
        self.listeners: list[Callable[[str], None]] = []
        """Told of every event, in a sentence."""

    def wait(self, look: Callable[[], T | None], deadline: float) -> T | None:
        """The first true answer of `look`, asked after each change; None at `deadline` (epoch seconds).

        Raises RuntimeError once a watch has failed: what is not seen any more is not known either.
        """
        with self._changed:
            while not (answer := look()):
                if self._trouble is not None:
                    raise RuntimeError("the cluster can't be watched any more") from self._trouble
                left = deadline - self._clock()
                if left <= 0:
                    return None
                self._changed.wait(min(left, 0.5))
            return answer

    def fail(self, trouble: Exception) -> None:
        """A watch can't go on; whoever waits is told."""
        with self._changed:
            self._trouble = trouble
            self._changed.notify_all()

    def pod(self, kind: str, pod: Mapping[str, Any]) -> None:
        """A pod of the fleet was added, changed or DELETED."""
        now, metadata = self._clock(), pod["metadata"]
        with self._changed:
            fact = self.pods.get(metadata["uid"])
            if fact is None:
                fact = PodFact(metadata["uid"], metadata["name"], metadata["labels"].get(POOL, ""), now)
                self.pods[fact.uid] = fact
                self._tell(f"{fact.name} created")
            self._note_readiness(fact, pod, now)
            rotation = metadata["labels"].get(ROTATION) == "in"
            if rotation != fact.in_rotation:
                fact.in_rotation = rotation
                fact.withdrawn = fact.withdrawn if rotation else now
                self._tell(f"{fact.name} {'back in rotation' if rotation else 'withdrawn from traffic'}")
            if fact.ending is None and (kind == "DELETED" or metadata.get("deletionTimestamp")):
                fact.ending = now
                self._tell(f"{fact.name} evicted")
            if kind == "DELETED":
                fact.gone, fact.ready_now = now, False
            self._changed.notify_all()

    def _note_readiness(self, fact: PodFact, pod: Mapping[str, Any], now: float) -> None:
        conditions = pod.get("status", {}).get("conditions", ())
        fact.ready_now = any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
        if fact.ready_now and fact.ready is None:
            fact.ready = now
            self._tell(f"{fact.name} ready")

    def deployment(self, _: str, deployment: Mapping[str, Any]) -> None:
        """The deployment's status was seen."""
        now, status = self._clock(), deployment.get("status", {})
        with self._changed:
            self.status = status
            for entry in status.get("instances", ()):
                self._note_verdict(entry, now)
            held = {
                entry["instance"]: (entry["gate"], entry.get("message", ""))
                for entry in status.get("remediations", {}).get("withheld", ())
            }
            for name, (gate, message) in held.items():
                if self.withheld.get(name, ("",))[0] != gate:
                    self.withheld_ever.append((now, name, gate, message))
                    self._tell(f"{name} left alone: {gate} ({message})")
            self.withheld = held
            self._changed.notify_all()

    def _note_verdict(self, entry: Mapping[str, Any], now: float) -> None:
        uid, verdict = entry.get("uid", ""), entry.get("verdict", "Unknown")
        findings = entry.get("findings", ())
        before = self.verdicts.get(uid)
        why = "; ".join(finding.get("message", "") for finding in findings)
        if before is None or before.verdict != verdict:
            self._tell(f"{entry['name']} is {verdict}{': ' + why if why else ''}")
            self.verdicts[uid] = VerdictFact(verdict, now, why, dict(entry.get("signals", {})))
        else:
            before.why, before.signals = why, dict(entry.get("signals", {}))
        if verdict == "Sick":
            for finding in findings:
                self.first_sick.setdefault((uid, finding["detector"]), now)

    def mend(self, _: str, mend: Mapping[str, Any]) -> None:
        """A Remediation was seen."""
        name, status = mend["metadata"]["name"], mend.get("status", {})
        with self._changed:
            before = self.mends.get(name, {}).get("status", {})
            self.mends[name] = mend
            if status.get("phase") != before.get("phase") or status.get("outcome") != before.get("outcome"):
                outcome = f" ({status['outcome']})" if status.get("outcome") else ""
                self._tell(f"mend {name}: {mend['spec'].get('trigger')} {status.get('phase', '…')}{outcome}")
            self._changed.notify_all()

    def _tell(self, text: str) -> None:
        for listener in self.listeners:
            listener(text)

    # -- questions -------------------------------------------------------------------------------------------

    def alive(self, pool: str | None = None) -> list[PodFact]:
        """Pods that are not ending, by name."""
        found = [pod for pod in self.pods.values() if pod.ending is None and pool in (None, pod.pool)]
        return sorted(found, key=lambda pod: pod.name)

    def ended(self, since: float, pool: str | None = None) -> list[PodFact]:
        """Pods that were marked for deletion, or went, after `since`."""
        return [
            pod
            for pod in self.pods.values()
            if pod.ending is not None and pod.ending >= since and pool in (None, pod.pool)
        ]

    def replacement_of(self, uid: str) -> PodFact | None:
        """The pod that the victim's Remediation names as its replacement, once both were seen."""
        mend = self.mend_of(uid)
        named = (mend or {}).get("status", {}).get("replacement") or {}
        return self.pods.get(named.get("uid", ""))

    def mend_of(self, uid: str) -> Mapping[str, Any] | None:
        """The newest Remediation of the pod with this UID."""
        found = [mend for mend in self.mends.values() if mend["spec"]["instance"]["uid"] == uid]
        return max(found, key=lambda mend: mend["metadata"]["creationTimestamp"], default=None)

    def outcome_of(self, uid: str) -> str | None:
        """How that attempt ended; None while it has not."""
        mend = self.mend_of(uid)
        outcome: str | None = (mend or {}).get("status", {}).get("outcome")
        return outcome

    def condition(self, name: str) -> Mapping[str, Any]:
        """One condition of the deployment; empty while there is none."""
        return next((c for c in self.status.get("conditions", ()) if c["type"] == name), {})

    def in_flight(self) -> bool:
        """Whether any remediation is under way, as the status says."""
        return bool(self.status.get("remediations", {}).get("inFlight", 0))
