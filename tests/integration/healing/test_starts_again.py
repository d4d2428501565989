"""Engines that served and do not start again: a fresh pod where that cures, nothing where it would fail as well."""

import time

import pytest

from tests.integration.fleet import PATIENCE, Fleet, is_ready, manifest
from tests.integration.healing.conftest import NewFleet
from tests.integration.sight import Json

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

ALLOW = {"allow": ["UnknownFlag"]}
"""The simulated engine has flags of its own."""
LEAVES_A_FILE = """
import mmap, os, sys, time
left = os.open(f"/dev/shm/left-{time.time_ns()}", os.O_CREAT | os.O_RDWR)
os.ftruncate(left, 10 << 20)
mmap.mmap(left, 10 << 20).write(bytes(10 << 20))
os.execvp("kintsugi", ["kintsugi", "simulate-engine", *sys.argv[1:]])
"""
"""10 MiB of 16 are written at each start, and stay: the second start finds no room, and dies of it (SIGBUS)."""
MEETS_THE_LIMIT = """
import os, sys
if os.path.exists("/dev/shm/been-here"):
    sys.exit("huggingface_hub.errors.HfHubHTTPError: 429 Client Error: Too Many Requests for url: https://hub/x")
open("/dev/shm/been-here", "w").close()
os.execvp("kintsugi", ["kintsugi", "simulate-engine", *sys.argv[1:]])
"""
"""The first start of a pod has its download, all others are refused it."""
BOTH_AT_ONCE = {"storm": {"holdSeconds": 60, "percent": 100}}
"""Two of the operator's few engines that fall sick together are a storm, unless only more than all of a pool is one."""
RESTARTS_SECONDS = 150.0
"""The kubelet's pauses until the third restart: 10 + 20 + 40 s, and the starts between them."""


def apply(fleet: Fleet, code: str) -> None:
    """Two engines, each started by this program with the engine's arguments."""
    made = manifest(fleet.image, {"short": 2}, validation=ALLOW)
    template = made["spec"]["podTemplate"]
    template["spec"]["containers"][0]["command"] = ["python3", "-c", code]
    fleet.apply({"short": 2}, BOTH_AT_ONCE, validation=ALLOW, podTemplate=template)


def crashed(fleet: Fleet) -> Json:
    """The pod whose engine is killed now, for the first time."""
    victim = fleet.pods()[0]
    fleet.cluster.kill_container(fleet.namespace, victim["metadata"]["name"], "engine")
    return victim


@pytest.mark.timeout(600)
def test_shared_memory_is_emptied_by_a_fresh_pod_and_a_throttled_download_is_left_in_peace(
    new_fleet: NewFleet,
) -> None:
    """S23 and S51."""
    full, throttled = new_fleet(), new_fleet()
    for fleet, code in ((full, LEAVES_A_FILE), (throttled, MEETS_THE_LIMIT)):
        apply(fleet, code)
    for fleet in (full, throttled):
        fleet.wait_until_warm()
    left, refused = crashed(full), crashed(throttled)
    before = full.uids()

    mend = full.wait_until_phase(
        "Draining", "Replacing", "Warming", "Probation", "Done", seconds=RESTARTS_SECONDS
    )
    assert mend["spec"]["instance"]["uid"] == left["metadata"]["uid"]
    done = full.wait_until_done()["status"]
    assert done["outcome"] == "Cured", done
    assert len(full.uids() & before) == 1, "one pod is new, and one is as it was"
    assert len(full.wait_until_ready()) == 2

    name, uid = refused["metadata"]["name"], refused["metadata"]["uid"]
    throttled.sight.wait(
        "it says so", lambda: throttled.withheld(name) == "ModelFetchThrottled", RESTARTS_SECONDS
    )
    time.sleep(20.0)
    assert uid in throttled.uids(), "it keeps what it has fetched"
    assert throttled.mends() == []
    assert throttled.condition("Degraded")["reason"] == "ModelFetchThrottled"
    assert "spec.model.source.pvc" in throttled.status["why"]
    assert sum(map(is_ready, throttled.pods())) == 1, "its sibling serves"


def test_an_engine_that_ends_well_is_started_again_in_place(fleet: Fleet) -> None:
    """S21: exit 0 is a failure of a server, whatever the code says."""
    fleet.apply({"short": 2})
    victim = fleet.wait_until_warm()[0]
    name, before = victim["metadata"]["name"], fleet.uids()
    fleet.engines.inject(name, "crash", exitCode=0, afterSeconds=1)

    def restarted() -> bool:
        statuses = fleet.sight.now("pods")[name]["status"]["containerStatuses"]
        return [status["restartCount"] for status in statuses] == [1]

    fleet.sight.wait("the kubelet starts it again", restarted, PATIENCE)
    (ended,) = fleet.sight.now("pods")[name]["status"]["containerStatuses"]
    assert ended["lastState"]["terminated"]["exitCode"] == 0
    fleet.wait_until_ready()
    time.sleep(2 * fleet.times.hold)
    assert fleet.uids() == before
    assert fleet.ended() == set()
    assert [m for m in fleet.mends() if m["status"].get("outcome") != "Cancelled"] == []


def test_a_flag_that_the_new_engine_does_not_know_stops_the_rollout_at_one_pod(fleet: Fleet) -> None:
    """S06."""
    fleet.apply({"short": 2}, validation=ALLOW)
    fleet.wait_until_ready()
    before = fleet.uids()
    good = fleet.manifest["spec"]["engine"]
    fleet.edit(engine=good | {"extraArgs": [*good["extraArgs"], "--only-known-flags", "--log-every-dream"]})
    fleet.sight.wait(
        "blamed", lambda: fleet.condition("SpecAccepted").get("reason") == "ConfigInvalid", 2 * PATIENCE
    )
    time.sleep(15.0)
    assert "--log-every-dream" in fleet.status["why"]
    assert fleet.condition("Progressing")["reason"] == "RolloutStalled"
    assert len(fleet.uids() - before) == 1
    assert before <= fleet.uids()
    assert len(fleet.addresses("short")) == 2
    fleet.edit(engine=good)
    fleet.sight.wait("the bad pod is gone", lambda: fleet.uids() == before, PATIENCE)
    fleet.sight.wait("all is well", lambda: fleet.status["why"] == "", PATIENCE)
