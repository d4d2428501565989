"""The canary and the questions with one certain answer, sent by the operator's own adapter to a real vLLM."""

import asyncio
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from kintsugi.adapters.engines import HttpEngines
from kintsugi.core.known_answers import QUESTIONS, TOKENS, WITH_MARGIN
from kintsugi.core.snapshot import Canary, CanaryOutcome, CanaryResult, ProcessKey, Question
from kintsugi.ports.engines import Address
from kintsugi_engine.contract import CANARY_REQUEST_ID_PREFIX
from tests.engine.engine import MAX_MODEL_LEN, Engine, arguments, serving

pytestmark = pytest.mark.timeout(900)

SECONDS = 60.0
FITS = [question.name for question in QUESTIONS if TOKENS[question.name] < MAX_MODEL_LEN]


@pytest.fixture(scope="module")
def engine(
    engine_python: Path, tiny_llama: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Engine]:
    """A stock engine: nothing of ours is in it."""
    words = arguments(tiny_llama, telemetry=None)
    with serving(engine_python, None, tmp_path_factory.mktemp("asked"), words) as running:
        yield running


def ask(engine: Engine, questions: Sequence[Question | None]) -> list[CanaryResult]:
    """What became of them, in their order."""
    address = Address("127.0.0.1", engine.port, model="tiny")

    async def all_of_them() -> list[CanaryResult]:
        port = HttpEngines(time.monotonic)
        sent = [
            Canary(
                f"{CANARY_REQUEST_ID_PREFIX}0-test-{n}-{time.monotonic_ns()}",
                ProcessKey("uid", 0),
                "0",
                0.0,
                each,
            )
            for n, each in enumerate(questions)
        ]
        found: dict[str, CanaryResult] = {}
        try:
            for canary in sent:
                port.send_canary(address, canary, SECONDS)
            while len(found) < len(sent):
                await asyncio.sleep(0.05)
                found |= {result.canary.id: result for result in port.canary_results()}
        finally:
            await port.close()
        return [found[canary.id] for canary in sent]

    return asyncio.run(all_of_them())


def test_a_canary_is_answered_by_an_engine_without_priorities_and_counts_one_token(engine: Engine) -> None:
    before = engine.page()
    (result,) = ask(engine, [None])
    assert (result.outcome, result.status) == (CanaryOutcome.ANSWERED, 200)
    after = engine.page()
    generated = 'vllm:generation_tokens_total{engine="0",model_name="tiny"}'
    assert after[generated] - before[generated] == 1


def test_each_question_that_fits_is_answered_by_a_token_id_with_its_margin_and_a_longer_one_is_refused(
    engine: Engine,
) -> None:
    results = {r.canary.question.name: r for r in ask(engine, WITH_MARGIN) if r.canary.question is not None}
    assert {name for name, r in results.items() if r.outcome is CanaryOutcome.ANSWERED} == set(FITS)
    assert {r.status for name, r in results.items() if name not in FITS} == {400}
    for name in FITS:
        answer = results[name].answer
        assert answer is not None, name
        assert answer.token.startswith("id "), (name, answer)
        assert answer.margin is not None, name
        assert answer.margin >= 0, (name, answer)


def test_a_healthy_engine_says_the_same_each_time_wherever_it_was_sure(engine: Engine) -> None:
    sure = {
        r.canary.question.name: r.answer.token
        for r in ask(engine, WITH_MARGIN)
        if r.canary.question is not None and r.answer is not None and (r.answer.margin or 0.0) > 0.1
    }
    assert sure
    again = {
        r.canary.question.name: r.answer.token
        for r in ask(engine, QUESTIONS)
        if r.canary.question is not None and r.answer is not None
    }
    assert {name: again[name] for name in sure} == sure
