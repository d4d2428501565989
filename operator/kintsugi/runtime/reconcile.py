"""The pass: observe, judge, decide, commit, act, report; per deployment, at most one at a time."""

import asyncio
import logging
from dataclasses import dataclass, field

from kintsugi.api.objects import DeepSeekV4Deployment, SpecInvalid, parse_deployment
from kintsugi.core.decide import decide
from kintsugi.core.evidence import Memory
from kintsugi.core.judge import Judgement, judge
from kintsugi.core.judged import Judged
from kintsugi.core.ledger import reset_marks
from kintsugi.core.plan import Ask, Compact, Happening, Plan
from kintsugi.core.snapshot import Canary, Key, Snapshot
from kintsugi.core.times import Times, effective_times
from kintsugi.ports.clock import Clock
from kintsugi.ports.cluster import ClusterPort, Json
from kintsugi.ports.engines import Address, EnginePort
from kintsugi.ports.errors import Conflict, PortError
from kintsugi.ports.recorder import Recorder
from kintsugi.runtime.act import Actor, CrdOutdated
from kintsugi.runtime.blackbox import BlackBoxes, Flight
from kintsugi.runtime.fleet import FleetBook
from kintsugi.runtime.keeping import Shelf, put_away, take_down
from kintsugi.runtime.measuring import Measuring
from kintsugi.runtime.observe import Observer, Sight
from kintsugi.runtime.retention import retire_old_records

log = logging.getLogger("kintsugi.reconcile")

ASK_TIMEOUT_SECONDS = 20.0
CRD_RECHECK_SECONDS = 300.0


@dataclass(slots=True)
class _Kept:
    """Everything remembered of one deployment between passes."""

    sight: Sight
    memory: Memory
    shelf: Shelf
    resets: tuple[str, ...] | None = None
    """A person's resets as they stood in the last pass; None before the first."""
    flight: Flight = field(default_factory=Flight)
    outdated_until: float = float("-inf")
    outdated: tuple[str, ...] = ()
    """Status fields that the installed CRD was last said to lack."""
    read: tuple[str, DeepSeekV4Deployment, Times] | None = None
    """The object as last parsed, with its resourceVersion and the times of its spec: a quiet one is parsed once."""

    def parsed(self, raw: Json) -> tuple[DeepSeekV4Deployment, Times]:
        """`raw` as a model, and its times; SpecInvalid where it can't be one."""
        version = str(raw["metadata"]["resourceVersion"])
        if self.read is None or self.read[0] != version:
            deployment = parse_deployment(raw)
            self.read = version, deployment, effective_times(deployment.spec)
        return self.read[1:]


class Reconciler:
    """Runs passes through the ports. One value per process; `forget` drops a deployment's memory."""

    def __init__(
        self,
        cluster: ClusterPort,
        engines: EnginePort,
        clock: Clock,
        recorder: Recorder,
        measuring: Measuring | None = None,
        image: str = "",
    ) -> None:
        """`image`: the operator's own, from which engines get the telemetry; '' where it is not known."""
        self._cluster = cluster
        self._engines = engines
        self._clock = clock
        self._recorder = recorder
        self._measuring = measuring
        self._observer = Observer(cluster, engines, clock, measuring, image)
        self._actor = Actor(cluster)
        self._black_boxes = BlackBoxes(cluster, engines)
        self._book = FleetBook()
        self._kept: dict[Key, _Kept] = {}

    def forget(self, key: Key) -> None:
        """The deployment is gone, or another leads: nothing of it is remembered."""
        self._kept.pop(key, None)
        self._book.forget(key)
        self._recorder.forget(key)
        if self._measuring is not None:
            self._measuring.forget(key)

    async def run(self, key: Key, late_by: float) -> float | None:
        """One pass. Seconds until the next is due; None where the deployment is gone or going."""
        raw = await self._cluster.get_deployment(key)
        if raw is None or raw["metadata"].get("deletionTimestamp"):
            self.forget(key)
            return None
        self._collect_canaries()
        try:
            kept = self._kept.get(key) or await self._remember(key, raw)
            return await self._pass(key, raw, kept, late_by)
        except SpecInvalid as error:
            log.error("the object can't be read", extra={"fleet": str(key), "why": str(error)})
            await self._tell(raw, Happening("SpecInvalid", str(error)[:900], True, "Report"))
            return CRD_RECHECK_SECONDS

    async def _remember(self, key: Key, raw: Json) -> _Kept:
        """Begin with a deployment: with what was learned of it before this process."""
        deployment = parse_deployment(raw)
        times, uid = effective_times(deployment.spec), deployment.metadata.uid
        memory, shelf = await take_down(self._cluster, key, uid, self._clock.mono(), self._clock.now(), times)
        return self._kept.setdefault(key, _Kept(Sight(self._clock.mono()), memory, shelf))

    async def _pass(self, key: Key, raw: Json, kept: _Kept, late_by: float) -> float:
        deployment, times = kept.parsed(raw)
        await self._heed_reset(key, deployment, kept, times)
        snapshot = await self._observer.snapshot(
            key, raw, deployment, kept.sight, times, self._book.fleet(), late_by
        )
        judgement = judge(snapshot, times, kept.memory)
        kept.memory = judgement.memory
        judged = judged_of(judgement)
        plan = decide(snapshot, judged, times)
        kept.sight.needs_nodes = plan.needs_nodes
        self._book.note(snapshot, plan.status, times)
        kept.flight.note(snapshot, (a.uid for a in plan.status.remediations.active))
        for probe in judgement.probes:
            self._probe(kept.sight, probe, judgement.abandon_after)
        for question in judgement.questions:
            self._probe(kept.sight, question, judgement.answer_within)
        try:
            await self._carry_out(raw, snapshot, plan, judged, times, kept)
        except Conflict as error:
            log.info("plan dropped", extra={"fleet": str(key), "why": str(error)})
            return min(1.0, times.scrape_interval)
        self._recorder.note(snapshot, judged, plan)
        await put_away(self._cluster, kept.shelf, snapshot, kept.memory, times)
        return times.scrape_interval

    async def _heed_reset(
        self, key: Key, deployment: DeepSeekV4Deployment, kept: _Kept, times: Times
    ) -> None:
        """A person's reset: what was seen before counts no more, and evidence starts from now (safety rule 11)."""
        marks = reset_marks(deployment.metadata.annotations)
        known, kept.resets = kept.resets, marks
        if known is None or known == marks:
            return
        kept.memory, kept.shelf = await take_down(
            self._cluster, key, deployment.metadata.uid, self._clock.mono(), self._clock.now(), times
        )
        kept.sight.observed_since = self._clock.mono()
        log.info("evidence starts anew, by a person's reset", extra={"fleet": str(key)})

    async def _carry_out(
        self, raw: Json, snapshot: Snapshot, plan: Plan, judged: Judged, times: Times, kept: _Kept
    ) -> None:
        if snapshot.mono < kept.outdated_until:
            return
        try:
            written = await self._actor.commit(snapshot, plan)
        except CrdOutdated as error:
            kept.outdated_until = snapshot.mono + CRD_RECHECK_SECONDS
            text = f"nothing is done: {error}. Apply the CRDs of this operator's version"
            log.error("CRDOutdated", extra={"fleet": str(snapshot.key), "why": text})
            if error.paths != kept.outdated:
                kept.outdated = error.paths
                await self._tell(raw, Happening("CRDOutdated", text[:900], True, "Report"))
            return
        secrets = (kept.sight.api_key or "",)
        plan = await self._black_boxes.filled(snapshot, plan, kept.flight, secrets, kept.sight.addresses)
        await self._actor.record(snapshot, plan)
        await self._actor.act(snapshot, plan, judged, times)
        self._ask(plan, kept.sight)
        if written:
            for happening in plan.happenings:
                await self._tell(raw, happening)
        if len(plan.status.remediations.recent) > len(snapshot.deployment.status.remediations.recent):
            await retire_old_records(self._cluster, snapshot.key, plan.status)

    def _ask(self, plan: Plan, sight: Sight) -> None:
        """Send replacements their one real request beside the pass, and have engines give memory back; the answers are in
        later snapshots."""
        for action in plan.actions:
            if isinstance(action, Compact) and (engine := sight.addresses.get(action.uid)):
                sight.compactions.tell(self._engines, action.attempt, engine)
            address = sight.addresses.get(action.uid) if isinstance(action, Ask) else None
            if isinstance(action, Ask) and address is not None and action.uid not in sight.asking:
                sight.asking[action.uid] = asyncio.create_task(self._answer(sight, action.uid, address))

    async def _answer(self, sight: Sight, uid: str, address: Address) -> None:
        try:
            sight.answers[uid] = await self._engines.ask(address, ASK_TIMEOUT_SECONDS)
        finally:
            sight.asking.pop(uid, None)

    def _probe(self, sight: Sight, canary: Canary, abandon_after: float) -> None:
        address = sight.addresses.get(canary.process.uid)
        if address is not None:
            self._engines.send_canary(address, canary, abandon_after)

    def _collect_canaries(self) -> None:
        """Hand results to the deployment whose pod they are about; those of forgotten ones are dropped."""
        for result in self._engines.canary_results():
            for kept in self._kept.values():
                if result.canary.process.uid in kept.sight.addresses:
                    kept.sight.results.append(result)

    async def _tell(self, raw: Json, happening: Happening) -> None:
        """Post an Event about the deployment `raw`: best effort, one that can't be posted fails no pass."""
        kind = "Warning" if happening.warning else "Normal"
        try:
            for regarding in (_regarding(raw), *_node(happening.node)):
                await self._cluster.create_event(
                    regarding, kind, happening.reason, happening.message[:1000], happening.action
                )
        except PortError as error:
            log.warning("event not posted", extra={"reason": happening.reason, "why": str(error)})


def judged_of(judgement: Judgement) -> Judged:
    """The judgement as the decision needs it."""
    return Judged(
        verdicts=judgement.verdicts,
        data_fresh=judgement.data_fresh,
        data_reason=judgement.data_reason,
        data_message=judgement.data_message,
        pool_findings=judgement.pool_findings,
    )


def _node(name: str) -> list[Json]:
    """What an Event about a node refers to: `kubectl describe node` looks for its name as UID, as the kubelet writes it."""
    return [{"apiVersion": "v1", "kind": "Node", "name": name, "uid": name}] if name else []


def _regarding(raw: Json) -> Json:
    """What an Event about this object refers to."""
    metadata = raw["metadata"]
    return {
        "apiVersion": raw["apiVersion"],
        "kind": raw["kind"],
        "namespace": metadata["namespace"],
        "name": metadata["name"],
        "uid": metadata["uid"],
    }
