"""Runs the suites of `suites.toml`, all of them whatever fails, and prints what each took of its share, and last of all
what the failed ones said of it.

Exit code 0 only if every suite passed in at most twice its share. Standard library only: it runs before `make setup`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent

GRACE = 60.0
"""Seconds that a suite told to end gets, for taking its cluster down, before it is killed."""
LAST_WORDS = 3.0
"""Seconds for what an ended suite has yet to say; what it left running may hold its end of the pipe for ever."""
REASONS = (b"E   ", b"FAILED", b"ERROR", b"make: ***")
"""How a line begins that says why: those of pytest, of our own suites and of make."""
MOST_REASONS, MOST_BYTES = 30, 300


@dataclass(frozen=True)
class Suite:
    """One command, and the seconds that are its share."""

    name: str
    command: str
    share: float
    beside: str = ""
    """Runs in the background until the suite of this name is due; '' runs it in its turn."""

    @property
    def limit(self) -> float:
        return 2 * self.share


@dataclass(frozen=True)
class Result:
    """How one suite ended: exit code (None: stopped at its limit) and seconds."""

    suite: Suite
    code: int | None
    seconds: float
    reasons: tuple[str, ...] = ()
    """Its last lines that say why something failed."""

    @property
    def verdict(self) -> str:
        if self.code is None or self.seconds > self.suite.limit:
            return "TOO SLOW"
        return "ok" if self.code == 0 else f"FAILED ({self.code})"


class Started:
    """A running suite; what it prints is kept in `output` where it runs in the background, else shown at once."""

    def __init__(self, suite: Suite, output: IO[bytes] | None) -> None:
        self.suite = suite
        self._output = output
        self._reasons: deque[bytes] = deque(maxlen=MOST_REASONS)
        self._shown = threading.Lock()
        self._over = False
        self._began = time.monotonic()
        self._ended: float | None = None
        self._process = subprocess.Popen(
            # Told to end by SIGINT, which a runner started in the background would hand down as ignored.
            ["env", "--default-signal=INT", "bash", "-c", suite.command],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        shown = sys.stdout.buffer if self._output is None else self._output
        with self._process.stdout as lines:
            for line in lines:
                with self._shown:
                    if self._over:  # what the suite left running still talks
                        continue
                    shown.write(line)
                    shown.flush()
                if line.startswith(REASONS):
                    self._reasons.append(line.rstrip()[:MOST_BYTES])

    def _watch(self) -> None:
        self._process.wait()
        self._ended = time.monotonic()

    def finish(self) -> Result:
        """Wait for its end, which comes at its limit if not before, and show what was kept back."""
        self._watcher.join(max(0.0, self._began + self.suite.limit - time.monotonic()))
        in_time = self._ended is not None
        if not in_time:
            self.stop()
        self._reader.join(LAST_WORDS)
        with self._shown:
            self._over = True
            if self._output is not None:
                self._output.seek(0)
                sys.stdout.buffer.write(self._output.read())
                sys.stdout.flush()
        ended = time.monotonic() if self._ended is None else self._ended
        code = self._process.returncode if in_time else None
        reasons = tuple(line.decode(errors="replace") for line in self._reasons)
        return Result(self.suite, code, ended - self._began, reasons)

    def stop(self) -> None:
        """Interrupt it as Ctrl-C would, so that it cleans up; kill what is left after `GRACE`."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            if self._ended is not None:
                return
            os.killpg(self._process.pid, number)
            self._watcher.join(GRACE)


def read_suites(document: Mapping[str, Any]) -> list[Suite]:
    """The suites of a parsed `suites.toml`. Raises ValueError where the shares exceed the budget."""
    suites = [
        Suite(entry["name"], entry["command"], 60.0 * entry["minutes"], entry.get("beside", ""))
        for entry in document["suite"]
    ]
    promised = sum(suite.share for suite in suites) / 60
    if promised > document["budget"]["minutes"]:
        raise ValueError(f"the shares add up to {promised:g} minutes of {document['budget']['minutes']}")
    return suites


def run(suites: Sequence[Suite]) -> list[Result]:
    """Run each suite, background ones beside the others; results in the order of their ends."""
    results: list[Result] = []
    running: list[Started] = []
    with contextlib.ExitStack() as stack:
        stack.callback(_stop_all, running)
        for suite in suites:
            for started in [one for one in running if one.suite.beside == suite.name]:
                print(f"\n=== {started.suite.name}: waiting for its end", flush=True)
                results.append(started.finish())
                running.remove(started)
            print(f"\n=== {suite.name}: {suite.command}", flush=True)
            output = stack.enter_context(tempfile.TemporaryFile()) if suite.beside else None
            running.append(Started(suite, output))
            if suite.beside:
                print(f"    in the background until {suite.beside}", flush=True)
            else:
                results.append(running[-1].finish())
                running.pop()
        while running:
            results.append(running[-1].finish())
            running.pop()
    return results


def _stop_all(running: Sequence[Started]) -> None:
    for started in running:
        started.stop()


def table(results: Sequence[Result]) -> str:
    """One line a suite: time, share, verdict."""
    lines = [f"{'suite':<14}{'time':>9}{'share':>9}{'of it':>8}  verdict"]
    for result in results:
        part = f"{result.seconds / result.suite.share:.0%}"
        lines.append(
            f"{result.suite.name:<14}{result.seconds:>7.0f} s{result.suite.share:>7.0f} s{part:>8}  {result.verdict}"
        )
    return "\n".join(lines)


def reasons(results: Sequence[Result]) -> str:
    """What the suites that failed said of it, each under its name; '' where none did."""
    return "".join(
        f"\n--- {result.suite.name}: {result.verdict}\n" + "".join(f"{line}\n" for line in result.reasons)
        for result in results
        if result.verdict != "ok"
    )


def main() -> int:
    with open(HERE / "suites.toml", "rb") as file:
        suites = read_suites(tomllib.load(file))
    # SIGINT too: started with it ignored, every suite would inherit that, and could not be interrupted.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    results = run(suites)
    print(reasons(results) + f"\n{table(results)}")
    good = sum(result.verdict == "ok" for result in results)
    print(f"suites: {good} passed, {len(results) - good} failed", flush=True)
    return 0 if good == len(results) else 1


if __name__ == "__main__":
    sys.exit(main())
