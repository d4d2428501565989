"""The native runtime as pods: the same detectors see its faults, and the same remedies cure them."""

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.native.conftest import written
from tests.engine.operated.native_fleet import NativeFleet, native_image, readable
from tests.engine.operated.test_operated import (
    START_SECONDS,
    healed,
    last_state,
    ready,
    seen_dead,
    stop_core,
    streams,
)
from tests.engine.report import put_heal
from tests.integration.installed import Release

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(2700)]


@pytest.fixture(scope="module")
def fleet(
    installed: Release, engine_python: Path, package: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[NativeFleet]:
    """Two native engines with a tiny DeepSeek-V4, for all tests of this file, one after the other."""
    model = readable(written(engine_python, tmp_path_factory.mktemp("tiny-v4")))
    found = NativeFleet(installed.cluster, installed.image, engine_python, package, model)
    found.native = native_image()
    found.serve(2, "", "")
    found.wait_until_ready(START_SECONDS)
    yield found
    found.close()


def test_a_native_engine_answers_and_its_page_is_read(fleet: NativeFleet) -> None:
    pods = fleet.wait_until_warm()
    with streams(fleet, pods[0], 2, 40) as running:
        assert [one.communicate(timeout=120)[0].strip() for one in running] == ["length done"] * 2
    for pod in pods:
        assert fleet.judged(pod, "Healthy", "Idle"), json.dumps(fleet.instance(pod["metadata"]["name"]))


def test_a_native_engine_that_stops_under_load_is_replaced(fleet: NativeFleet) -> None:
    victim, _ = fleet.wait_until_warm()
    with streams(fleet, victim, 4, 1900):
        stopped = stop_core(fleet, victim)
        healed(fleet, victim, stopped, "nativeEngineStoppedUnderLoad")


def test_a_native_engine_that_is_killed_starts_again_in_place(fleet: NativeFleet) -> None:
    victim, other = fleet.wait_until_warm()
    uids, attempts = fleet.uids(), len(fleet.mends())
    killed = time.time()
    os.kill(fleet.core(victim), signal.SIGKILL)
    fleet.sight.wait("the kubelet started it again", lambda: fleet.restarts(victim) == 1, 120)
    assert last_state(fleet, victim)["exitCode"] == 1
    fleet.sight.wait(
        "it is seen as dead",
        lambda: next((f for f in fleet.findings_of(victim) if f["detector"] == "dead"), None),
        60,
    )
    fleet.sight.wait("it serves again", lambda: ready(fleet, victim), START_SECONDS)
    put_heal("nativeEngineKilled", seen_dead(fleet, victim) - killed, time.time() - killed)
    time.sleep(fleet.times.stall_remove)
    assert len(fleet.mends()) == attempts
    assert fleet.uids() == uids
    assert fleet.restarts(other) == 0
