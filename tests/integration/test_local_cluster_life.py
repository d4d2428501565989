"""Clusters stand side by side, start over the ruins of others, and leave nothing."""

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import cgroups, configs, network, paths
from tests.cluster.cluster import Cluster, remove, sweep
from tests.cluster.fixtures import skip_if_unsupported
from tests.cluster.kube import wait_for
from tests.cluster.paths import REPOSITORY
from tests.cluster.spec import load
from tests.cluster.storage import mounts_below

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

START = """
import sys, time
from tests.cluster.cluster import Cluster
Cluster.start(sys.argv[1], nodes=1, gpus_per_node=1)
print("up", flush=True)
time.sleep(300)
"""


@pytest.fixture
def name() -> Iterator[str]:
    """A name that nobody else uses; whatever goes by it is removed at the end."""
    skip_if_unsupported()
    made = f"life-{secrets.token_hex(3)}"
    yield made
    remove(made)


def left(name: str) -> list[str]:
    """Everything on this machine that belongs to the cluster."""
    folder = paths.state_dir(name)
    found = [f"namespace {netns}" for netns in network.namespaces_of(name)]
    found += [f"group {group}" for group in cgroups.left_by(name, paths.machine_mark())]
    found += [f"mount {point}" for point in mounts_below(folder, Path("/proc/self/mountinfo").read_text())]
    found += [f"folder {folder}"] if folder.exists() else []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if process.name != str(os.getpid()) and any(
            f"{folder}/" in word or word.endswith(f"-{name}") for word in words
        ):
            found.append(f"process {process.name} {' '.join(words)[:120]}")
    return found


def outside() -> set[str]:
    """Folders in which Kubernetes' programs would leave things if they were let."""
    roots = (
        "/var/lib",
        "/var/log",
        "/opt",
        "/run",
        "/usr/libexec",
        "/etc/cni",
        "/etc/kubernetes",
        "/var/run",
    )
    return {str(entry) for root in roots if Path(root).is_dir() for entry in Path(root).iterdir()}


def killed_while(name: str, ready: bool) -> None:
    """Start a cluster in a process of its own, and kill that without a warning: once it is up, or half way."""
    with subprocess.Popen(
        [sys.executable, "-c", START, name], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True
    ) as starter:
        assert starter.stdout is not None
        if ready:
            assert starter.stdout.readline() == "up\n"
        else:
            wait_for(
                "the node is being started",
                lambda: load(name) and len(left(name)) > 6,
                60,
                every_seconds=0.02,
            )
        starter.kill()


def test_nothing_is_left_of_a_cluster_that_was_taken_down(name: str) -> None:
    before = outside()
    with Cluster.start(name, nodes=2) as cluster:
        cluster.kubectl("run", "one", "--image=docker.io/local/pause:1", "--image-pull-policy=Never")
        cluster.kubectl("wait", "--for=condition=Ready", "pod/one", "--timeout=60s")
        assert left(name)
    assert left(name) == []
    assert {new for new in outside() - before if "kintsugi" not in new} == set()


def test_two_clusters_know_nothing_of_each_other(name: str) -> None:
    second = f"{name}-b"
    with Cluster.start(name, nodes=1) as one, Cluster.start(second, nodes=1) as other:
        one.kubectl("create", "namespace", "mine")
        assert "mine" in one.kubectl("get", "namespaces", "-o", "name")
        assert "mine" not in other.kubectl("get", "namespaces", "-o", "name")
        assert one.context != other.context
        one.power_off(1)
        assert other.node(1).is_on
        one.down()
        assert left(name) == []
        assert other.ready_nodes() == ["node1"]
    assert left(second) == []


@pytest.mark.parametrize("ready", [True, False], ids=["up", "half-way"])
def test_a_cluster_starts_over_one_whose_owner_was_killed(name: str, ready: bool) -> None:
    killed_while(name, ready)
    ruins = left(name)
    assert ruins
    with Cluster.start(name, nodes=1) as cluster:
        assert cluster.ready_nodes() == ["node1"]
        processes = {ruin for ruin in ruins if ruin.startswith("process")}
        assert processes & set(left(name)) == set()
    assert left(name) == []


def test_ruins_are_swept_away_by_whoever_starts_next(name: str) -> None:
    killed_while(name, ready=True)
    assert name in sweep()
    assert left(name) == []


def test_a_name_that_another_process_uses_is_refused(name: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", START, name], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True
    ) as starter:
        assert starter.stdout is not None
        assert starter.stdout.readline() == "up\n"
        with pytest.raises(RuntimeError, match=f"belongs to process {starter.pid}"):
            Cluster.start(name, nodes=1)
        starter.kill()


def test_ctrl_c_while_it_starts_leaves_nothing(name: str) -> None:
    up = [sys.executable, "-m", "tests.cluster", "up", "--name", name, "--nodes", "1"]
    # A runner in the background hands SIGINT down as ignored; a person's shell does not.
    with subprocess.Popen(["env", "--default-signal=INT", *up], cwd=REPOSITORY) as starter:
        wait_for(
            "the node is being started", lambda: load(name) and len(left(name)) > 6, 60, every_seconds=0.02
        )
        starter.send_signal(signal.SIGINT)
        assert starter.wait(30) == 130
    assert left(name) == []


def test_a_cluster_that_can_not_start_leaves_its_logs_and_nothing_else(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(configs, "containerd", lambda node: "no = [toml")
    monkeypatch.setattr("tests.cluster.cluster.START_SECONDS", 6.0)
    with pytest.raises((TimeoutError, RuntimeError)) as trouble:
        Cluster.start(name, nodes=1)
    assert left(name) == []
    (note,) = trouble.value.__notes__
    kept = Path(note.partition(": ")[2])
    assert "toml" in (kept / "n1/containerd.log").read_text()


def test_the_command_line_starts_shows_and_ends_a_cluster_that_outlives_the_command(name: str) -> None:
    def say(*words: str) -> str:
        command = [sys.executable, "-m", "tests.cluster", *words]
        return subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True, text=True).stdout

    told = say("up", "--name", name, "--nodes", "1", "--gpus", "1")
    shell = f"{told}\nkubectl get nodes -o name"
    nodes = subprocess.run(["bash", "-c", shell], check=True, capture_output=True, text=True).stdout
    assert nodes == "node/node1\n"
    began = time.monotonic()
    assert say("up", "--name", name, "--nodes", "1").splitlines()[0] == told.splitlines()[0]
    assert time.monotonic() - began < 5
    assert f"{name}: 1 of 1 nodes Ready" in say("status")
    say("down", "--name", name)
    assert left(name) == []
    assert name not in say("status")
