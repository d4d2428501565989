"""What Kubernetes' own word on the GPUs of one instance means, in words and numbers."""

from collections.abc import Sequence

from kintsugi.core.detect.device import HEALTHY, UNHEALTHY, DeviceState
from kintsugi.core.finding import Detector, Evidence, Finding, Severity
from kintsugi.core.snapshot import Device
from kintsugi.core.times import Times

NOT_REPORTED = "allocatedResourcesStatus of the pods' GPUs (this cluster reports no device health)"
"""What DataFresh says where the kubelet passes nothing on."""


def device_findings(state: DeviceState, node: str, now: float, times: Times) -> list[Finding]:
    """The statement on each GPU that was called unhealthy. `now` in epoch seconds.

    A new pod on the same node may get the same GPU, so the cure begins with another node (`core.ladder`).
    """
    found: list[Finding] = []
    for (resource, name), clock in sorted(state.clocks.items()):
        where = f"{name} ({resource}) on node {node or 'unknown'}"
        evidence = (
            Evidence("seconds called unhealthy", clock.bad, "s", 1),
            Evidence("seconds that count", times.device_unhealthy, "s", 1),
        )

        def told(
            reason: str,
            severity: Severity,
            text: str,
            since: float = clock.since,
            evidence: tuple[Evidence, ...] = evidence,
        ) -> Finding:
            return Finding(Detector.DEVICE, reason, severity, text, since, evidence)

        text = f"the device plugin calls GPU {where} unhealthy, for {clock.bad:.0f} s so far"
        if clock.sick and clock.known:
            found.append(told("DeviceUnhealthy", Severity.SICK, text))
        elif clock.sick:
            text = f"GPU {where} was called unhealthy, and nothing is said of it now"
            found.append(told("DeviceUnknown", Severity.SUSPECT, text))
        else:
            text += f"; it counts from {times.device_unhealthy:.0f} s on"
            found.append(told("DeviceSuspected", Severity.SUSPECT, text))
    return found


def unknown_devices(devices: Sequence[Device] | None) -> tuple[str, ...]:
    """What is missing for a judgement on the GPUs, for DataFresh; () where all is said."""
    if devices is None:
        return (NOT_REPORTED,)
    unsaid = sorted({device.resource for device in devices if device.health not in (HEALTHY, UNHEALTHY)})
    return tuple(f"health of {resource} (its device plugin says Unknown)" for resource in unsaid)
