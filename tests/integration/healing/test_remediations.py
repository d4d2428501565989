"""Twenty remediations of engines that still serve, under streams that never pause: not one request may fail.

Six fleets of four engines and one spare GPU each fill the cluster; four lose their memory to fragmentation, two
their speed, one engine at a time and none twice, since a fault that comes back is not cured by the same remedy. So that twenty fit into minutes, the clock runs thirty times as fast, the
budgets are 50 removals of a pool in its half hour and 200 of the operator in its hour, and a storm is only what strikes
more than all of a pool: with one victim in each of six fleets the operator would rightly call it one.
"""

import json
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from rich.console import Console
from rich.table import Table

from kintsugi.core.detect.slow import BASELINE_SAMPLES
from tests.demo.traffic import Sent
from tests.integration.fleet import MARGIN, PATIENCE, Fleet
from tests.integration.healing.conftest import GPUS, NODES
from tests.integration.installed import ROOT, Release
from tests.integration.sight import Json

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

REPORT: Final[Path] = ROOT / "build" / "remediations.json"
ENGINES: Final = 4


@dataclass(frozen=True, slots=True)
class Course:
    """What befalls one fleet, and how often."""

    name: str
    fault: str
    percent: int
    times: int
    speed_up: int
    scrape_seconds: int
    rate: float
    """Requests a second, each a stream of half a second to one and a half."""

    @property
    def healing(self) -> Json:
        return {
            "rehearsal": {"speedUp": self.speed_up},
            "storm": {"holdSeconds": 60, "percent": 100},
            "budget": {"maxPerPoolPer30Minutes": 50, "maxPerHour": 200},
        }


COURSES: Final = (
    *(Course(f"fragmented {n}", "fragmentation", 60, 4, 30, 16, 3.0) for n in range(1, 5)),
    *(Course(f"slow {n}", "throughputDrop", 60, 2, 30, 10, 6.0) for n in range(1, 3)),
)


@dataclass(frozen=True, slots=True)
class Came:
    """What one fleet's course came to."""

    course: Course
    mends: tuple[Json, ...]
    sent: tuple[Sent, ...]
    trouble: str

    @property
    def cured(self) -> int:
        return sum(1 for m in self.mends if m.get("status", {}).get("outcome") == "Cured")

    @property
    def failed(self) -> tuple[Sent, ...]:
        return tuple(one for one in self.sent if one.error)

    @property
    def cut(self) -> int:
        return sum(int(m.get("status", {}).get("streamsCut") or 0) for m in self.mends)


@pytest.fixture(scope="module")
def fleets(installed: Release) -> Iterator[dict[Course, Fleet]]:
    """A fleet for each course, each with one GPU to spare."""
    assert len(COURSES) * (ENGINES + 1) == NODES * GPUS
    made = {course: Fleet(installed.cluster, installed.image) for course in COURSES}
    for course, fleet in made.items():
        scrape = {"scrapeIntervalSeconds": course.scrape_seconds}
        fleet.apply({"short": ENGINES}, course.healing, monitoring=scrape)
    yield made
    for fleet in made.values():
        fleet.close()


def run(course: Course, fleet: Fleet) -> Came:
    """Under load, one fault after the other, each mended before the next."""
    fleet.wait_until_ready(2 * PATIENCE)
    trouble = ""
    with fleet.traffic(short=course.rate) as sent:
        for number in range(course.times):
            victim = fleet.pods()[0]
            _wait_until_known(fleet, course, victim)
            fleet.engines.inject(victim["metadata"]["name"], course.fault, percent=course.percent)
            try:
                _wait_until_mended(fleet, number + 1)
            except TimeoutError as late:
                trouble = f"remediation {number + 1}: {late}"
                break
    return Came(course, tuple(fleet.mends()), tuple(sent), trouble)


def _came(course: Course, fleet: Fleet, told: "Future[Came]") -> Came:
    """What a course came to, one that broke off included."""
    trouble = told.exception()
    return told.result() if trouble is None else Came(course, tuple(fleet.mends()), (), repr(trouble))


def _wait_until_known(fleet: Fleet, course: Course, pod: Json) -> None:
    """Until the engine is warm and its calm state is known, without which nobody could tell that a restart helps."""
    times = fleet.times
    baseline = (BASELINE_SAMPLES + 2) * times.slow_minute
    learns = times.fragmentation_reference if course.fault == "fragmentation" else baseline
    until = fleet.ready_at(pod["metadata"]["uid"]) + times.warm_up + learns + MARGIN
    time.sleep(max(0.0, until - time.time()))


def _wait_until_mended(fleet: Fleet, number: int) -> None:
    def mended() -> bool:
        ended = [m for m in fleet.mends() if m.get("status", {}).get("phase") == "Done"]
        return len(ended) >= number

    fleet.sight.wait(f"{number} remediations are over", mended, 2 * PATIENCE)
    fleet.wait_until_ready()


def write(came: tuple[Came, ...]) -> dict[str, Any]:
    document = {
        "remediations": sum(one.times for one in COURSES),
        "cured": sum(one.cured for one in came),
        "requests": sum(len(one.sent) for one in came),
        "requestsFailed": sum(len(one.failed) for one in came),
        "streamsCut": sum(one.cut for one in came),
    }
    REPORT.parent.mkdir(exist_ok=True)
    REPORT.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    return document


def show(came: tuple[Came, ...]) -> None:
    table = Table(title="Remediations under load", title_justify="left")
    for column in ("fleet", "remediations", "cured", "requests", "failed", "streams cut"):
        table.add_column(column, justify="left" if column == "fleet" else "right")
    for one in came:
        figures = (one.course.times, one.cured, len(one.sent), len(one.failed), one.cut)
        table.add_row(one.course.name, *map(str, figures))
    Console(width=100).print(table)


@pytest.mark.timeout(600)
def test_twenty_remediations_of_engines_that_still_serve_fail_no_request(
    fleets: dict[Course, Fleet], capsys: pytest.CaptureFixture[str]
) -> None:
    with ThreadPoolExecutor(len(fleets)) as side_by_side:
        under_way = [(course, side_by_side.submit(run, course, fleet)) for course, fleet in fleets.items()]
    came = tuple(_came(course, fleets[course], told) for course, told in under_way)
    document = write(came)
    with capsys.disabled():
        print()
        show(came)
    assert [one.trouble for one in came if one.trouble] == []
    assert [(one.error, one.started) for each in came for one in each.failed] == []
    ends = [(m["spec"]["remedy"], m["status"].get("outcome")) for one in came for m in one.mends]
    assert document["cured"] == document["remediations"] == 20, ends
    assert document["streamsCut"] == 0
    paths = {m["status"]["path"] for one in came for m in one.mends}
    assert paths == {"Surge"}, "with a spare GPU the replacement starts first"
