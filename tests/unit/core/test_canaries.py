"""Canaries of ours: when they go out, what their endings mean, and that they are nobody's traffic."""

import pytest

from kintsugi.core.finding import Verdict
from kintsugi.core.snapshot import CanaryOutcome
from tests.unit.core.staging import Engine, Rank, Stage, only


def hung(passes: int, outcome: CanaryOutcome | None, status: int = 0) -> Stage:
    """A stage on which an engine with three running requests stood still while canaries ended so."""
    stage, engine = Stage(), Engine([Rank(running=3)])
    for _ in range(passes):
        judged = stage.look({"pod-a": engine.page()})
        if outcome is not None:
            for canary in judged.probes:
                stage.end(canary, outcome, status)
    return stage


def verdict_of(stage: Stage) -> Verdict:
    assert stage.last is not None
    return only(stage.last).verdict


@pytest.mark.parametrize(
    ("outcome", "verdict"),
    [
        (None, Verdict.SICK),
        (CanaryOutcome.ABANDONED, Verdict.SICK),
        (CanaryOutcome.ADMISSION_FULL, Verdict.SICK),
        (CanaryOutcome.SERVER_ERROR, Verdict.SICK),
        (CanaryOutcome.REFUSED_BY_ENGINE, Verdict.SUSPECT),
        (CanaryOutcome.CONNECT_TIMEOUT, Verdict.SUSPECT),
        (CanaryOutcome.CONNECTION_REFUSED, Verdict.SUSPECT),
        (CanaryOutcome.ANSWERED, Verdict.UNKNOWN),
    ],
)
def test_what_each_ending_of_a_canary_is_worth(outcome: CanaryOutcome | None, verdict: Verdict) -> None:
    assert verdict_of(hung(80, outcome)) is verdict


def test_three_go_out_per_suspicion_and_a_last_one_before_the_removal() -> None:
    stage = hung(62, None)

    since = [round(canary.sent) for canary in stage.sent]
    assert since == [15, 25, 45, 285]


def test_ids_are_unique_and_name_process_and_rank() -> None:
    stage, engine = Stage(), Engine([Rank(running=1), Rank(running=1)])
    for _ in range(100):
        stage.look({"pod-a": engine.page(), "pod-b": engine.page()})

    ids = [canary.id for canary in stage.sent]
    assert len(set(ids)) == len(ids)
    assert all(id_.startswith("kintsugi-canary-") for id_ in ids)
    assert {canary.rank for canary in stage.sent} == {"0", "1"}


def test_a_rank_name_that_could_break_a_header_gets_no_canary() -> None:
    stage, engine = Stage(), Engine([Rank(running=1)])
    for _ in range(100):
        stage.look({"pod-a": engine.page().replace('engine="0"', 'engine="0\\nX-Evil: 1"')})

    assert not stage.sent


def test_an_answered_canary_is_neither_load_nor_traffic() -> None:
    stage, engine = Stage(), Engine()
    for _ in range(120):
        judged = stage.look({"pod-a": engine.page()})
        for canary in judged.probes:
            rank = engine.ranks[0]
            rank.steps, rank.generation, rank.prompt = rank.steps + 1, rank.generation + 1, rank.prompt + 4
            stage.end(canary)

    assert verdict_of(stage) is Verdict.IDLE


def test_an_open_canary_is_not_counted_as_a_running_request() -> None:
    stage, engine = Stage(), Engine()
    for _ in range(30):
        judged = stage.look({"pod-a": engine.page()})
        engine.ranks[0].running = len(stage.sent)

    assert stage.sent
    assert only(judged).running == 0


def test_idle_canaries_of_many_instances_are_spread_over_the_minute() -> None:
    stage, engines = Stage(), {f"pod-{n}": Engine() for n in range(120)}
    most = 0
    for _ in range(24):
        judged = stage.look({uid: engine.page() for uid, engine in engines.items()})
        most = max(most, len(judged.probes))
        stage.answer_all()

    assert most <= 20


def test_a_canary_of_a_process_that_is_gone_proves_nothing() -> None:
    stage, engine = Stage(), Engine([Rank(running=3)])
    for _ in range(40):
        stage.look({"pod-a": engine.page()})
    stage.end(stage.sent[0])

    judged = stage.look({"pod-a": engine.page()}, pod_a={"started_at": 1_790_000_100.0, "restarts": 1})

    assert only(judged).verdict is not Verdict.IDLE
    assert not only(judged).cleared - {d for d in only(judged).cleared if d.value == "dead"}
