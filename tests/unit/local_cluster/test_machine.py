"""Processes, control groups, mounts and memory of the machine that holds a cluster."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.cluster import cgroups, machine
from tests.cluster.gpu_plugin import devices
from tests.cluster.processes import PidFolder, Process, command, end, inside, spawn, stat_of, this_process
from tests.cluster.storage import available_memory, mounts_below

SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]


def test_a_process_is_ended_and_waited_for(tmp_path: Path) -> None:
    process = spawn(SLEEP, tmp_path / "log")
    assert process.alive
    end([process])
    assert not process.alive


def test_a_process_that_ended_by_itself_is_not_alive_though_nobody_has_collected_it(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    process = Process(child.pid, stat_of(child.pid)[1])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert not process.alive
    child.wait()


def test_another_process_with_the_same_id_is_left_alone(tmp_path: Path) -> None:
    process = spawn(SLEEP, tmp_path / "log")
    end([Process(process.pid, process.started - 1)])
    assert process.alive
    end([process])


def test_a_started_process_does_not_hear_our_ctrl_c(tmp_path: Path) -> None:
    process = spawn(SLEEP, tmp_path / "log")
    assert os.getpgid(process.pid) != os.getpgrp()
    end([process])


def test_what_a_process_says_is_kept(tmp_path: Path) -> None:
    process = spawn([sys.executable, "-c", "print('here')"], tmp_path / "log")
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert not process.alive
    assert (tmp_path / "log").read_text() == "here\n"


def test_processes_are_found_again_by_name_and_forgotten_once_ended(tmp_path: Path) -> None:
    pids = PidFolder(tmp_path / "pids")
    pids.put("one", spawn(SLEEP, tmp_path / "log"))
    again = PidFolder(tmp_path / "pids")
    found = again.get("one")
    assert found is not None
    assert found.alive
    pids.end("one", "never-started")
    assert again.names() == []
    assert not found.alive


def test_a_record_that_was_cut_off_while_it_was_written_counts_as_none(tmp_path: Path) -> None:
    (tmp_path / "one").write_text("12")
    assert PidFolder(tmp_path).all() == []


def test_we_are_alive() -> None:
    assert this_process().alive


def test_a_failing_command_is_told_with_its_own_words() -> None:
    with pytest.raises(RuntimeError, match="no such luck"):
        command(["sh", "-c", "echo no such luck >&2; exit 3"])
    assert command(["cat"], stdin="x") == "x"


def test_namespaces_are_entered_without_hiding_the_control_groups() -> None:
    assert inside("kintsugi-a", ["true"]) == ["nsenter", "--net=/run/netns/kintsugi-a", "true"]


@pytest.fixture
def v1(tmp_path: Path) -> Path:
    for controller in ("cpuset", "memory", "unified"):
        (tmp_path / controller).mkdir()
    (tmp_path / "cpu").symlink_to("memory")
    (tmp_path / "cpuset/cpuset.cpus").write_text("0-1\n")
    (tmp_path / "cpuset/cpuset.mems").write_text("0\n")
    return tmp_path


def test_on_cgroup_v1_a_group_is_made_in_each_controller_and_cpusets_lists_are_filled(v1: Path) -> None:
    cgroups.create("kintsugi_a_f00_node1", v1)
    assert (v1 / "memory/kintsugi_a_f00_node1").is_dir()
    assert (v1 / "cpuset/kintsugi_a_f00_node1/cpuset.cpus").read_text() == "0-1\n"
    assert not (v1 / "unified/kintsugi_a_f00_node1").exists()


def test_on_cgroup_v2_all_controllers_are_handed_down(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpu memory\n")
    (tmp_path / "cgroup.subtree_control").write_text("")
    cgroups.create("kintsugi_a_f00_node1", tmp_path)
    assert (tmp_path / "cgroup.subtree_control").read_text() == "+cpu +memory"
    assert (tmp_path / "kintsugi_a_f00_node1").is_dir()


def test_a_nodes_pods_go_before_what_else_keeps_the_machine_busy(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpu\n")
    group = tmp_path / "kintsugi_a_f00_node1"
    group.mkdir()
    (group / "cpu.weight").write_text("100\n")  # as the kernel lays it there
    cgroups.create(group.name, tmp_path)
    assert (group / "cpu.weight").read_text() == "400"


def test_groups_of_all_runs_are_found_also_in_the_hierarchy_without_controllers(v1: Path) -> None:
    for place in (
        "memory/kintsugi_a_f00_node1",
        "unified/kintsugi_a_f01_node1",
        "memory/kintsugi_ab_f00_node1",
        "memory/kintsugi_a_e00_node1",
    ):
        (v1 / place).mkdir()
    found = {str(group.relative_to(v1)) for group in cgroups.left_by("a", "f", v1)}
    assert found == {"memory/kintsugi_a_f00_node1", "unified/kintsugi_a_f01_node1"}


def test_groups_go_with_all_below_them_and_a_busy_one_is_reported(v1: Path) -> None:
    free, busy = v1 / "memory/free", v1 / "memory/busy"
    (free / "pods/pod1").mkdir(parents=True)
    busy.mkdir()
    (busy / "held").write_text("a file stands for a process: the folder can't be removed")
    assert cgroups.remove([free, busy, v1 / "memory/gone"], timeout_seconds=0.05) == [busy]
    assert not free.exists()


def test_mounts_of_a_cluster_are_told_from_those_of_its_neighbours() -> None:
    line = "36 35 0:32 / {} rw,relatime - tmpfs kintsugi rw\n"
    text = "".join(line.format(point) for point in ("/run/a", "/run/ab", "/run/a/n1", "/"))
    assert mounts_below(Path("/run/a"), text) == ["/run/a", "/run/a/n1"]


def test_free_memory_is_read_and_an_unknown_amount_is_none() -> None:
    assert available_memory("MemTotal: 9 kB\nMemAvailable:   2048 kB\n") == 2 << 20
    assert available_memory("MemTotal: 9 kB\n") == 0


def test_what_is_missing_is_told_by_the_package_that_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "PACKAGES", {"sh": "dash", "/no/such/file": "b", "no-such-program": "a"})
    assert machine.missing_packages() == ["a", "b"]


def test_a_user_without_root_is_told_what_else_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    reason = machine.unsupported_because()
    assert reason is not None
    assert "root" in reason
    assert "KUBECONFIG" in reason
    with pytest.raises(machine.Unsupported, match="root"):
        machine.require()


def test_a_lock_is_held_against_other_processes(tmp_path: Path) -> None:
    code = "import fcntl,sys; fcntl.flock(open(sys.argv[1], 'w'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    with machine.exclusive(tmp_path / "deep/lock"):
        taken = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / "deep/lock")], check=False, capture_output=True
        )
    free = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "deep/lock")], check=False, capture_output=True
    )
    assert (taken.returncode != 0, free.returncode) == (True, 0)


def test_a_lock_that_is_not_to_stay_still_lets_one_in_at_a_time(tmp_path: Path) -> None:
    lock, inside, most = tmp_path / "lock", [0], [0]

    def enter() -> None:
        for _ in range(50):
            with machine.exclusive(lock, leave=False):
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                time.sleep(0.0005)
                inside[0] -= 1

    threads = [threading.Thread(target=enter) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1]
    assert not lock.exists()


def test_devices_whose_numbers_are_listed_are_unhealthy() -> None:
    assert devices(3, "GPU-node1-", "1\n") == [
        ("GPU-node1-0", "Healthy"),
        ("GPU-node1-1", "Unhealthy"),
        ("GPU-node1-2", "Healthy"),
    ]
