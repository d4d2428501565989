"""The operator and real vLLM engines: hung, killed and leaking, while `/health` says that all is well."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from typing import Any, Final

import pytest

from kintsugi.core.names import RESET_LADDERS_ANNOTATION
from kintsugi_engine import contract
from tests.engine.operated.conftest import NewFleet
from tests.engine.operated.real_fleet import MODEL, RealFleet
from tests.engine.report import put_heal
from tests.integration.fleet import NAME
from tests.integration.sight import Json

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(900)]

START_SECONDS: Final = 240.0
"""Until a real engine serves on two cores that three of them share."""

STREAM: Final = """
import json, sys, urllib.request as u
body = {"model": sys.argv[2], "prompt": "x" * 40, "max_tokens": int(sys.argv[3]), "ignore_eos": True, "stream": True}
request = u.Request(sys.argv[1] + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
ends = ""
for line in u.urlopen(request, timeout=600):
    text = line.decode().strip()
    if text.startswith("data: {"):
        if not ends:
            print("begins", flush=True)
            ends = "cut"
        said = json.loads(text[6:])
        ends = "error" if "error" in said else said["choices"][0].get("finish_reason") or ends
    elif text == "data: [DONE]":
        ends += " done"
print(ends)
"""
"""Run where pods can be reached: one stream, that it began, and how it ended."""


@pytest.fixture(scope="module")
def fleet(new_fleet: NewFleet) -> RealFleet:
    """One fleet for all tests: a real engine takes a minute to start."""
    found = new_fleet()
    found.serve(2, "LeakingTelemetry", "leaking_blocks")
    found.wait_until_ready(START_SECONDS)
    return found


@contextmanager
def streams(fleet: RealFleet, pod: Json, count: int, tokens: int) -> Iterator[list["subprocess.Popen[str]"]]:
    """So many streams from that engine itself, whoever is in rotation; each has begun."""
    address = f"http://{pod['status']['podIP']}:{contract.ENGINE_PORT}"
    with ExitStack() as ends:
        made = []
        for _ in range(count):
            one = fleet.cluster.popen_inside(
                [sys.executable, "-c", STREAM, address, MODEL, str(tokens)],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            made.append(ends.enter_context(one))
            ends.callback(one.kill)
        for one in made:
            assert one.stdout is not None
            assert one.stdout.readline() == "begins\n", "an engine under load is one that steps"
        yield made


def stop_core(fleet: RealFleet, pod: Json) -> float:
    """SIGSTOP to its engine core; when that was (epoch seconds)."""
    os.kill(fleet.core(pod), signal.SIGSTOP)
    return time.time()


def cured(fleet: RealFleet, attempts: int) -> dict[str, Any]:
    """The end of the attempt that came after so many others, once there is one."""
    fleet.sight.wait("a Remediation is made", lambda: len(fleet.mends()) > attempts, 120)
    done: dict[str, Any] = fleet.wait_until_done(START_SECONDS + 240)["status"]
    assert done["outcome"] == "Cured", json.dumps(done)
    return done


def healed(fleet: RealFleet, victim: Json, stopped: float, fault: str) -> dict[str, Any]:
    """Follow a stalled engine to its cure; write the times down."""
    uid = victim["metadata"]["uid"]
    before = len(fleet.mends()), fleet.ended()
    fleet.wait_until_withdrawn(victim, 180)
    assert fleet.health(victim) == 200, "nothing but its steps tells that it hangs"
    done: dict[str, Any] = cured(fleet, before[0])
    sick = fleet.sick_at(uid)
    assert sick is not None
    assert any(finding["detector"] == "stall" for finding in fleet.findings_of(victim))
    put_heal(fault, sick - stopped, fleet.ready_at(done["replacement"]["uid"]) - stopped)
    assert fleet.ended() - before[1] == {uid}
    return done


def test_an_engine_core_that_stops_under_load_is_replaced(fleet: RealFleet) -> None:
    victim, _ = fleet.wait_until_warm()
    with streams(fleet, victim, 4, 1900):
        stopped = stop_core(fleet, victim)
        healed(fleet, victim, stopped, "engineCoreStoppedUnderLoad")


def test_an_engine_core_that_stops_while_idle_is_replaced(fleet: RealFleet) -> None:
    victim, _ = fleet.wait_until_warm()
    healed(fleet, victim, stop_core(fleet, victim), "engineCoreStoppedWhileIdle")


def test_an_engine_core_that_is_killed_starts_again_in_place_and_nothing_more_is_done(
    fleet: RealFleet,
) -> None:
    victim, other = fleet.wait_until_warm()
    uids, attempts = fleet.uids(), len(fleet.mends())
    killed = time.time()
    os.kill(fleet.core(victim), signal.SIGKILL)
    fleet.sight.wait("the kubelet started it again", lambda: fleet.restarts(victim) == 1, 120)
    ended = last_state(fleet, victim)
    assert ended["exitCode"] == 0, "its exit code would have said that all was well"
    dead = fleet.sight.wait(
        "it is seen as dead",
        lambda: next((f for f in fleet.findings_of(victim) if f["detector"] == "dead"), None),
        60,
    )
    assert dead
    fleet.sight.wait("it serves again", lambda: ready(fleet, victim), START_SECONDS)
    put_heal("engineCoreKilled", seen_dead(fleet, victim) - killed, time.time() - killed)
    time.sleep(fleet.times.stall_remove)
    assert len(fleet.mends()) == attempts
    assert fleet.uids() == uids
    assert fleet.restarts(other) == 0


def test_an_engine_that_leaks_blocks_is_drained_before_it_goes_and_no_stream_is_cut(fleet: RealFleet) -> None:
    victim, _ = fleet.wait_until_warm(calm=True)
    name, uid = victim["metadata"]["name"], victim["metadata"]["uid"]
    attempts = len(fleet.mends())
    # Each line of pods has been replaced once by now, which is all that this ladder holds: a person lets it begin anew.
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    fleet.kubectl("annotate", "dsv4", NAME, f"{RESET_LADDERS_ANNOTATION}={now}", "--overwrite")
    leaked = time.time()
    fleet.kubectl("exec", name, "--", "sh", "-c", "echo 400 > /tmp/leak-blocks")
    stop = threading.Event()
    ends: list[str] = []

    def keep_streaming() -> None:
        while not stop.is_set():
            with streams(fleet, victim, 2, 1500) as running:
                ends.extend(one.communicate(timeout=300)[0].strip() for one in running)
            if fleet.withdrawn_at(uid) is not None:
                return

    sender = threading.Thread(target=keep_streaming)
    sender.start()
    try:
        fleet.wait_until_withdrawn(victim, 300)
        done = cured(fleet, attempts)
    finally:
        stop.set()
        sender.join()
    assert done["streamsCut"] == 0, json.dumps(done)
    assert ends
    assert set(ends) == {"length done"}, "every stream ended by itself"
    assert any(finding["detector"] == "fragmentation" for finding in fleet.findings_of(victim))
    sick = fleet.sick_at(uid)
    assert sick is not None
    put_heal("leakedBlocksWhileStreaming", sick - leaked, fleet.ready_at(done["replacement"]["uid"]) - leaked)


def last_state(fleet: RealFleet, pod: Json) -> dict[str, Any]:
    found = fleet.sight.now("pods")[pod["metadata"]["name"]]
    state: dict[str, Any] = found["status"]["containerStatuses"][0]["lastState"]["terminated"]
    return state


def ready(fleet: RealFleet, pod: Json) -> bool:
    found = fleet.sight.now("pods")[pod["metadata"]["name"]]
    return bool(found["status"]["containerStatuses"][0]["ready"])


def seen_dead(fleet: RealFleet, pod: Json) -> float:
    """When status first told of it."""
    uid = pod["metadata"]["uid"]
    found = fleet.sight.first(
        "deepseekv4deployments",
        lambda seen: any(
            one["uid"] == uid and any(f["detector"] == "dead" for f in one.get("findings", ()))
            for one in seen.object.get("status", {}).get("instances", ())
        ),
    )
    assert found is not None
    return found
