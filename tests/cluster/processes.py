"""Starting processes that outlive us, finding them again, and ending them for certain."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.machine import search_path

_GONE = {"Z", "X", ""}
"""States of a process that has ended. A zombie counts: its parent may take seconds to collect it."""

_children: dict[int, subprocess.Popen[bytes]] = {}
"""Our own children: they must be waited for, and their objects kept until then."""


@dataclass(frozen=True, slots=True)
class Process:
    """A process, told from a later one with the same id by its start (clock ticks since the machine's boot)."""

    pid: int
    started: int

    @property
    def alive(self) -> bool:
        child = _children.get(self.pid)
        if child is not None and child.poll() is not None:
            del _children[self.pid]
        state, started = stat_of(self.pid)
        return state not in _GONE and started == self.started


def stat_of(pid: int) -> tuple[str, int]:
    """State letter and start of process `pid`; ("", 0) if there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return "", 0
    fields = text.rpartition(")")[2].split()
    return fields[0], int(fields[19])


def this_process() -> Process:
    return Process(os.getpid(), stat_of(os.getpid())[1])


def inside(netns: str, argv: Sequence[str]) -> list[str]:
    """The command that runs `argv` in the network namespace `netns`.

    Not `ip netns exec`: that mounts /sys anew and so hides the cgroups.
    """
    return ["nsenter", f"--net=/run/netns/{netns}", *argv]


def spawn(
    argv: Sequence[str], log: Path, *, cwd: Path | None = None, pass_fds: Sequence[int] = ()
) -> Process:
    """Start `argv` in a session of its own, so that Ctrl-C does not reach it; its output goes to the end of `log`."""
    with log.open("ab") as out:
        child = subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            cwd=cwd,
            pass_fds=tuple(pass_fds),
            start_new_session=True,
            env=child_environment(),
        )
    _children[child.pid] = child
    return Process(child.pid, stat_of(child.pid)[1])


def child_environment() -> dict[str, str]:
    """Our environment with a complete PATH and without what would lead a local client through a proxy."""
    clean = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy") and k != "KUBECONFIG"}
    return {**clean, "PATH": search_path()}


def command(argv: Sequence[str], *, stdin: str | None = None) -> str:
    """What `argv` printed. Raises RuntimeError with its error output if it fails."""
    answer = subprocess.run(
        list(argv),
        check=False,
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        capture_output=True,
        text=True,
        env=child_environment(),
    )
    if answer.returncode != 0:
        raise RuntimeError(f"{' '.join(argv)}: {answer.stderr.strip() or f'exit status {answer.returncode}'}")
    return answer.stdout


def end(processes: Iterable[Process], timeout_seconds: float = 10) -> None:
    """Kill the processes and return when all have ended. Raises TimeoutError naming those that have not."""
    left = list(processes)
    for process in left:
        if process.alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
    deadline = time.monotonic() + timeout_seconds
    while left := [process for process in left if process.alive]:
        if time.monotonic() > deadline:
            raise TimeoutError(f"not ended {timeout_seconds} s after SIGKILL: {[p.pid for p in left]}")
        time.sleep(0.01)


class PidFolder:
    """The processes of one cluster by name, kept in a folder so that another command can end them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, name: str, process: Process) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / name).write_text(f"{process.pid} {process.started}\n")

    def get(self, name: str) -> Process | None:
        try:
            pid, started = (self._folder / name).read_text().split()
        except (FileNotFoundError, ValueError):
            return None
        return Process(int(pid), int(started))

    def names(self) -> list[str]:
        return sorted(entry.name for entry in self._folder.iterdir()) if self._folder.is_dir() else []

    def all(self) -> list[Process]:
        return [process for name in self.names() if (process := self.get(name)) is not None]

    def end(self, *names: str) -> None:
        """End the named processes and forget them."""
        end(process for name in names if (process := self.get(name)) is not None)
        for name in names:
            (self._folder / name).unlink(missing_ok=True)
