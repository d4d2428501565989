"""`device unhealthy`: Kubernetes says that a GPU of the pod is sick (design §5).

The word is the device plugin's, passed on in the pod's `allocatedResourcesStatus` (Kubernetes 1.36: seen 2 s after the
plugin said so). `Unknown` (the plugin itself died) and silence (an older cluster) say nothing either way.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from kintsugi.core.snapshot import Device
from kintsugi.core.times import Times

HEALTHY: Final = "Healthy"
UNHEALTHY: Final = "Unhealthy"


@dataclass(slots=True)
class DeviceClock:
    """One GPU of one process. Seconds on the monotonic clock."""

    bad: float = 0.0
    """For how long it has been called unhealthy, gaps in our own sight not counted."""
    good: float = 0.0
    """For how long it has been called healthy again."""
    since: float = 0.0
    """Epoch seconds of when that began, for people."""
    sick: bool = False
    known: bool = True
    """The newest word on it was Healthy or Unhealthy."""


@dataclass(slots=True)
class DeviceState:
    """The GPUs of one process that were called unhealthy, by resource and id."""

    clocks: dict[tuple[str, str], DeviceClock] = field(default_factory=dict)
    seen_at: float | None = None
    cleared: bool = False
    """One was sick, and all have been called healthy again for the whole time."""

    @property
    def sick(self) -> bool:
        return any(clock.sick for clock in self.clocks.values())

    def forget(self) -> None:
        """There is a gap in our own sight: every clock starts again. A verdict stands until it is refuted."""
        self.clocks = {key: clock for key, clock in self.clocks.items() if clock.sick}


def see_devices(
    state: DeviceState, devices: Sequence[Device] | None, mono: float, now: float, times: Times
) -> None:
    """Take in one pass's look at the pod. `devices` None = nothing is reported; `now` in epoch seconds, for people."""
    gap = None if state.seen_at is None else mono - state.seen_at
    state.seen_at = mono
    if not state.clocks and not (devices and UNHEALTHY in [device.health for device in devices]):
        return
    if gap is None or gap > times.readable_gap:
        state.forget()
        gap = 0.0
    said = {(device.resource, device.id): device.health for device in devices or ()}
    was_sick = state.sick
    for key, clock in state.clocks.items():
        _move(clock, said.get(key), gap, times)
    state.clocks = {
        key: clock for key, clock in state.clocks.items() if clock.sick or said.get(key) == UNHEALTHY
    }
    for key, health in said.items():
        if health == UNHEALTHY and key not in state.clocks:
            state.clocks[key] = DeviceClock(since=now)
    state.cleared = (state.cleared or was_sick) and not state.sick


def _move(clock: DeviceClock, health: str | None, seconds: float, times: Times) -> None:
    clock.known = health in (HEALTHY, UNHEALTHY)
    clock.good = clock.good + seconds if health == HEALTHY else 0.0
    if health == UNHEALTHY:
        clock.bad += seconds
    clock.sick = clock.sick or clock.bad >= times.device_unhealthy
    if clock.good >= times.device_unhealthy:
        clock.sick, clock.bad = False, 0.0
