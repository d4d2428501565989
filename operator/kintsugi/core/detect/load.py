"""How much work an instance has, and how it is spread over its ranks. Advice only: a restart cures none of this."""

from dataclasses import dataclass
from typing import Final

from kintsugi.core.finding import Detector, Evidence, Finding, Severity
from kintsugi.core.sample import RankSample, Sample
from kintsugi.core.times import Times

FULL_KV: Final = 0.9
"""KV usage from which on memory is what new requests wait for."""
IMBALANCE_KV: Final = 0.5
"""Difference of two ranks' KV usage from which on one is hot and the other is not."""
IMBALANCE_LOAD: Final = 16.0
"""Difference of two ranks' requests that counts where the lesser one has less than a tenth of the other's."""


@dataclass(slots=True)
class LoadState:
    """What was seen of one process's work. Monotonic seconds."""

    busy_at: float | None = None
    """When it last had work that was not ours."""
    queue_since: float | None = None
    queue_at: float | None = None
    """First and last page of the present queue at the limit."""
    imbalance_since: float | None = None

    def idle(self, mono: float, times: Times) -> bool:
        """No work of users for as long as an idle engine waits for its canary."""
        return self.busy_at is not None and mono - self.busy_at >= times.canary_idle

    def saturated(self, times: Times) -> bool:
        """A queue at the limit on every page for longer than one gap in the evidence."""
        return (
            self.queue_since is not None
            and self.queue_at is not None
            and self.queue_at - self.queue_since >= times.readable_gap
        )


def see_load(
    state: LoadState,
    before: Sample | None,
    after: Sample,
    own_steps: int,
    own_open: int,
    max_num_seqs: int | None,
) -> None:
    """Take in one readable page. `own_steps` canaries of ours were answered since the last one, `own_open` are open."""
    mono = after.mono
    load = waiting = 0.0
    for rank in after.ranks:
        load += rank.load() or 0.0
        waiting += (rank.waiting or 0.0) - (rank.deferred or 0.0)
    if state.busy_at is None or load > own_open or _steps(before, after) > own_steps:
        state.busy_at = mono
    if waiting >= 1 and any(_at_limit(rank, max_num_seqs) for rank in after.ranks):
        state.queue_since = mono if state.queue_since is None else state.queue_since
        state.queue_at = mono
    else:
        state.queue_since = state.queue_at = None
    if len(after.ranks) > 1 and _imbalanced(after):
        state.imbalance_since = mono if state.imbalance_since is None else state.imbalance_since
    else:
        state.imbalance_since = None


def load_findings(
    state: LoadState, sample: Sample, missing: tuple[str, ...], now: float, times: Times
) -> list[Finding]:
    """Advice on saturation, and on ranks that differ or are missing."""
    found: list[Finding] = []
    mono = sample.mono
    if state.saturated(times) and state.queue_since is not None:
        waiting = sample.total("waiting") or 0.0
        text = f"{waiting:.0f} requests wait while the engine runs at its limit: add capacity or shed load"
        found.append(_advice("Saturated", text, now - (mono - state.queue_since), ("waiting", waiting)))
    if state.imbalance_since is not None and mono - state.imbalance_since >= times.readable_gap:
        loads = ", ".join(f"{r.rank}: {r.load() or 0.0:.0f}" for r in sample.ranks[:16])
        text = f"ranks are loaded unevenly (requests by rank: {loads})"
        usage = sample.kv_max() or 0.0
        since = now - (mono - state.imbalance_since)
        found.append(_advice("RankImbalance", text, since, ("highest KV usage", 100 * usage), unit="%"))
    if missing:
        text = f"ranks {', '.join(missing[:16])} were on the page before and are not now"
        found.append(_advice("RankMissing", text, now, ("ranks missing", float(len(missing)))))
    return found


def _steps(before: Sample | None, after: Sample) -> float:
    """Steps from one page to the next; 0 where they are not known."""
    then, now = None if before is None else before.whole.steps, after.whole.steps
    return 0.0 if then is None or now is None else now - then


def _at_limit(rank: RankSample, max_num_seqs: int | None) -> bool:
    if (rank.waiting or 0.0) < 1:
        return False
    full = rank.kv_usage is not None and rank.kv_usage >= FULL_KV
    return full or max_num_seqs is None or (rank.running or 0.0) >= max_num_seqs


def _imbalanced(sample: Sample) -> bool:
    loads = [rank.load() or 0.0 for rank in sample.ranks]
    usage = [rank.kv_usage for rank in sample.ranks if rank.kv_usage is not None]
    by_load = max(loads) - min(loads) >= IMBALANCE_LOAD and min(loads) < 0.1 * max(loads)
    return by_load or (len(usage) > 1 and max(usage) - min(usage) >= IMBALANCE_KV)


def _advice(reason: str, text: str, since: float, value: tuple[str, float], unit: str = "count") -> Finding:
    evidence = (Evidence(value[0], value[1], unit, 1),)
    return Finding(Detector.LOAD, reason, Severity.ADVICE, text, since, evidence, removable=False)
