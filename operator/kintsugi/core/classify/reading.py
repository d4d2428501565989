"""From what an engine wrote to the sign that explains it."""

import re
from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

from kintsugi.core.classify.lines import Line
from kintsugi.core.classify.signs import SIGNS, Sign

_PROGRESS: Final = (
    re.compile(r"Loading safetensors[^\n]{0,120}?(?P<done>\d+)/(?P<all>\d+)", re.IGNORECASE),
    re.compile(r"(?P<done>\d+)\s*(?:of|/)\s*(?P<all>\d+)\s*(?:checkpoint )?shards?", re.IGNORECASE),
    re.compile(r"shards?[^\n]{0,60}?(?P<done>\d+)/(?P<all>\d+)", re.IGNORECASE),
)
Found = tuple[Sign, re.Match[str], str]
"""A sign, where it matched, and the line in which it did."""


def first_sign(lines: Sequence[Line]) -> Found | None:
    """The sign that occurs first among errors; where errors say nothing, among warnings."""
    return _earliest(lines, calm=False) or _earliest(lines, calm=True)


def _earliest(lines: Sequence[Line], calm: bool) -> Found | None:
    kept = [line for line in lines if calm or not line.calm]
    starts, at = [], 0
    for line in kept:
        starts.append(at)
        at += len(line.text) + 1
    text = "\n".join(line.text for line in kept)
    best: tuple[int, int, Found] | None = None
    for rank, sign in enumerate(SIGNS):
        if calm and not sign.calm_too:
            continue
        match = sign.pattern.search(text)
        if match is None:
            continue
        row = bisect_right(starts, match.start()) - 1
        if best is None or (row, rank) < best[:2]:
            best = row, rank, (sign, match, kept[row].text)
    return best[2] if best else None


def loading_progress(lines: Sequence[Line]) -> str:
    """How far the weights were loaded, such as `34 of 64 shards`; '' where the log does not say."""
    for line in reversed(lines):
        for pattern in _PROGRESS:
            found = pattern.search(line.text)
            if found and 0 < int(found["all"]) < 100_000:
                return f"{int(found['done'])} of {int(found['all'])} shards"
    return ""
