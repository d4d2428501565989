"""What DCGM says of GPUs: their use against a band, and faults. Advice, whatever it says."""

from typing import Any

import pytest

from kintsugi.core.detect.gpu_trouble import gpu_trouble_findings
from kintsugi.core.finding import Detector, Finding, InstanceVerdict, Severity, Verdict
from kintsugi.core.snapshot import Measured
from tests.unit.core.staging import Engine, Rank, Stage, deployment, only


class Watched:
    """One serving instance whose GPUs a Prometheus server measures once a minute."""

    def __init__(self, **trigger: int) -> None:
        healing = {"triggers": {"gpuUtilization": trigger}} if trigger else None
        self.stage = Stage(deployment(healing))
        self.engine = Engine([Rank(running=2, kv=0.3)])
        self.measured: Measured | None = None

    def run(self, minutes: float, percent: float | None, gpus: int = 2) -> InstanceVerdict:
        """`percent` None: the server says nothing any more."""
        for number in range(round(minutes * 12)):
            rank = self.engine.ranks[0]
            rank.steps += 100
            rank.generation += 200
            if percent is not None and number % 12 == 0:
                self.measured = Measured(self.stage.mono, gpu_use=(percent,) * gpus)
            changes: dict[str, Any] = {"measured": None if percent is None else self.measured}
            verdict = only(self.stage.look({"pod-a": self.engine.page()}, pod_a=changes))
        return verdict


def use(verdict: InstanceVerdict) -> list[Finding]:
    return [each for each in verdict.findings if each.detector is Detector.GPU_USE]


@pytest.mark.parametrize(
    ("percent", "reason"),
    [(95.0, "GpuOverused"), (40.0, "GpuUnderused"), (0.0, "GpuUnderused")],
)
def test_use_outside_the_band_is_advice(percent: float, reason: str) -> None:
    watched = Watched()
    assert not use(watched.run(5, percent)), "less than a window"
    verdict = watched.run(6, percent)
    (found,) = use(verdict)
    assert (found.reason, found.severity, found.removable) == (reason, Severity.ADVICE, False)
    assert found.evidence[0].value == pytest.approx(percent)
    assert found.evidence[0].samples >= 6
    assert verdict.sick() is None
    assert verdict.verdict is not Verdict.SUSPECT
    assert verdict.signals["gpu_utilization_percent"] == pytest.approx(percent)


@pytest.mark.parametrize("percent", [70.0, 80.0, 90.0])
def test_use_within_the_band_is_well_borders_included(percent: float) -> None:
    assert not use(Watched().run(12, percent))


def test_the_band_is_the_users() -> None:
    assert not use(Watched(minPercent=20, maxPercent=99).run(12, 95.0))
    assert use(Watched(minPercent=96, maxPercent=99).run(12, 95.0))


def test_the_mean_counts_and_not_a_peak() -> None:
    watched = Watched()
    watched.run(9, 80.0)
    assert not use(watched.run(1, 100.0))


def test_a_server_that_falls_silent_leaves_nothing_known() -> None:
    watched = Watched()
    assert use(watched.run(12, 95.0))
    verdict = watched.run(4, None)
    assert not use(verdict)
    assert "gpu_utilization_percent" not in verdict.signals


def test_the_same_word_again_and_again_is_one_sample() -> None:
    watched = Watched()
    watched.run(1, 95.0)
    said = watched.measured
    for _ in range(60):
        verdict = only(watched.stage.look({"pod-a": watched.engine.page()}, pod_a={"measured": said}))
    assert not use(verdict)


def trouble(field: str, value: float) -> list[Finding]:
    return gpu_trouble_findings(Measured(0.0, gpu_trouble=(("GPU-1", field, value),)), 1000.0)


@pytest.mark.parametrize("xid", [48, 79, 94, 95, 119])
@pytest.mark.parametrize("field", ["DCGM_FI_DEV_XID_ERRORS", "DCGM_FI_DEV_XID_ERROR"])
def test_an_xid_of_hardware_is_told_and_never_acted_on(xid: int, field: str) -> None:
    (found,) = trouble(field, float(xid))
    assert (found.detector, found.reason, found.severity) == (Detector.DEVICE, "GpuXid", Severity.ADVICE)
    assert f"Xid {xid}" in found.message
    assert not found.removable


@pytest.mark.parametrize("xid", [0, 13, 31, 43, 45, 99999])
def test_an_xid_that_a_program_causes_is_not_told(xid: int) -> None:
    assert not trouble("DCGM_FI_DEV_XID_ERRORS", float(xid))


def test_rows_that_could_not_be_remapped_are_told() -> None:
    (found,) = trouble("DCGM_FI_DEV_ROW_REMAP_FAILURE", 1.0)
    assert found.reason == "GpuRowRemapFailed"


def test_an_old_xid_makes_no_instance_sick() -> None:
    watched = Watched()
    measured = Measured(0.0, gpu_trouble=(("GPU-1", "DCGM_FI_DEV_XID_ERRORS", 79.0),))
    for _ in range(200):
        watched.engine.ranks[0].steps += 100
        watched.engine.ranks[0].generation += 200
        verdict = only(watched.stage.look({"pod-a": watched.engine.page()}, pod_a={"measured": measured}))
    assert verdict.verdict is Verdict.HEALTHY
    assert [each.reason for each in verdict.findings] == ["GpuXid"]
