"""kill -9 of the operator at each step of a remediation (S33): the same victim, one replacement, a cure."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from kintsugi.core.names import MEMBER_LABEL
from tests.demo.stage import environment
from tests.integration.fleet import CALM_SPEED_UP, PATIENCE, Fleet
from tests.integration.installed import Release
from tests.integration.sight import Json

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

STREAM_TOKENS = 1000
"""Tokens of a stream that is longer than the operator is gone: 25 s and more."""
HEALING = {
    "rehearsal": {"speedUp": CALM_SPEED_UP},
    "drain": {"timeoutSeconds": 3000},
    "storm": {"holdSeconds": 240},
    "probationSeconds": 300,
}
"""Each step lasts for seconds, so that the kill falls into it."""


def reserved(fleet: Fleet, victim: Json) -> bool:
    return any(m.get("status", {}).get("phase") == "Quarantined" for m in fleet.mends())


def released(fleet: Fleet, victim: Json) -> bool:
    pod = fleet.sight.now("pods").get(victim["metadata"]["name"])
    return pod is not None and MEMBER_LABEL not in pod["metadata"]["labels"]


def evicted(fleet: Fleet, victim: Json) -> bool:
    return fleet.ending_at(victim["metadata"]["uid"]) is not None


def replaced(fleet: Fleet, victim: Json) -> bool:
    """Its successor is there, beside it or in its place."""
    return len({seen.uid for seen in fleet.sight.seen("pods")}) > 2


def in_phase(phase: str) -> Callable[[Fleet, Json], bool]:
    return lambda fleet, victim: any(m.get("status", {}).get("phase") == phase for m in fleet.mends())


STEPS: dict[str, tuple[str, Callable[[Fleet, Json], bool]]] = {
    "released, its last stream still runs": ("fragmentation", released),
    "reserved and withdrawn": ("hang", reserved),
    "its replacement was created": ("hang", replaced),
    "evicted": ("hang", evicted),
    "its replacement warms up": ("hang", in_phase("Warming")),
    "its replacement is on probation": ("hang", in_phase("Probation")),
}
"""The fault, and the step after which the operator is killed. The first needs what the operator has learned of the
calm engine in this very process, so it comes before any kill."""


@pytest.fixture(scope="module")
def warm(installed: Release) -> Iterator[dict[str, Fleet]]:
    """A fleet for each step, warmed up side by side."""
    fleets = {step: Fleet(installed.cluster, installed.image) for step in STEPS}
    for fleet in fleets.values():
        fleet.apply({"short": 2}, HEALING)
    with ThreadPoolExecutor(len(fleets)) as side_by_side:
        for waiting in [side_by_side.submit(fleet.wait_until_warm, calm=True) for fleet in fleets.values()]:
            waiting.result()
    yield fleets
    for fleet in fleets.values():
        fleet.close()


@pytest.fixture
def operator(installed: Release) -> Iterator[Release]:
    """The operator, and a new one afterwards: the kubelet would let one that was killed often wait for minutes."""
    yield installed
    installed.replace()


@pytest.mark.parametrize("step", STEPS)
def test_an_operator_that_is_killed_mends_on_with_one_victim_and_one_replacement(
    operator: Release, warm: dict[str, Fleet], step: str
) -> None:
    fleet = warm[step]
    fault, reached = STEPS[step]
    victim = fleet.pods()[0]
    name, uid = victim["metadata"]["name"], victim["metadata"]["uid"]
    before = fleet.uids()
    restarts = operator.restarts()

    fleet.engines.inject(name, fault)
    fleet.wait_until_withdrawn(victim)
    stream = long_stream(fleet, victim) if fault == "fragmentation" else None
    fleet.sight.wait(step, lambda: reached(fleet, victim), PATIENCE + fleet.times.hold + fleet.times.warm_up)
    operator.kill()
    operator.wait_until_restarted(restarts)

    done = fleet.wait_until_done(2 * PATIENCE)
    assert done["status"]["outcome"] == "Cured", done["status"]
    assert done["spec"]["instance"]["uid"] == uid
    assert len(fleet.mends()) == 1
    assert fleet.ended() == {uid}
    replacement = done["status"]["replacement"]["uid"]
    assert fleet.uids() == before - {uid} | {replacement}
    assert {seen.uid for seen in fleet.sight.seen("pods")} == before | {replacement}, "no second replacement"
    if stream is not None:
        said, _ = stream.communicate(timeout=60)
        assert stream.returncode == 0, f"the stream was cut: {said}"


def long_stream(fleet: Fleet, pod: Json) -> "subprocess.Popen[str]":
    """One request straight to the pod, which takes half a minute; its process ends with 0 if it got all its tokens."""
    target = f"victim=http://{pod['status']['podIP']}:8000"
    return fleet.cluster.popen_inside(
        [
            *(sys.executable, "-m", "kintsugi.testing.traffic", "--target", target, "--even"),
            *("--rate", "1", "--duration", "1.5", "--output-tokens", str(STREAM_TOKENS)),
            *("--model", "deepseek-v4", "--grace", "90", "--progress-seconds", "0"),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        env=environment(),
    )
