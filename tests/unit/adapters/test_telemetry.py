"""The operator's own metrics, as Prometheus would read them."""

from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kintsugi.adapters.telemetry import FLEET_GAUGES, Telemetry, table
from kintsugi.api.condition import Condition
from kintsugi.api.status import (
    DeploymentStatus,
    InstanceStatus,
    PoolStatus,
    RecentRemediation,
    RemediationsStatus,
    WithheldAction,
)
from kintsugi.core.finding import Detector, Finding, InstanceVerdict, Severity, Verdict
from kintsugi.core.judged import Judged
from kintsugi.core.plan import Evict, Happening, Plan, Shadow, Withdraw
from kintsugi.core.snapshot import Key, Snapshot
from tests.unit.core import staging

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def snapshot() -> Snapshot:
    return staging.snapshot([], 10.0, staging.deployment())


def judged() -> Judged:
    finding = Finding(Detector.STALLED, "Stalled", Severity.SICK, "no step for 60 s", since=0.0)
    return Judged(
        {
            "u1": InstanceVerdict("u1", "chat-short-a", "short", Verdict.SICK, "Stalled", "", (finding,)),
            "u2": InstanceVerdict(
                "u2", "chat-short-b", "short", Verdict.HEALTHY, "Progressing", "", signals={"running": 3.0}
            ),
        }
    )


def plan() -> Plan:
    ended = RecentRemediation(
        id="chat-1",
        pool="short",
        lineage="u0",
        trigger="stall",
        remedy="Recreate",
        outcome="Cured",
        started_at="2026-01-01T00:00:00Z",
    )
    status = DeploymentStatus(
        pools=(PoolStatus(name="short", replicas=2, ready=1),),
        conditions=(
            Condition(
                type="HealingAllowed",
                status="False",
                reason="Storm",
                message="",
                last_transition_time="2026-01-01T00:00:00Z",
            ),
        ),
        remediations=RemediationsStatus(
            in_flight=1,
            recent=(ended,),
            withheld=(
                WithheldAction(instance="chat-short-a", gate="storm"),
                WithheldAction(instance="b", gate="storm"),
            ),
        ),
    )
    return Plan(
        status,
        actions=(Withdraw("chat-short-a", "u1", "a-1"), Evict("chat-short-a", "u1", "a-1", None)),
        happenings=(Happening("Withdrawn", "…"),),
    )


def read(telemetry: Telemetry) -> Samples:
    families = text_string_to_metric_families(telemetry.page().decode())
    return {(s.name, frozenset(s.labels.items())): s.value for family in families for s in family.samples}


def value(samples: Samples, name: str, **labels: str) -> float | None:
    return samples.get((name, frozenset(labels.items())))


@pytest.fixture
def telemetry() -> Telemetry:
    made = Telemetry(mono=lambda: 100.0)
    made.note(snapshot(), judged(), plan())
    return made


def test_gauges_are_those_of_the_latest_pass(telemetry: Telemetry) -> None:
    got = read(telemetry)
    fleet = str(snapshot().key)
    assert value(got, "kintsugi_instances", fleet=fleet, pool="short", verdict="Sick") == 1
    assert value(got, "kintsugi_instances", fleet=fleet, pool="short", verdict="Healthy") == 1
    assert value(got, "kintsugi_instances", fleet=fleet, pool="short", verdict="Unknown") == 0
    assert value(got, "kintsugi_pool_replicas", fleet=fleet, pool="short") == 2
    assert value(got, "kintsugi_pool_ready", fleet=fleet, pool="short") == 1
    assert value(got, "kintsugi_findings", fleet=fleet, rule="stall", reason="Stalled", severity="Sick") == 1
    assert value(got, "kintsugi_remediations_in_flight", fleet=fleet) == 1
    assert value(got, "kintsugi_actions_withheld", fleet=fleet, gate="storm") == 2
    assert value(got, "kintsugi_condition", fleet=fleet, type="HealingAllowed", reason="Storm") == 0
    signal = {"fleet": fleet, "pool": "short", "signal": "running"}
    assert value(got, "kintsugi_instance_signal", instance="chat-short-b", **signal) == 3
    assert value(got, "kintsugi_instance_signal", instance="chat-short-a", **signal) is None


def test_a_deleted_fleet_leaves_no_series(telemetry: Telemetry) -> None:
    telemetry.forget(snapshot().key)
    telemetry.forget(Key("never", "seen"))
    assert not [labels for _, labels in read(telemetry) if any(name == "fleet" for name, _ in labels)]


def test_actions_events_and_ends_are_counted_once(telemetry: Telemetry) -> None:
    after = plan()
    seen = snapshot()
    seen = replace(seen, deployment=seen.deployment.model_copy(update={"status": after.status}))
    telemetry.note(seen, judged(), replace(after, actions=(), happenings=()))
    got = read(telemetry)
    assert value(got, "kintsugi_actions_total", action="Withdraw") == 1
    assert value(got, "kintsugi_actions_total", action="Evict") == 1
    assert value(got, "kintsugi_events_total", reason="Withdrawn") == 1
    ends = {"trigger": "stall", "remedy": "Recreate", "outcome": "Cured"}
    assert value(got, "kintsugi_remediations_total", **ends) == 1


def test_passes_and_calls_are_counted_with_their_durations(telemetry: Telemetry) -> None:
    telemetry.passed(Key("llm", "chat"), "ok", 0.02)
    telemetry.passed(Key("llm", "chat"), "conflict", 0.02)
    telemetry.called("patch", "pods", "ok", 0.004)
    got = read(telemetry)
    assert value(got, "kintsugi_passes_total", result="ok") == 1
    assert value(got, "kintsugi_pass_duration_seconds_count") == 2
    assert value(got, "kintsugi_kube_requests_total", verb="patch", resource="pods", outcome="ok") == 1
    assert value(got, "kintsugi_kube_request_duration_seconds_count", verb="patch") == 1


def test_two_processes_share_nothing() -> None:
    assert "kintsugi_actions_total{" not in Telemetry().page().decode()


def test_every_gauge_has_a_name_of_ours_and_says_what_it_is() -> None:
    for gauge in FLEET_GAUGES:
        assert gauge.name.startswith("kintsugi_")
        assert gauge.about.endswith(".")
        assert not gauge.name.endswith("_total")


def test_the_table_names_every_metric_that_a_page_has(telemetry: Telemetry) -> None:
    telemetry.passed(Key("llm", "chat"), "ok", 0.02)
    telemetry.called("get", "pods", "ok", 0.004)
    scraped = {
        (f"{family.name}_total" if family.type == "counter" else family.name, family.type)
        for family in text_string_to_metric_families(telemetry.page().decode())
        if not family.name.endswith("_created")
    }
    assert scraped == {(name, kind) for name, kind, _, _ in table()}


def test_what_mode_observe_would_have_done_is_counted_once_for_each_fault() -> None:
    telemetry = Telemetry()
    sick = InstanceStatus(name="chat-short-a", uid="u1", verdict="Sick")
    shadow = Shadow("u1", "fragmentation", "Recreate")
    seen = Plan(DeploymentStatus(instances=(sick,)), shadows=(shadow,))
    held_back = Plan(DeploymentStatus(instances=(sick,)))
    well = Plan(DeploymentStatus(instances=(sick.model_copy(update={"verdict": "Healthy"}),)))
    labels = {"trigger": "fragmentation", "remedy": "Recreate"}

    def counted() -> float | None:
        return telemetry.registry.get_sample_value("kintsugi_shadow_actions_total", labels)

    for each in (seen, seen, held_back, seen):
        telemetry.note(snapshot(), judged(), each)
    assert counted() == 1
    telemetry.note(snapshot(), judged(), well)
    telemetry.note(snapshot(), judged(), seen)
    assert counted() == 2
