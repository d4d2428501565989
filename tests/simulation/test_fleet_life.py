"""`kintsugi simulate`: the same rates with healing on and off, told as a table and as JSON."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kintsugi.__main__ import main
from kintsugi.testing.simulation import fleetlife
from kintsugi.testing.simulation.healing import observing
from kintsugi.testing.simulation.rates import rates

SMALL = ["simulate", "--weeks", "0.01", "--pools", "1", "--replicas", "2", "--fault-days", "0.05"]


@pytest.fixture(autouse=True)
def _quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleetlife, "SETTLED_SECONDS", 640.0)


def test_both_runs_are_told_with_faults_and_removals_as_json() -> None:
    answer = CliRunner().invoke(main, [*SMALL, "-o", "json"])

    assert answer.exit_code == 0, answer.output
    told = json.loads(answer.stdout)
    healing, person = told["runs"]
    assert [healing["healing"], person["healing"]] == [True, False]
    for run in told["runs"]:
        assert 0 < run["availabilityPercent"] <= 100
        assert run["requestsLost"] <= run["requests"]
        assert sum(run["faults"].values()) > 0
    assert person["removals"] == 0
    assert healing["falseRemovals"] == 0


def policy(folder: Path, healing: dict[str, Any]) -> str:
    one = {
        "apiVersion": "kintsugi.dev/v1alpha1",
        "kind": "DeepSeekV4Deployment",
        "metadata": {"name": "a"},
        "spec": {"model": {"id": "deepseek-ai/DeepSeek-V4-Flash"}, "healing": healing},
    }
    path = folder / "fleet.yaml"
    path.write_text(json.dumps(one))
    return str(path)


def test_a_policy_that_only_observes_heals_all_the_same_and_says_so(tmp_path: Path) -> None:
    healing = {"mode": "Observe", "pauseRequests": ["me"], "triggers": {"throughput": {"mode": "Observe"}}}

    plain = json.loads(CliRunner().invoke(main, [*SMALL, "-o", "json"]).stdout)
    words = [*SMALL, "--policy", policy(tmp_path, healing)]
    answer = CliRunner().invoke(main, [*words, "-o", "json"])

    assert answer.exit_code == 0, answer.output
    told = json.loads(answer.stdout)
    assert plain["runs"][0]["removals"] > 0
    assert told["runs"][0]["removals"] > 0
    assert plain["notes"] == []
    said = " / ".join(told["notes"])
    assert "healing.mode Act" in said
    assert "policy says Observe" in said
    assert "pauseRequests" in said
    assert "throughput (Observe)" in said
    table = CliRunner().invoke(main, words)
    assert "note: the column healing runs with healing.mode Act" in table.output


def test_where_a_person_heals_no_trigger_does_even_if_the_policy_has_it_act(tmp_path: Path) -> None:
    triggers = {"dead": {"mode": "Act"}, "stall": {"mode": "Act", "forSeconds": 90}}

    answer = CliRunner().invoke(
        main, [*SMALL, "--policy", policy(tmp_path, {"triggers": triggers}), "-o", "json"]
    )

    assert answer.exit_code == 0, answer.output
    assert json.loads(answer.stdout)["runs"][1]["removals"] == 0
    assert observing({"triggers": triggers})["triggers"]["stall"] == {"forSeconds": 90}


def test_more_pools_than_a_deployment_may_have_are_refused() -> None:
    answer = CliRunner().invoke(main, ["simulate", "--pools", "17"])

    assert answer.exit_code == 2
    assert "1<=x<=16" in answer.output


def test_a_policy_with_several_fleets_is_refused_with_its_name(tmp_path: Path) -> None:
    one = {
        "apiVersion": "kintsugi.dev/v1alpha1",
        "kind": "DeepSeekV4Deployment",
        "metadata": {"name": "a"},
        "spec": {"model": {"id": "deepseek-ai/DeepSeek-V4-Flash"}},
    }
    path = tmp_path / "fleets.yaml"
    path.write_text(f"{json.dumps(one)}\n---\n{json.dumps(one)}\n")

    answer = CliRunner().invoke(main, ["simulate", "--policy", str(path)])

    assert answer.exit_code == 2
    assert "holds 2 DeepSeekV4Deployments" in answer.output


def test_eight_gpus_fail_eight_times_as_often_as_one() -> None:
    assert rates(7, 8).hardware == pytest.approx(8 * rates(7, 1).hardware)
    assert 1 / rates(7, 8).hardware == pytest.approx(264 * 24, rel=0.01)
