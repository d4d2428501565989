"""Reads the CUDA allocator of a worker process, from a thread of its own, and works out its fragmentation.

The thread goes on while a step hangs, and costs the engine nothing but a look at counters every few seconds.
"""

import logging
import multiprocessing
import os
import sys
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from kintsugi_engine import clock
from kintsugi_engine.compaction import Desk
from kintsugi_engine.telemetry.rankfile import RankFile, folder

_LOG: Final = logging.getLogger("vllm.kintsugi")

PERIOD: Final = 5.0
"""Seconds between two looks."""

FLOOR: Final = 512 << 20
"""Bytes of reusable memory below which a ratio says nothing: one transient tensor of a large step is about as large."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What the allocator of one device says, in bytes."""

    allocated: int
    reserved: int
    inactive_split: int
    """Free pieces of segments that are in use elsewhere: they can serve a smaller request, and nothing else."""


def fragmentation(reading: Reading, baseline: int | None) -> float | None:
    """Inactive split bytes ÷ (reserved - baseline), 0..1.

    `baseline`: bytes allocated right after warm-up (weights, KV pool, graphs), which are never reused. None where it is
    not known, or where what can be reused is below `FLOOR`.
    """
    if baseline is None:
        return None
    reusable = reading.reserved - baseline
    return min(1.0, reading.inactive_split / reusable) if reusable >= FLOOR else None


def read_device(torch: Any) -> Reading | None:
    """The device on which this process has reserved most; None where CUDA is not in use here.

    The current device belongs to a thread, and a new thread's is 0 whatever the worker chose: so all are asked.
    """
    if not torch.cuda.is_available() or not torch.cuda.is_initialized():
        return None
    found = []
    for device in range(torch.cuda.device_count()):
        stats: Mapping[str, int] = torch.cuda.memory_stats(device)
        if "reserved_bytes.all.current" in stats:
            found.append(
                Reading(
                    stats["allocated_bytes.all.current"],
                    stats["reserved_bytes.all.current"],
                    stats.get("inactive_split_bytes.all.current", 0),
                )
            )
    best = max(found, key=lambda reading: reading.reserved, default=None)
    return best if best is not None and best.reserved > 0 else None


class AllocatorWatch:
    """The thread of one worker process. Started once; starting it again changes nothing."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._file: RankFile | None = None
        self._baseline: int | None = None
        self._trusted = True
        self._newest: dict[str, Any] | None = None
        self._engine = ""
        self._stopped = threading.Event()
        self.rank = ""
        self._desk: Desk | None = None

    def start(self) -> None:
        """Begin to look, as soon as this process uses CUDA."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._run, name="kintsugi-allocator", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End the thread, and wait for its end."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()

    def belongs_to(self, instance: str, engine: str, rank: str, trusted: bool) -> None:
        """Say whose worker this is. `trusted`: False in sleep mode, where memory bypasses the allocator's counters."""
        self._file = RankFile(folder(), instance, "allocator", f"{engine}-{rank}")
        self.rank, self._engine, self._trusted = rank, engine, trusted

    def warmed_up(self) -> None:
        """Take what is allocated now as the baseline: called once, just before the first step that serves a request."""
        torch = sys.modules.get("torch")
        reading = read_device(torch) if torch is not None and self._trusted else None
        if reading is not None:
            self._baseline = reading.allocated

    def newest(self) -> dict[str, Any] | None:
        """The newest sample; None where nothing can be measured here."""
        return self._newest

    def look(self, torch: Any) -> dict[str, Any] | None:
        """Measure now; the sample, or None where there is nothing to measure."""
        reading = read_device(torch) if self._trusted else None
        if reading is None:
            return None
        kinds = asdict(reading) | ({} if self._baseline is None else {"baseline": self._baseline})
        level = fragmentation(reading, self._baseline)
        return {"at": clock.wall(), "mono": clock.mono(), "bytes": kinds, "fragmentation": level}

    def _run(self) -> None:
        while not self._stopped.wait(PERIOD):
            torch = sys.modules.get("torch")
            if torch is None:
                continue
            try:
                self._newest = self.look(torch)
                if torch.cuda.is_available() and torch.cuda.is_initialized():
                    self._desk = self._desk or Desk()
                    self._desk.attend(torch, self.rank or str(os.getpid()))
                if self._newest is not None and self._file is not None:
                    self._file.write({**self._newest, "engine": self._engine, "worker": self.rank})
            except (RuntimeError, KeyError, AttributeError, OSError) as error:
                _LOG.error(
                    "Kintsugi telemetry: the CUDA allocator cannot be read (%s): it is not measured any more",
                    error,
                )
                self._newest = None
                return


_watch = AllocatorWatch()
_forks_watched = False


def watch() -> AllocatorWatch:
    """The one of this process."""
    return _watch


def _after_fork() -> None:
    """A forked worker inherits no thread, and nothing that was learned of its parent: begin again there."""
    global _watch
    _watch = AllocatorWatch()
    _watch.start()


def start_in_workers() -> None:
    """Start the thread where this process may be a worker: in a child, and in what is forked from here later on."""
    global _forks_watched
    if multiprocessing.parent_process() is not None:
        _watch.start()
    if not _forks_watched:
        _forks_watched = True
        os.register_at_fork(after_in_child=_after_fork)
