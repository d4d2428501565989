"""A start has a budget, from the model's size and from where it lies: over it is advice, whatever the pod did before."""

from typing import Any

import pytest

from kintsugi.api.effective import pool_of
from kintsugi.core.detect.starting import over_budget
from kintsugi.core.finding import Severity, Verdict
from kintsugi.core.pod.seconds import start_budget_seconds
from kintsugi.core.snapshot import Failure
from tests.unit.core.staging import EPOCH, Stage, deployment, instance, only

NEW: dict[str, Any] = {"ready": False, "ready_since": None, "created_at": EPOCH, "scheduled_at": EPOCH + 300}


@pytest.mark.parametrize(
    ("what", "changes", "now", "seconds"),
    [
        ("within it", {"started_at": EPOCH + 400}, 900, None),
        ("over it", {"started_at": EPOCH + 400}, 1100, 700),
        ("waiting for a GPU counts for nothing", {"started_at": EPOCH + 5000}, 5100, None),
        ("still pulling its image", {"started_at": None, "phase": "Pending"}, 9000, None),
        (
            "ended by the kubelet and begun anew",
            {"started_at": EPOCH + 1000, "restarts": 1},
            1100,
            800,
        ),
        ("ended as a whole", {"started_at": None, "phase": "Failed"}, 9000, None),
    ],
)
def test_cases(what: str, changes: dict[str, Any], now: float, seconds: float | None) -> None:
    found = over_budget(instance(**{**NEW, **changes}), EPOCH + now, 600.0)
    assert (found is None) == (seconds is None), what
    if found is not None and seconds is not None:
        assert (found.reason, found.severity, found.removable) == ("StartOverBudget", Severity.ADVICE, False)
        assert [each.value for each in found.evidence[:2]] == [seconds, 600.0]
        assert found.since == EPOCH + now - seconds
        assert f"{seconds:.0f} s after its start" in found.message
        assert "600 s" in found.message
        assert "spec.engine.startBudgetSeconds" in found.message


def test_the_budget_grows_with_the_model_and_with_a_download() -> None:
    def budget(model: str, **source: Any) -> int:
        pool = pool_of(deployment(model={"id": model, **source}).spec, "main")
        assert pool is not None
        return start_budget_seconds(pool)

    mounted = {"source": {"pvc": {"claimName": "models"}}}
    small, large = "deepseek-ai/DeepSeek-V4-Flash", "deepseek-ai/DeepSeek-V4-Pro"
    assert budget(small, **mounted) < budget(large, **mounted)
    assert budget(small, **mounted) < budget(small)
    assert budget(large) - budget(large, **mounted) > budget(small) - budget(small, **mounted)


def test_a_start_over_its_budget_is_seen_in_the_verdict_and_removes_nothing() -> None:
    stage = Stage(deployment(engine={"startBudgetSeconds": 600}))
    late = {**NEW, "started_at": EPOCH}
    for _ in range(125):
        verdict = only(stage.look({"pod-a": Failure.REFUSED}, pod_a=late))
    assert (verdict.verdict, verdict.reason) == (Verdict.STARTING, "StartOverBudget")
    assert verdict.sick() is None
