"""The false-positive suite: healthy pools for thousands of hours, every kind of fault hundreds of times, two processes."""

import gc
import io
import math
import multiprocessing
import pickle
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from kintsugi.core.detect.slow import lengths_of
from kintsugi.core.times import Times
from kintsugi.testing.simulation.cost import CHUNK_TOKENS, drawn
from kintsugi.testing.simulation.kinds import KINDS, START_BUDGET_SECONDS, Kind, NeverHappened
from kintsugi.testing.simulation.nearness import Nearness
from kintsugi.testing.simulation.pod import Pod
from kintsugi.testing.simulation.temper import Temper, draw_temper
from kintsugi.testing.simulation.trial import Act, Trial
from kintsugi.testing.simulation.world import World, deployment

WARM_SECONDS: Final = 7_200.0
"""Warm-up 600 s, 15 minutes until two instances have taught a model of steps, 30 minutes for a baseline by it, and an hour in
which the model learns what is free of the instances' own levels."""
WARM_SECONDS_SHORT: Final = 700.0
"""For kinds that need no baseline."""
WARM_INTERVAL: Final = 5
HEALTHY_SPAN_SECONDS: Final = 12 * 3_600.0
"""One healthy pool is watched for so long."""
INTERVALS: Final[Mapping[int, float]] = {5: 0.3, 10: 0.3, 15: 0.2, 30: 0.2}
"""Seconds between two looks at a healthy pool (monitoring.scrapeIntervalSeconds), and how often each is drawn, from the
default to the longest that a user may set. The mix is ours."""
SHARE_FOUND: Final = 0.99
"""Of the runs of a kind that must be found, and found within its bar: of 500 runs or more as it stands."""
CHANCE: Final = 0.01
"""With fewer runs a share says little (one miss of 60 is 98 %): a kind fails there where so many misses or more would
come about in fewer than one of a hundred suites if 99 % of faults were found. All kinds together are asked the same."""
GRACE: Final = 1.5
"""A fault run is watched for so many times its bar."""
VICTIMS: Final = 5
"""Runs of each kind on copies of one warm pool, each with its own traffic from then on."""
MOST_DRAWS: Final = 50
SHARE_SHOWN: Final = 0.9
"""Of the minutes before a fault, those in which the steps of every instance could be compared with its siblings'."""


@dataclass(frozen=True, slots=True)
class Size:
    """How much a suite does: instance-hours of healthy pools, and runs of each kind of fault."""

    healthy_hours: float
    runs: int


FULL: Final = Size(10_000, 500)
CI: Final = Size(2_000, 60)


@dataclass(slots=True)
class Count:
    """One kind: runs, found at all, found within the bar; and the delays of those found."""

    runs: int = 0
    found: int = 0
    within_bar: int = 0
    delays: list[float] = field(default_factory=list)

    def after(self, share: float) -> float | None:
        """Seconds within which this share of those found were found."""
        ordered = sorted(self.delays)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else None


@dataclass(slots=True)
class Tally:
    """What came out, of one job or of all."""

    hours: float = 0.0
    by_interval: Counter[int] = field(default_factory=Counter)
    """Healthy pools by the seconds between two looks at them, in whole instance-hours."""
    false: list[str] = field(default_factory=list)
    """Every removal of a healthy instance, in words, with the seed that repeats it."""
    withdrawn: int = 0
    """Healthy instances withdrawn for a while: not counted as false, told for people."""
    faults: dict[str, Count] = field(default_factory=dict)
    missed: list[str] = field(default_factory=list)
    """Every fault run not found within its bar, in words."""
    nearest: list[float] = field(default_factory=list)
    """By healthy pool: 99 % quantile of D of the instance where it is highest, percent."""

    def add(self, other: "Tally") -> None:
        """Take in another tally."""
        self.hours += other.hours
        self.by_interval += other.by_interval
        self.false += other.false
        self.withdrawn += other.withdrawn
        self.missed += other.missed
        self.nearest += other.nearest
        for name, count in other.faults.items():
            mine = self.faults.setdefault(name, Count())
            mine.runs += count.runs
            mine.found += count.found
            mine.within_bar += count.within_bar
            mine.delays += count.delays

    def failures(self, size: Size) -> list[str]:
        """What misses its bar; empty where the suite passes."""
        said = [f"removal of a healthy instance: {text}" for text in self.false]
        if self.hours < size.healthy_hours:
            said.append(f"only {self.hours:.0f} of {size.healthy_hours:.0f} healthy hours were simulated")
        for name, count in self.faults.items():
            if count.runs < SHARE_FOUND * size.runs:
                said.append(f"{name}: only {count.runs} of {size.runs} runs came about")
            elif too_many(count.runs - count.found, count.runs):
                said.append(f"{name}: {count.found} of {count.runs} found, fewer than 99 %")
            elif too_many(count.runs - count.within_bar, count.runs):
                said.append(f"{name}: {count.within_bar} of {count.runs} within the bar, fewer than 99 %")
        runs = sum(count.runs for count in self.faults.values())
        missed = sum(count.runs - count.within_bar for count in self.faults.values())
        if missed and chance_of(missed, runs) < CHANCE:
            said.append(f"all kinds together: {runs - missed} of {runs} within the bar, fewer than 99 %")
        return said

    def report(self, seed: int) -> dict[str, Any]:
        """As `build/simulate.json` holds it."""
        return {
            "healthyInstanceHours": round(self.hours, 1),
            "falseRecreations": len(self.false),
            "seed": seed,
            "faults": {
                name: {"runs": count.runs, "found": count.found, "withinBar": count.within_bar}
                for name, count in sorted(self.faults.items())
            },
        }


def too_many(misses: int, runs: int) -> bool:
    """Whether `misses` of `runs` speak against a true share of 99 %."""
    if runs >= FULL.runs:
        return misses > (1 - SHARE_FOUND) * runs + 1e-9
    return misses > 0 and chance_of(misses, runs) < CHANCE


def chance_of(misses: int, runs: int) -> float:
    """How often so many misses or more come about in `runs` runs, where 1 % of faults is missed."""
    miss = 1 - SHARE_FOUND
    fewer = (math.comb(runs, k) * miss**k * (1 - miss) ** (runs - k) for k in range(misses))
    return max(0.0, 1 - math.fsum(fewer))


@dataclass(frozen=True, slots=True)
class Job:
    """One piece of work: a healthy pool (`kinds` empty), or one warm pool for a run of each of `kinds`."""

    seed: str
    kinds: tuple[str, ...] = ()
    victims: int = 1
    """Runs of each kind, each on another instance where there are several."""
    times: Times | None = None
    """Other times than the defaults: a detector that is planted to be wrong."""
    spec: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the deployment's spec that differ from the defaults."""
    seconds: float = HEALTHY_SPAN_SECONDS
    """How long a healthy pool is watched."""

    def do(self) -> Tally:
        """Do it."""
        tally = faulty(self) if self.kinds else healthy(self)
        gc.collect()
        return tally


def jobs(size: Size, seed: int, times: Times | None = None, kinds: Mapping[str, Kind] = KINDS) -> list[Job]:
    """All the work of a suite; healthy pools first, since they take longest."""
    found, hours, number = [], 0.0, 0
    while hours < size.healthy_hours * 1.02:
        job = Job(f"{seed}/healthy/{number}", times=times)
        hours += _temper(job).size * HEALTHY_SPAN_SECONDS / 3_600
        found.append(job)
        number += 1
    alike: dict[tuple[int, int], list[str]] = {}
    for name, kind in kinds.items():
        alike.setdefault((kind.ranks, kind.interval), []).append(name)
    for (ranks, interval), names in alike.items():
        for first in range(0, size.runs, VICTIMS):
            victims = min(VICTIMS, size.runs - first)
            found.append(Job(f"{seed}/faults{ranks}x{interval}/{first}", tuple(names), victims, times))
    return found


def _temper(job: Job) -> Temper:
    return draw_temper(random.Random(job.seed))


def healthy(job: Job) -> Tally:
    """Watch a pool to which nothing happens that a removal would cure."""
    luck = random.Random(job.seed)
    temper = draw_temper(luck)
    interval = random.Random(f"{job.seed}/interval").choices(*zip(*INTERVALS.items(), strict=True))[0]
    deployed = deployment(temper.size, {"monitoring": {"scrapeIntervalSeconds": interval}, **job.spec})
    trial = Trial(World(temper, deployed, luck), trouble=True, times=job.times)
    near = Nearness()
    while trial.world.t < job.seconds:
        trial.step()
        near.note(trial.world.t, trial.memory)
    worst = near.worst()
    tally = Tally(trial.hours, Counter({round(trial.wait): round(trial.hours)}))
    tally.nearest = [] if worst is None else [worst]
    for act in trial.acts:
        if act.removes:
            found = act.finding
            tally.false.append(
                f"{found.detector.value}/{found.reason} at {act.t:.0f} s of {act.pod} "
                f"(seed {job.seed}): {found.message}"
            )
        else:
            tally.withdrawn += 1
    return tally


def faulty(job: Job) -> Tally:
    """Warm one pool up, and make a copy of it sick in each of the ways of `job.kinds`."""
    tally = Tally()
    for attempt in range(MOST_DRAWS):
        luck = random.Random(f"{job.seed}/{attempt}")
        ranks, interval = KINDS[job.kinds[0]].ranks, KINDS[job.kinds[0]].interval
        temper = _busy(draw_temper(luck, luck.choices((2, 3, 4), (6, 3, 1))[0], ranks), luck)
        spec = {
            "engine": {"startBudgetSeconds": START_BUDGET_SECONDS},
            "monitoring": {"scrapeIntervalSeconds": interval},
        }
        deployed = deployment(temper.size, {**spec, **job.spec})
        world = World(temper, deployed, luck, events=False)
        for pod in world.pods:
            pod.calm_shape, pod.telemetry = True, True
            pod.start(0.0, 10.0)
        trial = Trial(world, times=job.times)
        whole = ranks == 1 and interval == WARM_INTERVAL
        trial.run(WARM_SECONDS if whole else WARM_SECONDS_SHORT)
        if (not whole or (_learnt(trial) and _shows(trial))) and _keeps_up(trial):
            break
    else:
        raise NeverHappened(f"no pool of {job.seed} keeps up with its work and learned its step cost")
    frozen = Frozen.of(trial)
    for number in range(job.victims):
        for names in _together(job.kinds):
            tally.add(_run(job, names, number, frozen.copy()))
    return tally


def _together(names: Sequence[str]) -> list[list[str]]:
    """The kinds that one copy of a pool shows at once, each in an instance of its own, where one does not touch the
    other (`Kind.beside`)."""
    groups = {name: [name] for name in names if KINDS[name].beside not in names}
    for name in names:
        if name not in groups:
            groups[KINDS[name].beside].append(name)
    return list(groups.values())


@dataclass(frozen=True, slots=True)
class Frozen:
    """A warm trial of which many copies are made; what never changes is shared. Eight times as fast as `deepcopy`."""

    data: bytes
    shared: tuple[Any, ...]

    @classmethod
    def of(cls, trial: Trial) -> "Frozen":
        """What `trial` is now."""
        shared = (trial.world.deployed, trial.times, trial.world.temper)
        places = {id(one): index for index, one in enumerate(shared)}

        class Sharing(pickle.Pickler):
            def persistent_id(self, obj: object) -> int | None:
                return places.get(id(obj))

        buffer = io.BytesIO()
        Sharing(buffer, pickle.HIGHEST_PROTOCOL).dump(trial)
        return cls(buffer.getvalue(), shared)

    def copy(self) -> Trial:
        """One copy of its own."""
        shared = self.shared

        class Sharing(pickle.Unpickler):
            def persistent_load(self, pid: int) -> Any:
                return shared[pid]

        trial: Trial = Sharing(io.BytesIO(self.data)).load()
        return trial


def _busy(temper: Temper, luck: random.Random) -> Temper:
    """So busy that slow steps show, and with prefill in chunks of 0.3 s at most: for such engines the bars hold."""
    cost = temper.cost if temper.limits.chunk else drawn(luck)
    rate = 1 / max(cost.prompt, cost.attention)
    chunk = min(temper.limits.chunk or CHUNK_TOKENS, 256 * max(1, int(0.15 * rate / 256)))
    temper = replace(temper, cost=cost, limits=replace(temper.limits, chunk=chunk))
    load = luck.uniform(0.15, 0.5)
    return replace(temper, load=load, idle=0.0, day=0.0, giants=0.0, longest_prefill=0.0)


def _keeps_up(trial: Trial) -> bool:
    """Nowhere does a queue stand that is longer than what is computed at once: behind one, canaries wait as all do."""
    return all(len(engine.queue) <= engine.limits.seqs for pod in trial.world.pods for engine in pod.engines)


def _learnt(trial: Trial) -> bool:
    return all(process.slow.baseline is not None for process in trial.memory.processes.values())


def _shows(trial: Trial) -> bool:
    """Whether the work of the last ten minutes told how long steps take, in nearly every one of them."""
    windows = lengths_of(trial.times or Times()).whole
    known = [process.slow.against.known(windows) for process in trial.memory.processes.values()]
    return min(known) >= SHARE_SHOWN * windows


def _run(job: Job, names: Sequence[str], victim: int, trial: Trial) -> Tally:
    """One run of each of `names`, side by side on a warm pool, which is used up."""
    seed = f"{job.seed}/{names[0]}/{victim}"
    trial.world.luck.seed(seed)
    trial.acts.clear()
    luck, pods = random.Random(seed), trial.world.pods
    victims = {name: pods[(victim + place) % len(pods)] for place, name in enumerate(names)}
    tally = Tally(faults={name: Count() for name in names})
    onsets: dict[str, float] = {}
    for name, pod in victims.items():
        try:
            onsets[name] = KINDS[name].begin(trial, pod, luck)
        except NeverHappened:
            continue
    for name, onset in onsets.items():
        kind = KINDS[name]
        found, removed = _watch(trial, victims[name], kind, onset)
        withdrawn = found is not None and found <= kind.withdrawn
        in_time = withdrawn and (kind.removed is None or (removed is not None and removed <= kind.removed))
        tally.faults[name] = Count(1, int(found is not None), int(in_time), [] if found is None else [found])
        if not in_time:
            tally.missed.append(
                f"{name} (seed {seed}): Sick after {found} s, to be removed after {removed} s"
            )
    sick = {pod.uid for pod in victims.values()}
    tally.false = [
        f"{act.finding.detector.value}/{act.finding.reason} of a healthy sibling (seed {seed}): "
        f"{act.finding.message}"
        for act in trial.acts
        if act.removes and act.pod not in sick
    ]
    return tally


def _watch(trial: Trial, pod: Pod, kind: Kind, onset: float) -> tuple[float | None, float | None]:
    """Seconds from the onset to the first verdict Sick and to the first that may remove."""
    until = onset + GRACE * max(kind.withdrawn, kind.removed or 0.0)
    while trial.world.t < until:
        if any(a.removes or kind.removed is None for a in _acts(trial, pod, kind)):
            break
        trial.step()
    acts = _acts(trial, pod, kind)
    first = min((a.t for a in acts), default=None)
    last = min((a.t for a in acts if a.removes), default=None)
    return (None if first is None else first - onset), (None if last is None else last - onset)


def _acts(trial: Trial, pod: Pod, kind: Kind) -> list[Act]:
    speaking = {kind.detector, *kind.also}
    return [act for act in trial.acts if act.pod == pod.uid and act.finding.detector in speaking]


def run(work: list[Job], processes: int = 2, told: Callable[[int, int], None] | None = None) -> Tally:
    """Everything, over `processes` processes; `told` hears how many jobs of how many are done."""
    tally = Tally()
    for done, each in enumerate(_results(work, processes), 1):
        tally.add(each)
        if told is not None:
            told(done, len(work))
    return tally


def _results(work: list[Job], processes: int) -> Iterator[Tally]:
    if processes <= 1:
        yield from (job.do() for job in work)
        return
    with multiprocessing.get_context("spawn").Pool(processes, initializer=_begin) as pool:
        yield from pool.imap_unordered(Job.do, work)


def _begin() -> None:
    """A worker makes no cycles worth looking for while a job runs."""
    gc.disable()
