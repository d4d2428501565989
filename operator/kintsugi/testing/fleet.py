"""Engines in the pods of a fake cluster, in closed form: a page costs microseconds, so weeks can be simulated.

`FakeEngines` stands in for `adapters.engines.HttpEngines`. What an engine does is a handful of numbers that a test
changes by `change`; counters follow from them and from simulated time. The full simulator, with real requests and
faults, is `kintsugi.testing.engine`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kintsugi.adapters.kube.parse import epoch
from kintsugi.core import names
from kintsugi.core.command.read import read_words
from kintsugi.core.snapshot import (
    Answer,
    Canary,
    CanaryOutcome,
    CanaryResult,
    Failed,
    Failure,
    Page,
    ProcessKey,
    Question,
    Scrape,
)
from kintsugi.ports.engines import Address
from kintsugi.testing.cluster import FakeCluster, pods
from kintsugi.testing.enginepage import Counters, page

Json = dict[str, Any]
CANARY_SECONDS = 0.05
CANARY_PROMPT_TOKENS = 4


@dataclass(frozen=True, slots=True)
class Behaviour:
    """How one engine behaves until it is changed."""

    running: float = 4.0
    """Requests in the batch while the pod is in rotation."""
    waiting: float = 0.0
    kv_usage: float = 0.2
    steps_per_second: float = 20.0
    slow: float = 1.0
    """Every step takes so many times as long."""
    hung: bool = False
    """No step, no answer to a request; `/metrics` answers."""
    silent: bool = False
    """The port accepts connections and nothing answers."""
    failure: Failure | None = None
    """Every scrape fails this way."""
    unrecognised: bool = False
    """The page holds none of the known series."""
    admits: bool = True
    """False: steps go on, and no new request gets a first token."""
    errors: float = 0.0
    """Share of requests that end in an error."""
    canary_errors: float = 0.0
    """Share of canaries that are answered with status 500, spread evenly."""
    garbage: float = 0.0
    """Share of known-answer questions that are answered wrong, spread evenly."""
    nans: float | None = None
    """Requests with NaNs per second; None: the engine was not told to count them."""
    near_ties: frozenset[str] = frozenset()
    """Names of questions of whose answers this engine is not sure."""
    canary_status: int = 200
    answer_seconds: float = CANARY_SECONDS
    """A canary waits so long for its answer."""
    fragmentation: float | None = 0.05
    """None: the telemetry plugin is missing."""
    orphaned: float | None = 0.0
    memory: float | None = 20.0
    """GiB of the container's 64 at the process's start; None: nobody measures it."""
    leak: float = 0.0
    """GiB that its memory rises by in an hour."""
    forgotten: frozenset[str] = frozenset()
    """Adapters that it no longer lists."""
    compacts: float | None = None
    """Fragmentation after it gave cached memory back; None: it can't."""
    drain_seconds: float = 20.0
    """Running requests end within this long after the pod has left rotation."""

    @property
    def steps(self) -> bool:
        return not self.hung and self.running > 0


@dataclass(slots=True)
class _Engine:
    """One process. `at` is the monotonic time up to which its counters are right."""

    behaviour: Behaviour
    started_at: float
    at: float
    counters: Counters
    out_since: float | None = None
    canary_debt: float = 0.0
    """Share of a canary that is owed an error."""
    garbage_debt: float = 0.0
    """Share of a question that is owed a wrong answer."""

    def running(self, now: float) -> float:
        """Requests in the batch: none is left once the drain is over, all of them while nothing steps."""
        if self.out_since is None or self.behaviour.hung:
            return self.behaviour.running
        left = 1.0 - (now - self.out_since) / max(self.behaviour.drain_seconds, 1e-9)
        return float(round(self.behaviour.running * max(0.0, left)))

    def advance(self, now: float) -> None:
        seconds, self.at = now - self.at, now
        running, b = self.running(now), self.behaviour
        self.counters.process_cpu += 0.02 * seconds
        if b.nans is not None:
            self.counters.corrupted = (self.counters.corrupted or 0.0) + b.nans * seconds
        if b.hung or b.silent or running <= 0:
            return
        steps = seconds * b.steps_per_second / b.slow
        self.counters.run(steps, running, seconds, b.admits, b.errors)


@dataclass(slots=True)
class _Open:
    """A canary that waits for its answer."""

    canary: Canary
    uid: str
    abandon_at: float


class FakeEngines:
    """`ports.engines.EnginePort` over the engine containers of a `FakeCluster`."""

    def __init__(self, cluster: FakeCluster, behaviour: Callable[[Json], Behaviour] | None = None) -> None:
        self._cluster = cluster
        self.behaviour = behaviour or (lambda pod: Behaviour())
        """How each new engine process behaves, by its pod."""
        self._engines: dict[str, _Engine] = {}
        self._open: list[_Open] = []
        self._results: list[CanaryResult] = []
        self._index: dict[str, Json] = {}
        self._indexed = -1
        self.scrapes = 0
        self.canaries: list[Canary] = []
        """Every canary sent so far, questions not counted."""
        self.questions: list[Canary] = []
        """Every known-answer question sent so far."""
        self.listed: list[str] = []
        """Names of the pods whose list of models was asked for, in order."""
        self.compacted = 0
        """How often an engine gave cached memory back."""
        self.asked: list[str] = []
        """Names of the pods that got a real request, in order."""

    def change(self, pod: str, namespace: str | None = None, **changes: Any) -> None:
        """From now on the engine in `pod` behaves otherwise; a restart of its container undoes it."""
        found = next(each for each in self._cluster.all("Pod", namespace) if each["metadata"]["name"] == pod)
        engine = self._engine(found)
        if engine is None:
            raise LookupError(f"no engine runs in {pod}")
        engine.advance(self._cluster.clock.mono())
        engine.behaviour = replace(engine.behaviour, **changes)
        self._answer_open()

    def behaviour_of(self, pod: str, namespace: str | None = None) -> Behaviour | None:
        """How the engine in `pod` behaves now; None where none runs."""
        found = next(
            (each for each in self._cluster.all("Pod", namespace) if each["metadata"]["name"] == pod), None
        )
        engine = self._engine(found) if found is not None else None
        return engine.behaviour if engine is not None else None

    async def close(self) -> None:
        """Nothing to close."""

    async def scrape(self, addresses: Sequence[Address], timeout: float) -> list[Scrape]:
        """A page of each address, read at this very moment."""
        by_ip = self._by_ip()
        return [self._scrape(by_ip.get(address.ip)) for address in addresses]

    def send_canary(self, address: Address, canary: Canary, abandon_after: float) -> None:
        """Answered after a moment, or when the engine comes to itself, or abandoned."""
        clock = self._cluster.clock
        (self.canaries if canary.question is None else self.questions).append(canary)
        pod = self._by_ip().get(address.ip)
        if pod is None or not self._cluster.reachable(pod):
            clock.call_later(2.0, lambda: self._end(canary, CanaryOutcome.CONNECT_TIMEOUT))
            return
        engine = self._engine(pod)
        if engine is None:
            clock.call_later(CANARY_SECONDS, lambda: self._end(canary, CanaryOutcome.CONNECTION_REFUSED))
            return
        self._open.append(_Open(canary, pod["metadata"]["uid"], clock.mono() + abandon_after))
        clock.call_later(engine.behaviour.answer_seconds, self._answer_open)
        clock.call_later(abandon_after, self._answer_open)

    def canary_results(self) -> list[CanaryResult]:
        """Canaries that ended since the last call."""
        self._answer_open()
        ended, self._results = self._results, []
        return ended

    async def ask(self, address: Address, timeout: float) -> bool:
        """Whether the engine answers a real request now."""
        pod = self._by_ip().get(address.ip)
        engine = self._engine(pod) if pod is not None else None
        if pod is None or engine is None or not self._cluster.reachable(pod):
            return False
        self.asked.append(pod["metadata"]["name"])
        b = engine.behaviour
        return not b.hung and not b.silent and b.admits and b.canary_status == 200

    async def can_compact(self, address: Address, timeout: float) -> bool | None:
        """Whether the engine can give memory back; None where it is not reached."""
        engine = self._reached(address)
        return None if engine is None else engine.behaviour.compacts is not None

    async def compact(self, address: Address, timeout: float) -> bool:
        """The engine's fragmentation becomes what it is after that."""
        engine = self._reached(address)
        if engine is None or engine.behaviour.compacts is None or engine.behaviour.hung:
            return False
        self.compacted += 1
        engine.behaviour = replace(engine.behaviour, fragmentation=engine.behaviour.compacts)
        return True

    async def record(self, address: Address, timeout: float) -> tuple[Mapping[str, Any], ...] | None:
        """Engines in closed form keep no record of their own; None where one is not reached."""
        return None if self._reached(address) is None else ()

    def _reached(self, address: Address) -> _Engine | None:
        pod = self._by_ip().get(address.ip)
        return self._engine(pod) if pod is not None and self._cluster.reachable(pod) else None

    async def models(self, address: Address, timeout: float) -> frozenset[str] | None:
        """What the engine lists: its model, and its adapters but for those that it has forgotten."""
        pod = self._by_ip().get(address.ip)
        engine = self._engine(pod) if pod is not None else None
        if pod is None or engine is None or not self._cluster.reachable(pod):
            return None
        self.listed.append(pod["metadata"]["name"])
        words = next(c for c in pod["spec"]["containers"] if c["name"] == names.ENGINE_CONTAINER)["args"]
        given = [argument.values for argument in read_words(words, str) if argument.flag == "--lora-modules"]
        adapters = {value.partition("=")[0] for values in given for value in values}
        return frozenset({address.model, *(adapters - engine.behaviour.forgotten)})

    def _scrape(self, pod: Json | None) -> Scrape:
        now = self._cluster.clock.mono()
        self.scrapes += 1
        if pod is None or not self._cluster.reachable(pod):
            return Failed(Failure.CONNECT_TIMEOUT, "no connection in time", now)
        engine = self._engine(pod)
        if engine is None:
            return Failed(Failure.REFUSED, "connection refused", now)
        b = engine.behaviour
        if b.failure is not None or b.silent:
            return Failed(b.failure or Failure.SILENT, "on demand", now)
        if b.unrecognised:
            return Page("python_info 1\n", now)
        engine.advance(now)
        gauges = {"running": engine.running(now), "waiting": b.waiting, "kv_usage": b.kv_usage}
        hours = (self._cluster.clock.now() - engine.started_at) / 3600
        memory = None if b.memory is None else b.memory + b.leak * hours
        text = page(engine.counters, engine.started_at, b.fragmentation, b.orphaned, memory=memory, **gauges)
        return Page(text, now)

    def _engine(self, pod: Mapping[str, Any]) -> _Engine | None:
        """The engine that runs in `pod`, made when it is first looked at; None while no container runs."""
        started = _started(pod)
        if started is None:
            self._engines.pop(pod["metadata"]["uid"], None)
            return None
        uid, mono = pod["metadata"]["uid"], self._cluster.clock.mono()
        engine = self._engines.get(uid)
        if engine is None or engine.started_at != started:
            began = mono - max(0.0, self._cluster.clock.now() - started)
            engine = self._engines[uid] = _Engine(self.behaviour(dict(pod)), started, began, Counters())
        out = pods.labels(pod).get(names.ROTATION_LABEL) == names.ROTATION_OUT
        if out != (engine.out_since is not None):
            engine.advance(mono)
            engine.out_since = mono if out else None
        return engine

    def _answer_open(self) -> None:
        """End the canaries that are answered, abandoned, or whose process is gone."""
        if not self._open:
            return
        now = self._cluster.clock.mono()
        living = {pod["metadata"]["uid"]: pod for pod in self._cluster.world.store.each("Pod")}
        still = []
        for each in self._open:
            pod = living.get(each.uid)
            engine = self._engine(pod) if pod is not None else None
            if engine is None or ProcessKey(each.uid, engine.started_at) != each.canary.process:
                self._end(each.canary, CanaryOutcome.CONNECTION_REFUSED)
                continue
            b = engine.behaviour
            if b.canary_status != 200:
                outcome = (
                    CanaryOutcome.ADMISSION_FULL
                    if b.canary_status == 503
                    else CanaryOutcome.REFUSED_BY_ENGINE
                )
                if b.canary_status >= 500 and b.canary_status != 503:
                    outcome = CanaryOutcome.SERVER_ERROR
                self._end(each.canary, outcome, b.canary_status)
            elif (
                not b.hung and not b.silent and b.admits and now - each.canary.sent > b.answer_seconds - 1e-6
            ):
                engine.advance(now)
                self._answer(engine, each.canary)
            elif now >= each.abandon_at:
                engine.counters.http_good += 1
                self._end(each.canary, CanaryOutcome.ABANDONED)
            else:
                still.append(each)
        self._open = still

    def _answer(self, engine: _Engine, canary: Canary) -> None:
        """With a token, or, for the share of canaries that fail, with an error."""
        engine.canary_debt += engine.behaviour.canary_errors
        if engine.canary_debt < 1.0:
            asked = canary.question
            engine.counters.canary(CANARY_PROMPT_TOKENS if asked is None else len(asked.prompt))
            answer = None if asked is None else _answer_to(asked, engine)
            self._results.append(
                CanaryResult(canary, CanaryOutcome.ANSWERED, self._cluster.clock.mono(), 200, answer)
            )
            return
        engine.canary_debt -= 1.0
        engine.counters.http_failed += 1
        engine.counters.failed += 1
        self._end(canary, CanaryOutcome.SERVER_ERROR, 500)

    def _end(self, canary: Canary, outcome: CanaryOutcome, status: int = 0) -> None:
        self._results.append(CanaryResult(canary, outcome, self._cluster.clock.mono(), status))

    def _by_ip(self) -> dict[str, Json]:
        store = self._cluster.world.store
        if self._indexed != store.version:
            self._indexed = store.version
            self._index = {
                ip: pod for pod in store.each("Pod") if (ip := (pod.get("status") or {}).get("podIP"))
            }
        return self._index


def _answer_to(asked: Question, engine: _Engine) -> Answer:
    """What every well engine answers, or something else."""
    b = engine.behaviour
    engine.garbage_debt += b.garbage
    wrong = engine.garbage_debt >= 1.0
    engine.garbage_debt -= wrong
    sure = 0.1 if asked.name in b.near_ties else 9.0
    return Answer(f"not {asked.name}" if wrong else asked.name, sure if asked.margin else None)


def _started(pod: Mapping[str, Any]) -> float | None:
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    engine = next((each for each in statuses if each["name"] == names.ENGINE_CONTAINER), None)
    return epoch(((engine or {}).get("state", {}).get("running") or {}).get("startedAt"))
