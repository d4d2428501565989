"""What may count for a stall and what may not: ranks that leave the page, slots that nobody wrote down, long prompts."""

import re

import pytest

from kintsugi.core.detect.stalled import SLOWEST_PREFILL
from kintsugi.core.finding import Verdict
from kintsugi.core.snapshot import LONGEST_PROMPT
from tests.unit.core.staging import Engine, Rank, Stage


def test_a_hung_rank_that_leaves_the_page_is_neither_removed_nor_called_well_for_being_absent() -> None:
    stage, well, hung = Stage(), Rank(running=3), Rank(running=3)
    engine = Engine([well, hung])
    for _ in range(30):
        well.steps += 50
        verdict = stage.look({"pod-a": engine.page()}).verdicts["pod-a"]
    assert (verdict.verdict, verdict.reason) == (Verdict.SICK, "Stalled")

    engine.ranks.remove(hung)
    seen = []
    for _ in range(80):
        well.steps += 50
        seen.append(stage.look({"pod-a": engine.page()}).verdicts["pod-a"])

    assert not any(finding.removable for verdict in seen for finding in verdict.findings)
    assert seen[0].reason == "StallUnknown"
    assert {verdict.verdict for verdict in seen[10:]} == {Verdict.UNKNOWN}
    engine.ranks.append(hung)
    for _ in range(3):
        well.steps, hung.steps = well.steps + 50, hung.steps + 50
        verdict = stage.look({"pod-a": engine.page()}).verdicts["pod-a"]
    assert verdict.verdict is Verdict.HEALTHY


def test_ranks_that_get_other_names_in_a_short_pause_leave_no_suspicion_behind() -> None:
    stage, ranks = Stage(), [Rank(running=3), Rank(running=3)]
    engine = Engine(ranks)
    for k in range(10):
        for rank in ranks:
            rank.steps += 50 if k < 5 else 0
        stage.look({"pod-a": engine.page()})
    engine.ranks[:] = [Rank(running=0), Rank(running=0), Rank(running=3), Rank(running=3)]

    def renamed() -> str:
        return (
            "\n".join(line for line in engine.page().splitlines() if not re.search('engine="[01]"', line))
            + "\n"
        )

    for _ in range(15):
        for rank in engine.ranks:
            rank.steps += 50
        verdict = stage.look({"pod-a": renamed()}).verdicts["pod-a"]

    assert verdict.verdict is Verdict.HEALTHY


def test_slots_that_no_command_names_are_those_that_were_seen_in_use() -> None:
    for used, reason in ((12, "NotAdmitting"), (4, "Saturated")):
        stage, rank = Stage(), Rank(running=used, kv=0.05)
        engine = Engine([rank])
        last = None
        for k in range(90):
            rank.steps += 50
            rank.running, rank.waiting = (used, 0) if k < 10 else (4, 6)
            rank.first_tokens += k < 10
            last = stage.look({"pod-a": engine.page()}, pod_a={"max_num_seqs": None}).verdicts["pod-a"]
        assert last is not None
        assert last.reason == reason


@pytest.mark.parametrize(("prompt", "sick"), [(131_072, True), (LONGEST_PROMPT, False)])
def test_nobody_is_admitted_beside_the_longest_prompt_for_twice_as_long_as_it_may_take(
    prompt: int, sick: bool
) -> None:
    stage, rank = Stage(), Rank(running=2, waiting=4, kv=0.05)
    engine = Engine([rank])
    found = False
    for _ in range(100):
        rank.steps += 10
        verdict = stage.look({"pod-a": engine.page()}, pod_a={"longest_prompt": prompt}).verdicts["pod-a"]
        found = found or verdict.verdict is Verdict.SICK
    assert found is sick
    assert 100 * stage.step < 2 * LONGEST_PROMPT / SLOWEST_PREFILL
