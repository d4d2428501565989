"""`device unhealthy` (S55): only Kubernetes' own word counts, for its whole time, and silence says nothing."""

import pytest

from kintsugi.core.detect.device import DeviceState, see_devices
from kintsugi.core.detect.device_findings import device_findings, unknown_devices
from kintsugi.core.finding import Detector, InstanceVerdict, Severity, Verdict
from kintsugi.core.snapshot import Device
from kintsugi.core.times import Times
from tests.unit.core.staging import Engine, Rank, Stage, deployment, only

TIMES = Times()
GPU = "nvidia.com/gpu"


def devices(health: str | None, count: int = 2) -> tuple[Device, ...] | None:
    """`count` GPUs of which the first is as said; None = not reported."""
    if health is None:
        return None
    others = tuple(Device(GPU, f"GPU-{n}", "Healthy") for n in range(1, count))
    return (Device(GPU, "GPU-0", health), *others)


def play(*spans: tuple[str | None, float], step: float = 5.0) -> DeviceState:
    """Each health for so many seconds, looked at every `step` seconds."""
    state, mono = DeviceState(), 0.0
    for health, seconds in spans:
        until = mono + seconds
        while mono < until:
            mono += step
            see_devices(state, devices(health), mono, mono, TIMES)
    return state


@pytest.mark.parametrize(
    ("spans", "sick"),
    [
        ([("Unhealthy", 60)], False),
        ([("Unhealthy", 65)], True),
        ([("Unhealthy", 20), ("Healthy", 20), ("Unhealthy", 50)], False),
        ([("Unhealthy", 40), ("Unknown", 40), ("Unhealthy", 40)], False),
        ([("Unhealthy", 40), (None, 40), ("Unhealthy", 40)], False),
        ([("Unknown", 3600)], False),
        ([(None, 3600)], False),
        ([("Unhealthy", 65), ("Unknown", 3600)], True),
        ([("Unhealthy", 65), (None, 3600)], True),
        ([("Unhealthy", 65), ("Healthy", 50)], True),
        ([("Unhealthy", 65), ("Healthy", 60)], False),
        ([("Unhealthy", 65), ("Healthy", 50), ("Unhealthy", 5), ("Healthy", 50)], True),
    ],
)
def test_its_time_must_be_over_without_a_gap(spans: list[tuple[str | None, float]], sick: bool) -> None:
    assert play(*spans).sick is sick


def test_a_gap_in_our_own_sight_starts_the_clock_again() -> None:
    assert not play(("Unhealthy", 200), step=50.0).sick


def test_only_recovery_for_the_whole_time_clears() -> None:
    assert not play(("Unhealthy", 65), ("Healthy", 50)).cleared
    assert play(("Unhealthy", 65), ("Healthy", 60)).cleared
    assert not play(("Unhealthy", 65), (None, 600)).cleared
    assert not play(("Unhealthy", 65), ("Healthy", 60), ("Unhealthy", 65)).cleared


@pytest.mark.parametrize(
    ("spans", "reason", "severity"),
    [
        ([("Unhealthy", 30)], "DeviceSuspected", Severity.SUSPECT),
        ([("Unhealthy", 100)], "DeviceUnhealthy", Severity.SICK),
        ([("Unhealthy", 100), ("Unknown", 10)], "DeviceUnknown", Severity.SUSPECT),
    ],
)
def test_the_finding_names_the_gpu_and_the_node(
    spans: list[tuple[str | None, float]], reason: str, severity: Severity
) -> None:
    (found,) = device_findings(play(*spans), "node1", 1000.0, TIMES)
    assert (found.detector, found.reason, found.severity) == (Detector.DEVICE, reason, severity)
    assert "GPU-0 (nvidia.com/gpu) on node node1" in found.message
    assert found.evidence


def test_what_nobody_says_is_named() -> None:
    assert unknown_devices(()) == ()
    assert unknown_devices(devices("Healthy")) == ()
    assert unknown_devices(devices("Unknown")) == (f"health of {GPU} (its device plugin says Unknown)",)
    assert "no device health" in unknown_devices(None)[0]


def judged(stage: Stage, engine: Engine, health: str | None) -> InstanceVerdict:
    engine.ranks[0].steps += 100
    return only(stage.look({"pod-a": engine.page()}, pod_a={"devices": devices(health)}))


def test_the_users_seconds_count_from_the_first_look_that_saw_it() -> None:
    stage = Stage(deployment({"triggers": {"deviceHealth": {"forSeconds": 120}}}))
    engine = Engine([Rank(running=2)])
    for _ in range(24):
        verdict = judged(stage, engine, "Unhealthy")
        assert verdict.verdict is Verdict.SUSPECT
    verdict = judged(stage, engine, "Unhealthy")
    assert (verdict.verdict, verdict.reason) == (Verdict.SICK, "DeviceUnhealthy")
    for _ in range(24):
        verdict = judged(stage, engine, "Healthy")
    assert verdict.verdict is not Verdict.SICK
    assert Detector.DEVICE in verdict.cleared


def test_a_new_process_starts_with_no_time_on_its_clock() -> None:
    stage, engine = Stage(deployment()), Engine([Rank(running=2)])
    for _ in range(20):
        judged(stage, engine, "Unhealthy")
    engine.ranks[0].steps = 0
    assert judged(stage, engine, "Unhealthy").verdict is not Verdict.SICK
