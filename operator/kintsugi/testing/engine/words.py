"""The text that a simulated engine answers with: the same request always gets the same words."""

import zlib
from collections.abc import Mapping
from typing import Final

_WORDS: Final = (
    *("gold", "seam", "bowl", "lacquer", "shard", "clay", "glaze", "kiln", "crack", "mend", "rim", "dust"),
    *("brush", "resin", "cup", "foot", "fire", "ash", "slip", "wheel", "line", "light", "hand", "hour"),
    *("break", "join", "hold", "shine", "turn", "rest", "pour", "keep"),
)
_STEP: Final = 7
"""Coprime to the number of words, so an answer runs through all of them."""


class Words:
    """The tokens of one answer, one word each; `corrupted` answers differ from the first word on."""

    __slots__ = ("_fixed", "_start")

    def __init__(self, prompt: bytes, answers: Mapping[str, str], *, corrupted: bool = False) -> None:
        self._start = zlib.crc32(prompt)
        self._fixed: list[str] = []
        for ending, answer in answers.items():
            if prompt.rstrip().endswith(ending.encode()):
                self._fixed = [f" {word}" for word in answer.split()]
        if corrupted:
            self._start += 1
            self._fixed = []

    def __getitem__(self, index: int) -> str:
        if index < len(self._fixed):
            return self._fixed[index]
        return " " + _WORDS[(self._start + index * _STEP) % len(_WORDS)]

    def between(self, first: int, last: int) -> list[str]:
        return [self[index] for index in range(first, last)]
