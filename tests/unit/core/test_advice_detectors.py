"""Low cache hit, preempting and diverging ranks: what no restart cures is told with its arithmetic, and never acted on."""

from collections.abc import Callable

import pytest

from kintsugi.core.finding import Detector, Finding, InstanceVerdict, Severity, Verdict
from tests.unit.core.staging import Engine, Rank, Stage, deployment, only

HOUR = 720
"""Passes of 5 s."""


def run(
    passes: int,
    each: Callable[[int, Engine], None],
    ranks: int = 1,
    stage: Stage | None = None,
) -> list[InstanceVerdict]:
    """The verdict of every pass on an instance that `each` moves on."""
    stage, engine = stage or Stage(deployment()), Engine([Rank(running=2, kv=0.3) for _ in range(ranks)])
    found = []
    for number in range(passes):
        for rank in engine.ranks:
            rank.steps += 100
            rank.generation += 200
            rank.first_tokens += 1
        each(number, engine)
        found.append(only(stage.look({"pod-a": engine.page()})))
    return found


def of(verdict: InstanceVerdict, detector: Detector) -> list[Finding]:
    return [finding for finding in verdict.findings if finding.detector is detector]


def looked_up(tokens: float, share: float) -> Callable[[int, Engine], None]:
    """So many tokens a pass are looked up, and a share of them found."""

    def each(_: int, engine: Engine) -> None:
        engine.ranks[0].queries += tokens
        engine.ranks[0].hits += tokens * share

    return each


def test_a_low_hit_rate_is_told_after_a_whole_window() -> None:
    verdicts = run(130, looked_up(1000, 0.6))
    assert not any(of(verdict, Detector.CACHE_HIT) for verdict in verdicts[:119])
    (found,) = of(verdicts[-1], Detector.CACHE_HIT)
    assert (found.reason, found.severity, found.removable) == ("LowCacheHit", Severity.ADVICE, False)
    assert "60 % of" in found.message
    assert "less than 85 %" in found.message
    assert "a new instance would start with an empty one" in found.message
    assert [round(each.value) for each in found.evidence] == [60, 85]
    assert all(each.samples >= 10_000 for each in found.evidence)
    assert verdicts[-1].verdict is Verdict.HEALTHY


@pytest.mark.parametrize(
    ("why", "each", "healing"),
    [
        ("hits are enough", looked_up(1000, 0.9), {}),
        ("too few tokens", looked_up(50, 0.1), {}),
        ("nothing is looked up", looked_up(0, 0.0), {}),
        ("the user asks for less", looked_up(1000, 0.6), {"triggers": {"cacheHitRate": {"minPercent": 50}}}),
    ],
)
def test_no_hit_rate_is_complained_of_where(
    why: str, each: Callable[[int, Engine], None], healing: dict[str, object]
) -> None:
    verdicts = run(200, each, stage=Stage(deployment(healing)))
    assert not any(of(verdict, Detector.CACHE_HIT) for verdict in verdicts), why


def test_an_old_low_share_does_not_weigh_on_a_window_that_is_good() -> None:
    low, high = looked_up(1000, 0.2), looked_up(1000, 0.97)
    verdicts = run(400, lambda number, engine: (low if number < 200 else high)(number, engine))
    assert of(verdicts[190], Detector.CACHE_HIT)
    assert not of(verdicts[-1], Detector.CACHE_HIT)


def test_s12_after_a_restart_the_rate_is_unknown_and_no_fault_until_enough_was_looked_up() -> None:
    """9.1 million queries at 96 %, then 57 with no hit, then 2.2 million at 86 %."""
    state = {"start": 0.0}

    def each(number: int, engine: Engine) -> None:
        rank = engine.ranks[0]
        if number < 12:
            rank.queries, rank.hits, rank.preemptions = 9.1e6, 8.74e6, 412
        elif number == 12:
            engine.start += 100_000
            rank.queries, rank.hits, rank.preemptions, rank.steps = 57, 0, 0, 10
            rank.generation = rank.prompt = rank.first_tokens = rank.itl_count = rank.itl_sum = 0
            state["start"] = number
        else:
            rank.queries += 2.2e6 / 228
            rank.hits += 1.9e6 / 228

    verdicts = run(400, each)
    assert "cache_hit_percent" not in verdicts[12].signals
    assert all(each.verdict is not Verdict.SICK for each in verdicts)
    assert not any(of(verdict, Detector.CACHE_HIT) for verdict in verdicts), "86 % is above 85 %"
    assert all(verdict.signals.get("preemptions_per_second", 0.0) >= 0.0 for verdict in verdicts)
    assert verdicts[-1].signals["cache_hit_percent"] == pytest.approx(86, abs=1)


def preempted(per_second: float, queue: float = 0.0, running: float = 2.0) -> Callable[[int, Engine], None]:
    def each(_: int, engine: Engine) -> None:
        rank = engine.ranks[0]
        rank.preemptions += 5 * per_second
        rank.waiting, rank.running = queue, running

    return each


def test_preemptions_above_the_limit_are_told_after_their_window_with_the_cure() -> None:
    verdicts = run(30, preempted(12))
    assert not any(of(verdict, Detector.PREEMPTING) for verdict in verdicts[:12])
    (found,) = of(verdicts[-1], Detector.PREEMPTING)
    assert (found.reason, found.severity, found.removable) == ("Preempting", Severity.ADVICE, False)
    assert "12.0 preemptions a second in 60 s, more than 10" in found.message
    assert "lower maxNumSeqs" in found.message
    assert found.evidence[0].value == pytest.approx(12)
    assert verdicts[-1].verdict is Verdict.HEALTHY


def test_with_a_queue_at_the_limit_the_pool_is_overloaded_and_nobody_is_sick() -> None:
    verdicts = run(HOUR, preempted(12, queue=30, running=16))
    (found,) = of(verdicts[-1], Detector.PREEMPTING)
    assert found.reason == "Overloaded"
    assert "30 requests wait" in found.message
    assert verdicts[-1].verdict is Verdict.SATURATED
    assert all(verdict.sick() is None for verdict in verdicts)


def test_a_burst_of_preemptions_shorter_than_its_window_is_averaged() -> None:
    burst, calm = preempted(60), preempted(0)
    verdicts = run(60, lambda number, engine: (burst if number in (30, 31) else calm)(number, engine))
    assert not any(of(verdict, Detector.PREEMPTING) for verdict in verdicts[:31])
    assert not of(verdicts[-1], Detector.PREEMPTING)


def test_at_the_limit_nothing_is_told() -> None:
    assert not any(of(verdict, Detector.PREEMPTING) for verdict in run(60, preempted(10)))


def ranks(**first: float) -> Callable[[int, Engine], None]:
    """Four ranks with 40 requests each; the first one is changed. `steps` a pass."""

    def each(_: int, engine: Engine) -> None:
        for rank in engine.ranks:
            rank.running = 16
            rank.waiting = 24
        one = engine.ranks[0]
        one.steps += first.get("steps", 100) - 100
        one.running = first.get("running", 16)
        one.waiting = first.get("waiting", 24)
        one.kv = first.get("kv", 0.3)

    return each


@pytest.mark.parametrize(
    ("changed", "reason", "severity"),
    [
        ({"steps": 20.0}, "RankLags", Severity.SUSPECT),
        ({"running": 1.0, "waiting": 0.0}, "RankDiverges", Severity.ADVICE),
        ({"kv": 0.9}, "RankDiverges", Severity.ADVICE),
    ],
)
def test_a_rank_that_leaves_its_sisters_for_the_window_is_named(
    changed: dict[str, float], reason: str, severity: Severity
) -> None:
    verdicts = run(125, ranks(**changed), ranks=4)
    assert not any(of(verdict, Detector.DIVERGING) for verdict in verdicts[:71]), (
        "60 % of the window is needed"
    )
    (found,) = of(verdicts[-1], Detector.DIVERGING)
    assert (found.reason, found.severity, found.removable) == (reason, severity, False)
    assert found.message.startswith("rank 0 has")
    assert all(each.samples for each in found.evidence)
    assert verdicts[-1].sick() is None


@pytest.mark.parametrize(
    ("why", "each"),
    [
        ("all are alike", ranks()),
        ("it has more work, so its steps are longer", ranks(steps=20.0, waiting=200.0)),
        ("it has no work", ranks(steps=0.0, running=0.0, waiting=0.0)),
        ("steps of a full batch are twice as long", ranks(steps=50.0)),
        ("requests differ by a few", ranks(waiting=20.0)),
    ],
)
def test_no_rank_lags_where(why: str, each: Callable[[int, Engine], None]) -> None:
    verdicts = run(200, each, ranks=4)
    assert not any(f.reason == "RankLags" for v in verdicts for f in v.findings), why


def test_imbalance_that_vanishes_within_the_window_is_nothing() -> None:
    apart, well = ranks(running=1.0, waiting=0.0), ranks()
    verdicts = run(
        300, lambda number, engine: (apart if number % 120 < 60 else well)(number, engine), ranks=4
    )
    assert not any(of(verdict, Detector.DIVERGING) for verdict in verdicts)


def test_of_two_ranks_the_one_with_less_work_is_named() -> None:
    verdicts = run(130, ranks(running=1.0, waiting=0.0), ranks=2)
    assert [found.message[:6] for found in of(verdicts[-1], Detector.DIVERGING)] == ["rank 0"]


def test_more_requests_on_every_rank_alike_is_no_divergence() -> None:
    def each(number: int, engine: Engine) -> None:
        for rank in engine.ranks:
            rank.running, rank.kv = 2.0 + number % 100, 0.01 * (number % 90)

    assert not any(of(verdict, Detector.DIVERGING) for verdict in run(250, each, ranks=4))
