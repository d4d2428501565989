"""What the step registers say: findings with their evidence, for one instance and for a pool."""

import math

from kintsugi.core.detect.slow import SlowMemory, SlowState, disagrees, lengths_of, level_slots, slots_of
from kintsugi.core.finding import Detector, Evidence, Finding, Severity
from kintsugi.core.times import Times


def slow_findings(state: SlowState, pool_size: int, now: float, times: Times) -> list[Finding]:
    """What is to be said of one instance's steps. `pool_size` counts the pool's instances that have been Ready."""
    found: list[Finding] = []
    if not state.sick and not _speaks(state):
        return found
    lengths = lengths_of(times)
    whole = lengths.whole
    since = now - times.throughput_suspect
    if state.sick and not state.against.known(slots_of(times.readable_gap, times)):
        text = "steps were slow, and nothing is known of them now"
        found.append(_finding(state, "SlowUnknown", Severity.SUSPECT, text, state.sick_since or since, times))
    elif state.sick:
        text = f"steps take longer than their content explains{_lost(state)}, and siblings did not change"
        found.append(_finding(state, "Slow", Severity.SICK, text, state.sick_since or since, times))
    elif state.against.newest() and state.against.sustained(whole) and disagrees(state, whole):
        text = "time between tokens rose, wall time per step did not: the two clocks disagree"
        found.append(_finding(state, "ClocksDisagree", Severity.SUSPECT, text, since, times))
    elif state.suspect.newest() and state.suspect.sustained(lengths.suspect):
        text = f"steps take longer than their content explains{_lost(state)}"
        found.append(_finding(state, "Slow", Severity.SUSPECT, text, since, times))
    elif pool_size == 1 and state.alone.newest() and state.alone.sustained(whole):
        text = "steps take longer than in this instance's own past; without a sibling it can't be told from traffic"
        since = now - times.throughput_window
        found.append(_finding(state, "SlowAgainstItself", Severity.SUSPECT, text, since, times))
    if state.early.newest() and state.early.sustained(lengths.suspect):
        text = "slower than its siblings since its warm-up, so a remedy that it came from has not cured"
        found.append(_finding(state, "SlowFromTheStart", Severity.SUSPECT, text, since, times))
    if state.level.newest() and state.level.sustained(level_slots(times)):
        text = (
            "has been slower than its siblings ever since its start: a restart in place is not known to help"
        )
        since = now - times.slow_since_start
        found.append(_finding(state, "SlowSinceStart", Severity.ADVICE, text, since, times))
    return found


def _speaks(state: SlowState) -> bool:
    """Whether the newest slot of a register is set: of what it says no more, nothing is told."""
    bits = state.against.set_bits | state.suspect.set_bits | state.alone.set_bits
    return bool((bits | state.early.set_bits | state.level.set_bits) & 1)


def pool_slow(memory: SlowMemory, times: Times) -> dict[str, tuple[str, ...]]:
    """By pool: the finding that all of it is slow, which no restart cures."""
    found: dict[str, tuple[str, ...]] = {}
    for name, pool in memory.pools.items():
        if pool.median_own is not None and pool.slow.sustained(lengths_of(times).suspect):
            percent = 100 * (1 - math.exp(-max(0.0, pool.median_own)))
            text = f"PoolSlow: the pool as a whole lost {percent:.0f} % of its step rate (driver, power, network, traffic)"
            found[name] = (text,)
    return found


def _lost(state: SlowState) -> str:
    d = state.lost()
    return "" if d is None else f", {100 * (1 - math.exp(-max(0.0, d))):.0f} % of the step rate is lost"


def _finding(
    state: SlowState, reason: str, severity: Severity, text: str, since: float, times: Times
) -> Finding:
    removable = severity is Severity.SICK
    return Finding(Detector.SLOW, reason, severity, text, since, _evidence(state, times), removable=removable)


def _evidence(state: SlowState, times: Times) -> tuple[Evidence, ...]:
    """y, ŷ, n, p, k, own, dif, lost share, Known share and the number of siblings (slow paper §1)."""
    whole = slots_of(times.throughput_window, times)
    known = state.against.known(whole)
    measure, d = state.measure, state.lost()
    values: list[tuple[str, float | None, str]] = [
        ("step duration", None if measure is None else 1000 * measure.seconds, "ms"),
        ("expected step duration", _expected(state), "ms"),
        ("decodes per step", None if measure is None else measure.decodes, "count"),
        ("prefill tokens per step", None if measure is None else measure.prefill, "count"),
        ("KV usage", None if measure is None else 100 * measure.kv_usage, "%"),
        ("own change", state.own, "ln"),
        ("change against siblings", state.dif, "ln"),
        ("step rate lost", None if d is None else 100 * (1 - math.exp(-max(0.0, d))), "%"),
        ("known share of the window", 100 * known / whole, "%"),
        ("siblings compared", float(state.siblings), "count"),
    ]
    return tuple(Evidence(name, value, unit, known) for name, value, unit in values if value is not None)


def _expected(state: SlowState) -> float | None:
    if state.expected is None:
        return None
    return 1000 * state.expected * math.exp(state.baseline or 0.0)
