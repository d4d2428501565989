"""The table of faults: how each begins, what must be found, and by when. One line each; new detectors add theirs.

Bars: hangs by design §11. The others are the trigger's own time plus a margin that is said with each of them, counted
from the moment at which the instance is sick by the trigger's definition.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from kintsugi.core.finding import Detector
from kintsugi.core.series import LONG_GAP_SECONDS
from kintsugi.testing.simulation.memory import Memory
from kintsugi.testing.simulation.pod import Pod
from kintsugi.testing.simulation.rank import RankEngine
from kintsugi.testing.simulation.trial import Trial

Begin = Callable[[Trial, Pod, random.Random], float]
"""Makes the pod sick; the moment from which its bars count (monotonic seconds, perhaps in the future)."""
LEAST_LOAD: Final = 2.0
LEAST_SLOW: Final = 2.2
IDLE_SECONDS: Final = 120.0
PATIENCE_SECONDS: Final = 3_600.0


class NeverHappened(RuntimeError):
    """The world did not come to the state in which this fault begins."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of fault. Seconds from its onset: `withdrawn` to the verdict Sick, `removed` to one that may remove."""

    detector: Detector
    begin: Begin
    withdrawn: float
    removed: float | None
    """None where the verdict only withdraws."""
    why: str
    """Where the bars come from."""
    ranks: int = 1
    interval: int = 5
    """Seconds between two looks (monitoring.scrapeIntervalSeconds)."""
    also: frozenset[Detector] = frozenset()
    """Detectors that may speak in place of `detector`, since the fault may be theirs by then."""
    beside: str = ""
    """A kind that may begin in another instance of the same pool at the same time: neither moves time as it begins,
    and nothing that its detector looks at is shared."""


def _moment(trial: Trial, luck: random.Random) -> float:
    """Any moment of the coming scrape interval."""
    wait = trial.times.scrape_interval if trial.times is not None else 5.0
    return trial.world.t + luck.random() * wait


def _loaded(trial: Trial, luck: random.Random, engines: list[RankEngine]) -> None:
    """Go to a moment between two scrapes at which the gauges of all `engines` tell of requests.

    An engine that stops while its gauges say 0, though requests reach it, is found as an idle one is.
    """

    def loaded() -> bool:
        return all(engine.shown.running >= LEAST_LOAD for engine in engines)

    began = trial.world.t
    while True:
        trial.peek(luck.random())
        if loaded():
            return
        trial.step()
        if trial.world.t - began > PATIENCE_SECONDS:
            raise NeverHappened


def _until(trial: Trial, so: Callable[[], bool]) -> None:
    began = trial.world.t
    while not so():
        if trial.world.t - began > PATIENCE_SECONDS:
            raise NeverHappened
        trial.step()


def _hang(trial: Trial, pod: Pod, ranks: frozenset[str]) -> float:
    pod.hung_ranks, pod.hung_from = ranks, trial.world.t
    return trial.world.t


def hang_under_load(trial: Trial, pod: Pod, luck: random.Random) -> float:
    """The core of an engine that has requests stops; its pages go on."""
    _loaded(trial, luck, pod.engines)
    return _hang(trial, pod, frozenset(engine.name for engine in pod.engines))


def hang_idle(trial: Trial, pod: Pod, luck: random.Random) -> float:
    """The core of an engine without requests stops."""
    trial.world.traffic.silence()
    _until(trial, lambda: not any(engine.load for engine in pod.engines))
    trial.run(IDLE_SECONDS + luck.uniform(0, 60))
    trial.peek(luck.random())
    return _hang(trial, pod, frozenset(engine.name for engine in pod.engines))


def hang_of_one_rank(trial: Trial, pod: Pod, luck: random.Random) -> float:
    """One rank with requests stops, the other serves on."""
    engine = luck.choice(pod.engines)
    _loaded(trial, luck, [engine])
    return _hang(trial, pod, frozenset({engine.name}))


def slow(trial: Trial, pod: Pod, luck: random.Random) -> float:
    """Every step takes 2.2 to 5 times as long: 55 to 80 % of the rate are lost.

    A step that then lasts 2.5 s or more counts as a wait, not as a step, and more than a tenth of those make the window
    Unknown (slow §2): engines with such steps are slowed less here. It is a limit of the detector.
    """
    limits, cost = pod.temper.limits, pod.temper.cost
    whole = cost.table(limits.seqs)[-1] + cost.context + (limits.chunk or 0) * (cost.prompt + cost.attention)
    most = min(5.0, 0.8 * LONG_GAP_SECONDS / whole)
    if most < LEAST_SLOW:
        raise NeverHappened
    pod.slow_from, pod.slow = _moment(trial, luck), luck.uniform(LEAST_SLOW, most)
    return pod.slow_from


def fragmentation(trial: Trial, pod: Pod, luck: random.Random) -> float:
    """The level climbs from below 20 % to 35 to 70 % within 2 to 30 minutes; sick from 27 % on."""
    shape = pod.shape
    shape.ramp_from, shape.ramp_seconds = _moment(trial, luck), luck.uniform(120, 1_800)
    shape.ramp_to = luck.uniform(35, 70)
    crossed = shape.crosses(27.0)
    if crossed is None:
        raise NeverHappened
    return crossed


def orphaned_blocks(trial: Trial, pod: Pod, luck: random.Random) -> float:
    """Blocks that no request holds: from none to 35 to 70 % within 2 to 30 minutes; sick from 27 % on."""
    shape = pod.orphans
    shape.ramp_from, shape.ramp_seconds = _moment(trial, luck), luck.uniform(120, 1_800)
    shape.ramp_to = luck.uniform(35, 70)
    crossed = shape.crosses(27.0)
    if crossed is None:
        raise NeverHappened
    return crossed


def collapsed(trial: Trial, pod: Pod, luck: random.Random) -> float:
    """The scheduler lets one request in at a time, a third of those that come or fewer, and a router sends on.

    Where the router looks at load, hardly anybody waits, and it is no fault that users feel: not simulated. Where
    prefills last ten seconds and more they excuse a queue (slow §4), as does a request that holds half of the KV cache, so
    prompts are short here. Bars count from the moment at which all that ran before are done and a queue stands.
    """
    longest = min(COLLAPSED_LONGEST_PROMPT, int(COLLAPSED_MOST_KV * pod.temper.limits.kv_tokens))
    world, ranks = trial.world, sum(len(p.engines) for p in trial.world.pods)
    world.least_request = False
    world.traffic.no_longer_than(longest)
    each = world.traffic.at_least(COLLAPSED_LEAST_RATE * ranks) / ranks
    trial.peek(luck.random())
    for engine in pod.engines:
        engine.admit_every = min(luck.uniform(3.0, 6.0) / each, COLLAPSED_MOST_SECONDS)
    _until(trial, lambda: all(_starves(engine, longest) for engine in pod.engines))
    return world.t


def _starves(engine: RankEngine, longest: int) -> bool:
    """No prompt longer than `longest` is left in the queue, few requests run and some wait."""
    short = all(request.prompt <= longest for request in engine.queue)
    return short and engine.shown.running <= 1 and engine.shown.waiting >= 3


def growing(trial: Trial, pod: Pod, luck: random.Random) -> float:
    """Memory leaks from now on, and would reach its limit in 3 to 8 hours.

    Sick by definition once it is above 70 % of the limit, would reach it within two hours, and is 3.5 hours old
    (hang §2). Nobody asks it anything, which spares half of the time and does not matter to it.
    """
    trial.world.traffic.silence()
    t, memory = trial.world.t, Memory(pod.memory.born, luck.uniform(0.3, 0.75))
    seconds = luck.uniform(3, 8) * 3_600
    memory.saw, memory.saw_seconds = luck.uniform(0.0, 0.02), luck.uniform(600, 1_200)
    memory.leak_from, memory.leak = t, (1.0 - memory.base) / seconds
    pod.memory = memory
    near = t + (0.72 - memory.base) / memory.leak
    old = pod.ready_at + GROWTH_LEAST_AGE
    return max(near, t + seconds - GROWTH_HORIZON, old)


def corrupted(trial: Trial, pod: Pod, luck: random.Random) -> float:
    """Nearly all of its answers are wrong, in numbers and words that look like answers.

    Nobody is asked a question while others wait, so the pool has no more work than it can do.
    """
    trial.world.traffic.keeps_within(CORRUPTED_MOST_LOAD)
    pod.garbage = luck.uniform(0.8, 1.0)
    return trial.world.t


def erroring(trial: Trial, pod: Pod, luck: random.Random) -> float:
    """Half of what it serves, or more, ends in an error."""
    pod.fail_requests(luck.uniform(0.5, 1.0))
    return trial.world.t


def pod_ends(trial: Trial, pod: Pod, luck: random.Random) -> float:
    """The pod as a whole fails."""
    pod.fail(trial.world.t)
    return trial.world.t


def restarts_repeat(trial: Trial, pod: Pod, luck: random.Random) -> float:
    """The engine ends three times within half an hour; sick from the third on."""
    for number in range(3):
        pod.crash(trial.world.t, luck.uniform(30, 120))
        if number < 2:
            _until(trial, lambda: pod.ready(trial.world.t))
            trial.run(luck.uniform(10, 300))
    return trial.world.t


def not_ready_again(trial: Trial, pod: Pod, luck: random.Random) -> float:
    """The engine ends and never comes back; sick when its start budget is over."""
    pod.crash(trial.world.t, None)
    return trial.world.t + START_BUDGET_SECONDS


def device_unhealthy(trial: Trial, pod: Pod, luck: random.Random) -> float:
    """The device plugin calls its GPU unhealthy, and stays with it."""
    pod.lose_device()
    return trial.world.t


COLLAPSED_LEAST_RATE: Final = 0.15
"""Requests a second of each rank: of fewer no queue comes about in time."""
COLLAPSED_LONGEST_PROMPT: Final = 16_000
COLLAPSED_MOST_KV: Final = 0.4
"""Share of the KV cache that one prompt holds: above half a page explains its queue (slow §4)."""
CORRUPTED_MOST_LOAD: Final = 0.6
COLLAPSED_MOST_SECONDS: Final = 35.0
"""Between two admissions; with none for longer it would be an engine without a step (`stalled`)."""
GROWTH_LEAST_AGE: Final = 12_600.0
GROWTH_HORIZON: Final = 7_200.0
START_BUDGET_SECONDS: Final = 300
"""Written into the deployments of the fault runs, so that a start over budget takes minutes and not hours."""

KINDS: Final[Mapping[str, Kind]] = {
    "hangUnderLoad": Kind(Detector.STALLED, hang_under_load, 90, 320, "design §11"),
    "hangIdle": Kind(Detector.STALLED, hang_idle, 150, 370, "design §11"),
    "hangOfOneRank": Kind(Detector.STALLED, hang_of_one_rank, 90, 320, "design §11", ranks=2),
    "slow": Kind(Detector.SLOW, slow, 720, 720, "forSeconds 600 + two windows of 60 s"),
    "fragmentation": Kind(
        Detector.FRAGMENTED, fragmentation, 720, 720, "forSeconds 600 + 120 s, from 27 % on"
    ),
    "orphanedBlocks": Kind(
        Detector.FRAGMENTED,
        orphaned_blocks,
        720,
        720,
        "forSeconds 600 + 120 s, from 27 % on",
        beside="fragmentation",
    ),
    "collapsed": Kind(
        Detector.COLLAPSED,
        collapsed,
        480,
        480,
        "window 180 s + three canaries of 60 s + 120 s until the queue stands for good",
        also=frozenset({Detector.STALLED}),
    ),
    "growing": Kind(
        Detector.GROWING,
        growing,
        2_400,
        2_400,
        "two looks of 600 s + one more + one bucket's lag",
        interval=30,
    ),
    "corrupted": Kind(
        Detector.CORRUPTED,
        corrupted,
        1_800,
        1_800,
        "hang §4: 2 to 22 min at the 95th percentile; a question each 300 s, two bursts 60 s apart",
    ),
    "erroring": Kind(
        Detector.ERRORING, erroring, 480, 480, "window 120 s + round 60 s + 300 s for 20 requests to come"
    ),
    "podEnded": Kind(Detector.DEAD, pod_ends, 10, 10, "two passes"),
    "restartsRepeat": Kind(Detector.DEAD, restarts_repeat, 10, 10, "two passes after the third end"),
    "deviceUnhealthy": Kind(Detector.DEVICE, device_unhealthy, 75, 75, "forSeconds 60 + three passes"),
    "notReadyAgain": Kind(Detector.DEAD, not_ready_again, 15, 15, "start budget + three passes"),
}
