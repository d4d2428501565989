"""The machine's own time: the only place of the engine side's telemetry that reads it."""

import time


def wall() -> float:
    """Epoch seconds: for what other processes read."""
    return time.time()


def mono() -> float:
    """Monotonic seconds: for what this process compares."""
    return time.monotonic()
