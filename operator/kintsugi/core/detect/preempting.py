"""`preempting`: requests are pushed out of the KV cache and computed again. Advice only: a new instance makes it worse.

It means that more runs at once than the cache holds. With a queue at the limit beside it the pool is overloaded.
"""

from collections import deque
from dataclasses import dataclass, field

from kintsugi.core.finding import Detector, Evidence, Finding, Severity
from kintsugi.core.sample import Sample
from kintsugi.core.times import Times

CURE = "shed load, scale the pool out or lower maxNumSeqs; a new instance would not help"


@dataclass(slots=True)
class PreemptState:
    """The counter of one process over the window, all ranks together."""

    rows: deque[tuple[float, float]] = field(default_factory=deque)
    """(monotonic seconds, preemptions so far), oldest first."""
    rate: float | None = None
    """Preemptions per second over the window; None until one is over."""
    over_since: float | None = None
    """Epoch seconds of when it rose above what is allowed, for people."""

    @property
    def seconds(self) -> float:
        return self.rows[-1][0] - self.rows[0][0] if self.rows else 0.0


def see_preemptions(
    state: PreemptState, sample: Sample, most_per_second: float, times: Times, now: float
) -> None:
    """Take in one readable page. `now` in epoch seconds, for people."""
    count, rows, mono = sample.whole.preemptions, state.rows, sample.mono
    window = max(times.preemption_window, 2 * times.scrape_interval)
    if rows and (count is None or mono - rows[-1][0] > times.readable_gap):
        rows.clear()
    if count is not None:
        rows.append((mono, count))
        while len(rows) > 1 and rows[1][0] <= mono - window:
            rows.popleft()
    seconds = rows[-1][0] - rows[0][0] if rows else 0.0
    whole = len(rows) > 1 and seconds >= window - times.scrape_interval / 2
    state.rate = (rows[-1][1] - rows[0][1]) / seconds if whole else None
    if state.rate is None or state.rate <= most_per_second:
        state.over_since = None
    elif state.over_since is None:
        state.over_since = now - seconds


def preempt_finding(
    state: PreemptState, sample: Sample, saturated: bool, most_per_second: float
) -> Finding | None:
    """The advice on a rate above `most_per_second`, or None. `saturated`: a queue stands at the limit as well."""
    if state.rate is None or state.over_since is None:
        return None
    text = f"{state.rate:.1f} preemptions a second in {state.seconds:.0f} s, more than {most_per_second:g}"
    samples = len(state.rows)
    evidence = [
        Evidence("preemptions", state.rate, "1/s", samples),
        Evidence("preemptions allowed", most_per_second, "1/s", samples),
    ]
    usage, waiting = sample.kv_max(), sample.total("waiting")
    if usage is not None:
        evidence.append(Evidence("KV usage", 100 * usage, "%", 1))
    if saturated and waiting is not None:
        text += f", while {waiting:.0f} requests wait: the pool is overloaded"
        evidence.append(Evidence("requests waiting", waiting, "count", 1))
    else:
        text += ": more runs at once than the KV cache holds"
    reason = "Overloaded" if saturated else "Preempting"
    return Finding(
        Detector.PREEMPTING,
        reason,
        Severity.ADVICE,
        f"{text}: {CURE}",
        state.over_since,
        tuple(evidence),
        removable=False,
    )
