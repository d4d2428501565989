"""One giant prefill that keeps the others waiting: told, with figures, and never acted on."""

from collections.abc import Callable

import pytest

from kintsugi.core.finding import Finding, InstanceVerdict, Severity, Verdict
from tests.unit.core.staging import Engine, Rank, Stage, only


def warm(ranks: int = 1) -> tuple[Stage, Engine]:
    """A stage past every warm-up, with requests that get tokens."""
    stage, engine = Stage(), Engine([Rank(running=9, kv=0.05) for _ in range(ranks)])
    for _ in range(150):
        for rank in engine.ranks:
            serve(rank)
        stage.look({"pod-a": engine.page()})
    return stage, engine


def serve(rank: Rank) -> None:
    rank.steps += 50
    rank.generation += 300
    rank.itl_count += 300
    rank.itl_sum += 10
    rank.first_tokens += 2


def told(verdict: InstanceVerdict) -> list[Finding]:
    return [each for each in verdict.findings if each.reason == "LongPrefillBlocks"]


def test_s18_is_told_while_it_lasts_and_is_no_sickness() -> None:
    stage, engine = warm()
    rank = engine.ranks[0]
    lengths = []
    for _ in range(13):  # 65 s: steps go on by two a second, no token comes, the prompt fills the cache
        rank.steps += 10
        rank.kv += 0.02
        verdict = only(stage.look({"pod-a": engine.page()}))
        lengths.append(len(told(verdict)))
    assert lengths == [0] * 5 + [1] * 8, "from 30 s on"
    (found,) = told(verdict)
    assert (found.severity, found.removable) == (Severity.ADVICE, False)
    assert "8 other requests from their next token for 65 s" in found.message
    assert [round(each.value) for each in found.evidence] == [65, 9, 26]
    assert verdict.sick() is None
    assert verdict.verdict is Verdict.HEALTHY
    serve(rank)
    assert not told(only(stage.look({"pod-a": engine.page()})))


def test_chunks_that_only_fill_the_cache_are_proof_of_work_too() -> None:
    stage, engine = warm()
    for _ in range(8):
        engine.ranks[0].kv += 0.01
        verdict = only(stage.look({"pod-a": engine.page()}))
    assert told(verdict)


def test_one_rank_of_several_is_named_though_the_others_serve() -> None:
    stage, engine = warm(ranks=2)
    for _ in range(8):
        serve(engine.ranks[0])
        engine.ranks[1].steps += 10
        verdict = only(stage.look({"pod-a": engine.page()}))
    (found,) = told(verdict)
    assert "of rank 1" in found.message


def _serves(rank: Rank) -> None:
    serve(rank)


def _hangs(rank: Rank) -> None:
    """Neither steps nor KV usage move: that is for another detector."""


def _alone(rank: Rank) -> None:
    rank.running = 1
    rank.steps += 10


def _one_token(rank: Rank) -> None:
    rank.steps += 10
    rank.generation += 1


@pytest.mark.parametrize("each", [_serves, _hangs, _alone, _one_token])
def test_nothing_is_told_where_nobody_waits_for_a_prefill(each: Callable[[Rank], None]) -> None:
    stage, engine = warm()
    for _ in range(20):
        each(engine.ranks[0])
        verdict = only(stage.look({"pod-a": engine.page()}))
        assert not told(verdict)


def test_a_gap_in_our_own_sight_proves_nothing() -> None:
    stage, engine = warm()
    stage.mono += 60.0
    engine.ranks[0].steps += 100
    for _ in range(4):
        verdict = only(stage.look({"pod-a": engine.page()}))
        engine.ranks[0].steps += 10
    assert not told(verdict)
