"""Twenty remediations of engines that still serve, under streams that never pause: not one request may fail.

Six fleets of four engines and one spare GPU each fill the cluster: in four the memory of one engine after the other falls to
pieces, in one engines lose their speed, and in one the memory of two rises towards its limit. No engine falls sick twice,
since a fault that comes back is not cured by the same remedy. So that twenty fit into minutes, the clock runs thirty times
as fast, the budgets are 50 removals of a pool in its half hour and 200 of the operator in its hour, and a storm is only what
strikes more than all of a pool: with one victim in each of six fleets the operator would rightly call it one.

Growth is told no earlier than 3 h 40 min after an engine's start, 440 s of a clock thirty times as fast. That fleet's clock
runs a hundred times as fast: its evidence are minima of nine seconds, which bear a machine that pauses for a second or two.
What such a clock can't tell is not acted upon there: 0.6 s without a step would be a stall (made ten times as long), and
samples of step costs of 0.6 s would say little (throughput is only observed).
"""

import json
import re
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from rich.console import Console
from rich.table import Table

from kintsugi.adapters.kube.parse import epoch
from kintsugi.core.detect.slow import BASELINE_SAMPLES
from kintsugi.testing.engine.face import CONTAINER_ANONYMOUS, CONTAINER_LIMIT, CONTAINER_SHARED
from kintsugi_engine.contract import CONTAINER_MEMORY_ANONYMOUS
from tests.demo.traffic import Sent
from tests.integration.fleet import MARGIN, PATIENCE, Fleet
from tests.integration.healing.conftest import GPUS, NODES
from tests.integration.installed import ROOT, Release
from tests.integration.sight import Json

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(600)]

REPORT: Final[Path] = ROOT / "build" / "remediations.json"
ENGINES: Final = 4


@dataclass(frozen=True, slots=True)
class Course:
    """What befalls one fleet, and how often."""

    name: str
    fault: str
    trigger: str
    told: str
    """What a person is told of it, as a pattern: in numbers."""
    times: int
    speed_up: int
    scrape_seconds: int
    rate: float
    """Requests a second, each a stream of half a second to one and a half."""

    @property
    def grows(self) -> bool:
        return self.fault == GROWTH

    @property
    def healing(self) -> Json:
        healing: Json = {
            "rehearsal": {"speedUp": self.speed_up},
            "storm": {"holdSeconds": 60, "percent": 100},
            "budget": {"maxPerPoolPer30Minutes": 50, "maxPerHour": 200},
        }
        if self.grows:
            stall = {"forSeconds": 600, "removeAfterSeconds": 1200}
            healing["triggers"] = {"stall": stall, "throughput": {"mode": "Observe"}}
            healing["drain"] = {
                "timeoutSeconds": 1000
            }  # ten real seconds, as the others have; so are the next two
            healing["storm"]["holdSeconds"] = 200
            healing["probationSeconds"] = 200
        return healing


GROWTH: Final = "memoryGrowth"
LEAKS: Final = (7.4, 5.0)
"""GiB an hour of the engine's clock, of an engine that begins at 28 of 64 GiB: the first one is near its limit when growth
may be told at all, the second one is near it once the first was replaced."""
PERCENT: Final = 60
"""Of fragmentation, or of the step rate that is lost."""

COURSES: Final = (
    *(
        Course(
            f"fragmented {n}",
            "fragmentation",
            "fragmentation",
            r"allocator fragmentation 60 %",
            4,
            30,
            16,
            3.0,
        )
        for n in range(1, 5)
    ),
    Course("slow", "throughputDrop", "throughput", r"[3-7]\d % of the step rate is lost", 2, 30, 10, 6.0),
    Course("growing", GROWTH, GROWTH, r"[\d.]+ GiB an hour .* in \d+ min", len(LEAKS), 100, 30, 3.0),
)


@dataclass(frozen=True, slots=True)
class Came:
    """What one fleet's course came to."""

    course: Course
    mends: tuple[Json, ...]
    sent: tuple[Sent, ...]
    trouble: str
    leaks: tuple[tuple[str, float], ...] = ()
    """Names of pods whose memory grows, and when in epoch seconds each would reach its limit."""

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
        leaks = _leaking(course, fleet) if course.grows else ()
        for number in range(course.times):
            if not course.grows:
                victim = fleet.pods()[0]
                _wait_until_known(fleet, course, victim)
                fleet.engines.inject(victim["metadata"]["name"], course.fault, percent=PERCENT)
            try:
                _wait_until_mended(fleet, number + 1)
            except TimeoutError as late:
                trouble = f"remediation {number + 1}: {late}"
                break
    return Came(course, tuple(fleet.mends()), tuple(sent), trouble, leaks)


def _leaking(course: Course, fleet: Fleet) -> tuple[tuple[str, float], ...]:
    """Let the memory of as many engines grow; who they are, and when each would be killed."""
    room = CONTAINER_LIMIT - CONTAINER_SHARED - CONTAINER_ANONYMOUS
    leaks = []
    for pod, gib_per_hour in zip(fleet.pods(), LEAKS, strict=False):
        name, pace = pod["metadata"]["name"], gib_per_hour * 2**30 / 3600 * course.speed_up
        fleet.engines.inject(name, course.fault, bytesPerSecond=pace)
        leaks.append((name, time.time() + room / pace))
    return tuple(leaks)


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

    evidence = fleet.times.growth_young + 6 * fleet.times.growth_bucket_short
    fleet.sight.wait(f"{number} remediations are over", mended, 2 * PATIENCE + evidence)
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


@pytest.fixture(scope="module")
def came(fleets: dict[Course, Fleet]) -> tuple[Came, ...]:
    """What all courses came to, side by side."""
    with ThreadPoolExecutor(len(fleets)) as side_by_side:
        under_way = [(course, side_by_side.submit(run, course, fleet)) for course, fleet in fleets.items()]
    return tuple(_came(course, fleets[course], told) for course, told in under_way)


def test_twenty_remediations_of_engines_that_still_serve_fail_no_request(
    came: tuple[Came, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    document = write(came)
    with capsys.disabled():
        print()
        show(came)
    assert [one.trouble for one in came if one.trouble] == []
    assert [(one.error, one.started) for each in came for one in each.failed] == []
    ends = [(m["spec"]["remedy"], m["status"].get("outcome")) for one in came for m in one.mends]
    assert document["cured"] == document["remediations"] == 20, ends
    assert document["streamsCut"] == 0
    assert {(one.course.trigger, m["spec"]["trigger"]) for one in came for m in one.mends} == {
        (trigger, trigger) for trigger in ("fragmentation", "throughput", GROWTH)
    }
    paths = {m["status"]["path"] for one in came for m in one.mends}
    assert paths == {"Surge"}, "with a spare GPU the replacement starts first"


def test_engines_whose_memory_grows_are_recycled_before_their_limit_and_those_with_flat_memory_stay(
    came: tuple[Came, ...], fleets: dict[Course, Fleet]
) -> None:
    (grown,) = (one for one in came if one.course.grows)
    fleet = fleets[grown.course]
    assert [m["spec"]["instance"]["name"] for m in grown.mends] == [name for name, _ in grown.leaks]
    for mend, (_, limit) in zip(grown.mends, grown.leaks, strict=True):
        evidence = {each["signal"]: each["value"] for each in mend["status"]["evidence"]}
        assert 0 < evidence["forecast to the limit"] <= fleet.times.growth_horizon
        assert evidence["memory, highest of the last two buckets"] > 0.7 * evidence["memory limit"]
        deleted = epoch(mend["status"]["timeline"]["deleted"])
        assert deleted is not None
        assert deleted < limit, "the kernel would have come first"
    assert fleet.ended() == {m["spec"]["instance"]["uid"] for m in grown.mends}
    flat = f'{CONTAINER_MEMORY_ANONYMOUS}{{source="cgroup"}} {CONTAINER_ANONYMOUS}'
    for pod in fleet.pods():
        assert flat in fleet.engines.page(pod["metadata"]["name"])


def test_kubectl_answers_why_a_pod_was_killed(
    came: tuple[Came, ...], fleets: dict[Course, Fleet], capsys: pytest.CaptureFixture[str]
) -> None:
    """To someone who has read no docs: which pod, why in numbers, what was done, how it ended, and what it cost."""
    for one in came:
        fleet = fleets[one.course]
        listed = fleet.kubectl("get", "mend")
        with capsys.disabled():
            print(f"\n$ kubectl get mend     # {one.course.name}\n{listed}", end="")
        header, *rows = listed.splitlines()
        for column in ("POD", "TRIGGER", "REMEDY", "OUTCOME", "REQUESTS CUT", "AGE", "WHY", "NOW"):
            assert f" {column}" in header
        by_name = {row.split()[0]: row for row in rows}
        for mend in one.mends:
            row, pod = by_name[mend["metadata"]["name"]], mend["spec"]["instance"]["name"]
            done = rf"{pod} +{one.course.trigger} +Recreate +Done +Cured +0 +\S+ +"
            after = f"{mend['status']['replacement']['name']} took its place"
            assert re.search(rf"{done}.*{one.course.told}.*evicted, with no request cut off; {after}", row)

    mend = came[-1].mends[0]
    told = fleets[came[-1].course].kubectl("describe", "mend", mend["metadata"]["name"])
    with capsys.disabled():
        print(f"\n$ kubectl describe mend     # {came[-1].course.name}\n{told}")
    said = re.sub(r" +", " ", told)
    for expected in (
        f"Name: {mend['spec']['instance']['name']}",
        f"Why: {mend['status']['why']}",
        f"Message: {mend['status']['message']}",
        "Outcome: Cured",
        "Streams Cut: 0",
        f"Withdrawn: {mend['status']['timeline']['withdrawn']}",
        f"Deleted: {mend['status']['timeline']['deleted']}",
        "Signal: forecast to the limit",
        f"Name: {mend['status']['replacement']['name']}",
        "pool of engine 0, ",
        CONTAINER_MEMORY_ANONYMOUS,
    ):
        assert expected in said, expected
