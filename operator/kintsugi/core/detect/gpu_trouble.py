"""What DCGM says of faults of a GPU: advice for a person. A pod is moved only by Kubernetes' own word (`device`).

The last Xid stands in DCGM until the driver is loaded again, whoever used the GPU then, so that it convicts nobody.
"""

from typing import Final

from kintsugi.core.finding import Detector, Evidence, Finding, Severity
from kintsugi.core.snapshot import Measured

XIDS: Final = {
    48: "a double-bit error of its memory",
    62: "its micro-controller halted",
    64: "a row of its memory could not be remapped",
    74: "an NVLink error",
    79: "it fell off the bus",
    94: "a contained memory error: the engine that had it must be restarted",
    95: "an uncontained memory error: the GPU must be reset",
    119: "its system processor did not answer",
    120: "an error of its system processor",
    140: "a memory error that was not recovered",
}
"""Xids of hardware (NVIDIA, "XID Errors", docs.nvidia.com/deploy/xid-errors). Others, such as 13, 31, 43 and 45, are
mostly a program's own."""
MOST: Final = 4
"""GPUs of one pod that are told of."""


def gpu_trouble_findings(measured: Measured | None, now: float) -> list[Finding]:
    """The advice on GPUs that report faults. `now` in epoch seconds: nobody says since when."""
    found: list[Finding] = []
    for gpu, field, value in measured.gpu_trouble if measured is not None else ():
        xid = "XID" in field
        what = XIDS.get(int(value)) if xid else "rows of its memory could not be remapped"
        if what is None:
            continue
        reason = "GpuXid" if xid else "GpuRowRemapFailed"
        said = f"Xid {value:.0f}, {what}" if xid else what
        text = f"GPU {gpu} reports {said}: have its node looked after; nothing is done by this alone"
        evidence = (Evidence(field, value, "code" if xid else "count", 1),)
        found.append(Finding(Detector.DEVICE, reason, Severity.ADVICE, text, now, evidence, removable=False))
    return found[:MOST]
