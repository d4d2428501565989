"""The questions themselves."""

from kintsugi.core.known_answers import LETTERS, QUESTIONS, WITH_MARGIN


def test_questions_are_short_at_borders_and_long_and_end_in_different_tokens() -> None:
    lengths = sorted(len(question.prompt) for question in QUESTIONS)
    assert lengths == [13, 24, 128, 129, 256, 257, 1025, 4096]
    assert {q.margin for q in WITH_MARGIN} == {True}
    assert [q.prompt for q in WITH_MARGIN] == [q.prompt for q in QUESTIONS]
    assert all(0 <= token <= LETTERS + 2 for question in QUESTIONS for token in question.prompt)
    assert len({question.prompt[:13] for question in QUESTIONS}) == len(QUESTIONS)
