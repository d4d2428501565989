"""Values to decide about, made from a few words: specs, findings, verdicts."""

from collections.abc import Mapping
from typing import Any

from kintsugi.core.finding import Detector, Evidence, Finding, InstanceVerdict, Severity, Verdict
from kintsugi.core.times import Times

START = 1_800_000_000.0
"""Epoch seconds at which every test begins; whole, as Kubernetes writes times."""
MODEL = {"id": "deepseek-ai/DeepSeek-V4-Flash-0731"}


def spec(replicas: int = 4, **more: Any) -> dict[str, Any]:
    """One pool `main` of one-GPU instances, as a user writes it; `more` lies over it."""
    return {
        "model": MODEL,
        "hardware": {"gpusPerInstance": 1},
        "pools": [{"name": "main", "replicas": replicas}],
    } | more


def pools(**sizes: int) -> list[dict[str, Any]]:
    """Several pools by name and replicas."""
    return [{"name": name, "replicas": size} for name, size in sizes.items()]


def finding(
    detector: Detector, since: float, now: float, times: Times, message: str = "", **more: Any
) -> Finding:
    """The finding that the judge would give of a symptom that began at `since`."""
    lasted = now - since
    values: dict[str, Any] = {
        "detector": detector,
        "reason": detector.name.title(),
        "severity": Severity.SICK,
        "message": message or f"{detector.value} for {lasted:.0f} s",
        "since": since,
        "evidence": (Evidence("seconds", lasted, "s", max(1, int(lasted // 5))),),
    }
    if detector is Detector.STALLED:
        values |= {
            "severity": Severity.SICK if lasted >= times.stall_withdraw else Severity.SUSPECT,
            "removable": lasted >= times.stall_remove,
            "serves_nothing": lasted >= times.stall_withdraw,
            "silent_seconds": lasted,
        }
    if detector is Detector.DEAD:
        values |= {"serves_nothing": True, "silent_seconds": lasted}
    return Finding(**(values | more))


def verdict(
    uid: str,
    *findings: Finding,
    name: str = "",
    pool: str = "main",
    calm: Verdict = Verdict.HEALTHY,
    **more: Any,
) -> InstanceVerdict:
    """The verdict that follows from `findings`; `calm` where none of them weighs."""
    worst = max((f.severity for f in findings), default=Severity.INFO)
    said = {Severity.SICK: Verdict.SICK, Severity.SUSPECT: Verdict.SUSPECT}.get(worst, calm)
    values: Mapping[str, Any] = {"running": 0.0} | more
    ordered = tuple(sorted(findings, key=lambda f: -f.severity))
    reason = ordered[0].reason if ordered else said.value
    return InstanceVerdict(uid, name or uid, pool, said, reason, "", findings=ordered, **values)
