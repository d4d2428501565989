"""Tables of a backtest: names stay whole at any width, and times say what they are."""

import io
import sys
from typing import Any

import pytest

from kintsugi.cli.backtest_table import show

POD = "chat-long-context-r12-6c5d7f9b8d-[x]wvq2"
OTHER = "chat-main-r1-abcde"


class Terminal(io.StringIO):
    """A stdout that a person looks at."""

    def isatty(self) -> bool:
        return True


def found() -> dict[str, Any]:
    held = {"instance": POD, "gate": "mode", "message": "the mode is Observe, so that nothing is done " * 3}
    evening = {"from": "2026-11-29T23:59:00Z", "to": "2026-11-30T00:01:00Z"}
    noon = {"from": "2026-11-29T12:00:00Z", "to": "2026-11-29T12:01:00Z"}
    return {
        "source": "hour.gz",
        "deployment": "chat",
        "instances": [POD, OTHER],
        "from": noon["from"],
        "to": evening["to"],
        "pages": 2,
        "everySeconds": 5.0,
        "refused": [],
        "incidents": [],
        "actions": [],
        "withheld": [held | evening, held | noon | {"instance": OTHER}],
        "suspicions": [],
        "advice": [],
        "pools": [],
        "falsePositiveCandidates": [],
        "missing": "",
    }


def shown(monkeypatch: pytest.MonkeyPatch, out: io.StringIO, columns: int) -> list[str]:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stdout", out)
    show(found())
    return out.getvalue().splitlines()


def test_piped_every_row_is_one_line_whatever_columns_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    (row,) = [line for line in shown(monkeypatch, io.StringIO(), 40) if POD in line]
    assert row.split() == [
        *("2026-11-29", "23:59:00", "2026-11-30", "00:01:00", POD, "mode"),
        *found()["withheld"][0]["message"].split(),
    ]


@pytest.mark.parametrize("columns", [40, 80, 100, 120, 200])
def test_names_stay_whole_on_terminals_of_any_width(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    text = "\n".join(shown(monkeypatch, Terminal(), columns))
    assert text.count(POD) == 1
    assert text.count(OTHER) == 1


def test_times_say_once_that_they_are_utc_and_an_end_on_another_day_says_its_date(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines = shown(monkeypatch, io.StringIO(), 200)
    assert "from 2026-11-29 12:00:00 to 2026-11-30 00:01:00 UTC" in lines[0]
    assert [line.split()[:3] for line in lines if "UTC" in line][1:] == [["from", "(UTC)", "to"]]
    (noon,) = [line for line in lines if OTHER in line]
    assert noon.split()[:4] == ["2026-11-29", "12:00:00", "12:01:00", OTHER]
