"""Eight questions whose one-token answer every healthy process of a revision agrees on (hang paper §4).

Prompts are token ids, so no tokenizer is asked and lengths are exact: short ones, some around borders of KV blocks, and
long ones. Each repeats a pattern (copy) or goes up one by one (count), which any trained model continues with certainty;
what it says is learned from the processes themselves, never assumed.
"""

from typing import Final

from kintsugi.core.snapshot import Question

BEGIN: Final = 0
"""The first token of every DeepSeek prompt; an ordinary token elsewhere."""
FIRST: Final = 3
LETTERS: Final = 94
"""Ids 3 to 96: the printable ASCII characters of byte-level vocabularies, which are small enough for any other, too."""
SURE_NATS: Final = 3.0
"""An answer less likely than this ahead of the next best is a near tie, which batch or build may turn (hang §4)."""
LEAST_KNOWN: Final = 6
"""Questions that a process must have left; below that wrong answers are not looked for (hang §4)."""


def _copy(length: int, period: int, stride: int) -> tuple[int, ...]:
    pattern = [FIRST + (7 + stride * place) % LETTERS for place in range(period)]
    return BEGIN, *(pattern[place % period] for place in range(length - 1))


def _count(length: int, start: int) -> tuple[int, ...]:
    return BEGIN, *(FIRST + start + place for place in range(length - 1))


_PROMPTS: Final = {
    "copy-13": _copy(13, 3, 11),
    "count-24": _count(24, 64),
    "copy-128": _copy(128, 5, 13),
    "copy-129": _copy(129, 7, 17),
    "copy-256": _copy(256, 11, 19),
    "copy-257": _copy(257, 9, 23),
    "copy-1025": _copy(1025, 13, 29),
    "copy-4096": _copy(4096, 17, 31),
}
"""V4's cache compresses 128 tokens to one entry and caches prefixes in blocks of 256 (`vllm/model_executor` 0.32 forces
that block size): 128 and 256 fill a block, one more begins the next. Together 5,928 tokens, the cost of one burst."""

QUESTIONS: Final = tuple(Question(name, prompt) for name, prompt in _PROMPTS.items())
"""As they are asked in bursts."""
WITH_MARGIN: Final = tuple(Question(name, prompt, margin=True) for name, prompt in _PROMPTS.items())
"""As they are asked once, after the warm-up of a process; the first of them is the one that a young process is asked."""
NAMES: Final = tuple(_PROMPTS)
TOKENS: Final = {name: len(prompt) for name, prompt in _PROMPTS.items()}
"""Prompt tokens by question."""
