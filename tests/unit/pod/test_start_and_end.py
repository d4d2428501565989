"""How long a pod may take to start and to end: one figure for the kubelet, the engine and the operator (S52)."""

from typing import Any

import pytest

from kintsugi.api.effective import pools_of
from kintsugi.core.pod.seconds import least_grace_seconds
from kintsugi.core.render import start_budget_seconds
from kintsugi.core.times import start_budget
from tests.unit.pod.pods import FLASH, PRO, container, deployment, env, pod

PVC = {"pvc": {"claimName": "models"}}


def budget(spec: dict[str, Any]) -> int:
    return start_budget_seconds(pools_of(deployment(spec).spec)[0])


def probe_of(spec: dict[str, Any]) -> int:
    probe = container(pod(spec))["startupProbe"]
    seconds: int = probe.get("initialDelaySeconds", 0) + probe["periodSeconds"] * probe["failureThreshold"]
    return seconds


def probed(**probe: Any) -> dict[str, Any]:
    return {"podTemplate": {"spec": {"containers": [{"name": "engine", "startupProbe": probe}]}}}


@pytest.mark.parametrize(
    "spec",
    [
        {"model": {"id": PRO}},
        {"model": {"id": PRO, "source": PVC}},
        {"model": {"id": FLASH}},
        {"model": {"id": "kintsugi/tiny"}, "hardware": {"gpusPerInstance": 1}},
        {"engine": {"startBudgetSeconds": 60}},
        {
            "pools": [{"name": "a", "engine": {"startBudgetSeconds": 90}}],
            "engine": {"startBudgetSeconds": 60},
        },
        probed(periodSeconds=1, failureThreshold=2700),
        probed(periodSeconds=10, failureThreshold=540, initialDelaySeconds=180),
    ],
    ids=str,
)
def test_probe_engine_and_operator_wait_equally_long(spec: dict[str, Any]) -> None:
    name = pools_of(deployment(spec).spec)[0].name
    assert probe_of(spec) == budget(spec) == start_budget(deployment(spec).spec, name)
    assert env(pod(spec))["VLLM_ENGINE_READY_TIMEOUT_S"] == str(budget(spec))


def test_pro_has_at_least_ninety_minutes_from_a_volume_and_more_where_it_is_downloaded() -> None:
    from_volume = budget({"model": {"id": PRO, "source": PVC}})
    assert from_volume >= 90 * 60
    assert budget({"model": {"id": PRO}}) >= from_volume + 865e9 / 100e6


def test_a_smaller_model_has_less_time_and_an_unknown_one_half_an_hour() -> None:
    assert budget({"model": {"id": FLASH, "source": PVC}}) < budget({"model": {"id": PRO, "source": PVC}})
    assert budget({"model": {"id": "kintsugi/tiny"}}) == 1800


def test_what_the_user_writes_wins_over_model_and_probe() -> None:
    assert budget({"model": {"id": PRO}, "engine": {"startBudgetSeconds": 300}}) == 300
    assert budget({"engine": {"startBudgetSeconds": 300}} | probed(failureThreshold=9)) == 300
    kept = container(pod({"engine": {"startBudgetSeconds": 300}} | probed(failureThreshold=9)))[
        "startupProbe"
    ]
    assert kept["failureThreshold"] == 9


def test_a_probe_that_only_changes_the_question_keeps_the_time() -> None:
    with_question = {"model": {"id": PRO}} | probed(httpGet={"path": "/live", "port": 9090}, timeoutSeconds=9)
    assert budget(with_question) == budget({"model": {"id": PRO}})


@pytest.mark.parametrize(
    "wrong", [{"failureThreshold": "many"}, {"periodSeconds": None}, {"failureThreshold": -1}]
)
def test_a_probe_that_makes_no_sense_does_not_break_the_reckoning(wrong: dict[str, Any]) -> None:
    assert budget({"model": {"id": PRO}} | probed(**wrong)) == budget({"model": {"id": PRO}})


@pytest.mark.parametrize("drain", [5, 300, 900])
def test_the_grace_period_outlasts_pre_stop_drain_and_the_engines_own_shutdown(drain: int) -> None:
    made = pod(
        {"healing": {"drain": {"timeoutSeconds": drain}}, "engine": {"extraArgs": ["--shutdown-timeout=120"]}}
    )
    assert made["spec"]["terminationGracePeriodSeconds"] >= 5 + drain + 120
    assert made["spec"]["terminationGracePeriodSeconds"] >= least_grace_seconds(made)


def test_the_least_grace_is_what_hook_and_shutdown_take() -> None:
    words = {"engine": {"extraArgs": ["--shutdown_timeout", "120"]}}
    hook = {
        "podTemplate": {
            "spec": {"containers": [{"name": "engine", "lifecycle": {"preStop": {"sleep": {"seconds": 30}}}}]}
        }
    }
    assert least_grace_seconds(pod(words | hook)) == 30 + 120 + 10
    assert least_grace_seconds(pod(words)) == 5 + 120 + 10
    own = {
        "podTemplate": {
            "spec": {
                "containers": [{"name": "engine", "lifecycle": {"preStop": {"exec": {"command": ["a"]}}}}]
            }
        }
    }
    assert least_grace_seconds(pod(words | own)) == 120 + 10


@pytest.mark.parametrize(
    "odd", [{}, {"spec": None}, {"spec": {"containers": 5}}, {"spec": {"containers": [None]}}]
)
def test_the_least_grace_of_what_is_no_pod_is_the_margin(odd: dict[str, Any]) -> None:
    assert least_grace_seconds(odd) == 10
