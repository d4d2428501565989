"""What happens to healthy engines, and is no reason to remove one: pauses, neighbours, lost pages, restarts, rollouts.

Some stay just short of a trigger's threshold, so that a threshold set wrong shows: pauses of 120 to 290 s, slowness by
a quarter for an hour, one request of eight failing in a busy engine, a silent API server for four minutes.
The pause model is that of the hang paper §1.2, which no operator of real fleets has published either: compiling new
shapes (median 8 s, 0.05/h, ten times as often in the first hour), reloads and the host (0.05/h, around 12 s), and a
Pareto tail (from 10 s, exponent 1.3, 0.01/h). A pause of 300 s or more is a fault by definition, so the tail is cut.
"""

import math
import random

from kintsugi.core.snapshot import Failure
from kintsugi.testing.simulation.pod import Pod
from kintsugi.testing.simulation.rank import Request

LONGEST_PAUSE = 290.0
BETWEEN_PAUSES = 60.0
"""Two pauses with no step between them would be one."""
COMPILES_PER_HOUR = 0.05
YOUNG_SECONDS = 3_600.0
YOUNG_FACTOR = 10.0
RELOADS_PER_HOUR = 0.05
TAILS_PER_HOUR = 0.01
LONG_PAUSES_PER_HOUR = 0.004
"""Of 120 s and more: many more than in the paper's model, since these are what a removal time is for."""
HICCUPS_PER_HOUR = 6.0
NEIGHBOURS_PER_HOUR = 0.04
LONGEST_NEIGHBOUR = 360.0
"""Longer slowness than the trigger's own time can't be told from a fault by anyone (slow §8)."""
MILD_PER_HOUR = 0.01
"""Slower by 1.3 to 1.4 for 20 to 90 minutes: a quarter of the rate is lost, and the trigger's line is 40 %."""
FLAKY_PER_HOUR = 0.004
FLAKY_SHARE = 0.12
FLAKY_LEAST_RUNNING = 6
"""Only in busy engines: in others so few requests tell a share of 12 from one of 20 % badly."""
RESTARTS_PER_HOUR = 0.01
GAPS_PER_HOUR = 0.05
GAPS = (Failure.CONNECT_TIMEOUT, Failure.CONNECT_TIMEOUT, Failure.HTTP_ERROR, Failure.PENDING, Failure.SILENT)
LONGEST_SILENCE = 240.0
GIANTS_PER_HOUR = 0.02
"""The longest legal prompt, to an engine that may be idle."""
FIRST_GIANT = 0.2
"""Share of processes whose very first request is one."""
POISON_PER_HOUR = 0.02
"""One client's bad request, sent again 2 to 12 times (hang §4)."""
OTHERS = (
    (MILD_PER_HOUR, "mild"),
    (FLAKY_PER_HOUR, "flaky"),
    (HICCUPS_PER_HOUR, "hiccup"),
    (NEIGHBOURS_PER_HOUR, "neighbour"),
    (RESTARTS_PER_HOUR, "restart"),
    (GAPS_PER_HOUR, "gap"),
    (POISON_PER_HOUR, "poison"),
    (GIANTS_PER_HOUR, "giant"),
)
"""What happens beside pauses, however often the pool pauses."""
OTHERS_PER_HOUR = sum(rate for rate, _ in OTHERS)


def happen(pod: Pod, t: float, seconds: float, luck: random.Random) -> None:
    """Whatever begins in this pod within the next `seconds`."""
    hours = seconds / 3_600
    if not pod.ready(t):
        return
    age = t - pod.ready_at
    if age < seconds and luck.random() < FIRST_GIANT:
        _begin("giant", pod, t, luck)
    compiles = COMPILES_PER_HOUR * (YOUNG_FACTOR if age < YOUNG_SECONDS else 1.0)
    pauses = pod.temper.pauses * (compiles + RELOADS_PER_HOUR + TAILS_PER_HOUR)
    chance = luck.random() / hours
    if chance < pauses + LONG_PAUSES_PER_HOUR + OTHERS_PER_HOUR:
        _pick(chance, compiles, pod, t, luck)


def _pick(chance: float, compiles: float, pod: Pod, t: float, luck: random.Random) -> None:
    """One of all, by their rates; none where `chance`, in events an hour, is beyond them."""
    factor = pod.temper.pauses
    for rate, name in (
        (compiles * factor, "compile"),
        (RELOADS_PER_HOUR * factor, "reload"),
        (TAILS_PER_HOUR * factor, "tail"),
        (LONG_PAUSES_PER_HOUR, "long"),
        *OTHERS,
    ):
        chance -= rate
        if chance < 0:
            _begin(name, pod, t, luck)
            return


def _begin(name: str, pod: Pod, t: float, luck: random.Random) -> None:
    if name in ("compile", "reload", "tail", "long", "hiccup"):
        whole = pod.temper.longest_prefill and any(engine.computes for engine in pod.engines)
        if t >= pod.paused_until + BETWEEN_PAUSES and not whole:  # a pause within a long step is one with it
            pod.paused_until = t + min(LONGEST_PAUSE, _pause(name, pod, luck))
    elif name == "neighbour":
        pod.neighbour_until = t + luck.uniform(30, LONGEST_NEIGHBOUR)
        pod.neighbour = luck.uniform(1.2, 2.5)
    elif name == "mild":
        pod.neighbour_until = t + luck.uniform(1_200, 5_400)
        pod.neighbour = luck.uniform(1.3, 1.4)
    elif name == "flaky":
        if all(engine.shown.running >= FLAKY_LEAST_RUNNING for engine in pod.engines):
            pod.flaky_until = t + 1_800
            pod.fail_requests(FLAKY_SHARE)
    elif name == "giant":
        tokens = pod.temper.longest
        luck.choice(pod.engines).take(Request(tokens, tokens, luck.randint(1, 200), t))
    elif name == "restart":
        pod.crash(t, luck.uniform(60, 600))
    elif name == "gap":
        pod.gap = luck.choice(GAPS)
        pod.gap_unready = pod.gap is Failure.SILENT and luck.random() < 0.5
        longest = LONGEST_SILENCE if pod.gap is Failure.SILENT else 1_800.0
        pod.gap_until = t + min(longest, luck.lognormvariate(math.log(60), 1.2))
    else:
        engine = luck.choice(pod.engines)
        engine.shown.failed += luck.randint(2, 12)


def _pause(name: str, pod: Pod, luck: random.Random) -> float:
    if name == "compile":
        return luck.lognormvariate(math.log(8), 0.7)
    if name == "reload":
        return luck.lognormvariate(math.log(pod.temper.reload_median), 0.6)
    if name == "tail":
        return 10.0 * luck.paretovariate(1.3)
    if name == "long":
        return luck.uniform(120, LONGEST_PAUSE)
    return luck.uniform(0.2, 2.0)
