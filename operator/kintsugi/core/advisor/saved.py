"""Pages kept in files: `/metrics` as the engine gave it, each page under one line that says of whom and of when.

    # kintsugi-page time=1795961743.2 pool=short instance=chat-short-7f9c4-x2x8p

`time` is in epoch seconds; `pool` may be left out where there is one pool. Any number of pages, of any instances, may
follow each other in one file; the line is a comment to everybody else who reads the format. `kintsugi record` says
more of the pod on the same line (`uid=`, `started=` …, see `core.backtest.observation`), and `failed=` where there was
no page to read.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

MARK: Final = "# kintsugi-page"
_FIELD: Final = re.compile(r"([a-z]+)=(\S+)")
LATEST: Final = 1e11
"""Epoch seconds in the year 5138: what is later was not meant in seconds."""
EXAMPLE: Final = f"{MARK} time=1795961743 pool=short instance=chat-short-0"


class SavedInvalid(ValueError):
    """A file that can't be read as saved pages; the message names the line and the cure."""


@dataclass(frozen=True, slots=True)
class SavedPage:
    """One page. `pool` is '' where its line does not say."""

    pool: str
    instance: str
    time: float
    """Epoch seconds."""
    text: str
    facts: Mapping[str, str] = field(default_factory=dict)
    """What else its line says, as written."""


def saved_pages(lines: Iterable[str], name: str) -> Iterator[SavedPage]:
    """The pages of one file, whose lines keep their ends; those that could not be read are left out.

    `name` is for messages. Raises SavedInvalid.
    """
    return (page for page in saved_looks(lines, name) if "failed" not in page.facts)


def saved_looks(lines: Iterable[str], name: str) -> Iterator[SavedPage]:
    """The same with the looks that gave no page: their facts hold `failed`, their text is ''."""
    head: SavedPage | None = None
    body: list[str] = []
    for number, line in enumerate(lines, 1):
        if line.startswith(MARK):
            if head is not None:
                yield _whole(head, body)
            head, body = _head(line, f"{name}:{number}"), []
        elif head is not None:
            body.append(line)
        elif line.strip():
            raise SavedInvalid(
                f"{name}:{number}: a page begins without a line that says whose it is: put '{EXAMPLE}' before it"
            )
    if head is not None:
        yield _whole(head, body)


def saved_head(pool: str, instance: str, time: float, facts: Mapping[str, str] | None = None) -> str:
    """The line that goes before a page. Keys of `facts` are lower-case letters, values hold no blanks."""
    more = "".join(f" {key}={value}" for key, value in (facts or {}).items())
    return f"{MARK} time={time:.3f} pool={pool} instance={instance}{more}\n"


def without_heads(text: str) -> str:
    """A page without lines of its own that would be taken for the line before a page."""
    if MARK not in text:
        return text
    return "".join(line for line in text.splitlines(keepends=True) if not line.startswith(MARK))


def _whole(head: SavedPage, body: list[str]) -> SavedPage:
    return SavedPage(head.pool, head.instance, head.time, "".join(body), head.facts)


def _head(line: str, where: str) -> SavedPage:
    said = dict(_FIELD.findall(line[len(MARK) :]))
    time = _seconds(said.get("time", ""))
    if time is None:
        raise SavedInvalid(f"{where}: time= must be epoch seconds (not milliseconds), as in '{EXAMPLE}'")
    if not said.get("instance"):
        raise SavedInvalid(f"{where}: instance= is missing, as in '{EXAMPLE}'")
    facts = {key: value for key, value in said.items() if key not in ("time", "pool", "instance")}
    return SavedPage(said.get("pool", ""), said["instance"], time, "", facts)


def _seconds(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if 0 <= number <= LATEST else None
