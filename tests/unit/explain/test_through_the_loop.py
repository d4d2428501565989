"""Explanations of what the whole loop really writes, from a sick engine to its cure."""

from typing import Any

from kintsugi.core import names
from kintsugi.core.explain.case import Case, case_of
from kintsugi.core.explain.diagnosis import diagnosed
from kintsugi.core.explain.fleet import explained
from kintsugi.core.explain.scene import Scene as Seen
from kintsugi.core.explain.text import lines
from tests.scenarios.stage import Scene, warm


def read(scene: Scene) -> tuple[Case, dict[str, Any]]:
    (raw,) = scene.cluster.all(names.DEPLOYMENT_KIND, scene.key.namespace)
    records = scene.cluster.all(names.REMEDIATION_KIND, scene.key.namespace)
    return case_of(raw, records), raw


def explain(scene: Scene, only: str | None = None) -> dict[str, Any]:
    found = explained(read(scene)[0], only)
    assert found["troubles"] == []
    assert list(lines(found))
    return found


def diagnose(scene: Scene) -> dict[str, str]:
    case, raw = read(scene)
    found = diagnosed(Seen("chat", case, raw))
    return {step["step"]: step["state"] for each in found["symptoms"] for step in each["steps"]}


async def test_a_hang_is_explained_from_the_closed_gate_to_the_cure() -> None:
    scene = await warm({"short": 3}, seconds=1500)
    assert explain(scene)["summary"].startswith("nothing is wrong: 3 instances are well")
    assert diagnose(scene)["stalled"] == "ok"

    victim = scene.names_of("short")[1]
    scene.edit(healing={"pauseRequests": ["audit"]})
    scene.engines.change(victim, hung=True)
    await scene.run(300)
    (one,) = explain(scene, victim)["instances"]
    assert (one["verdict"], one["withheld"]["gate"], one["withheld"]["who"]) == ("Sick", "paused", "person")
    assert any("pauseRequests" in each for each in one["change"])
    assert diagnose(scene)["stalled"] == "suspect"

    scene.edit(healing={"pauseRequests": None})
    await scene.until_withdrawn(victim)
    (one,) = explain(scene, victim)["instances"]
    assert one["attempt"]["phase"] == "Quarantined"
    assert "drains" in one["attempt"]["next"]

    await scene.until_done()
    found = explain(scene, victim)
    assert found["instances"] == []
    (past,) = found["past"]
    assert (past["instance"], past["trigger"], past["outcome"]) == (victim, "stall", "Cured")
    evidence = {each["signal"]: each["value"] for each in past["evidence"]}
    assert evidence["canaries unanswered"] >= 3, evidence
    stall = next(each for each in explain(scene)["watched"] if each["trigger"] == "stall")
    assert stall["record"]["cured"] == 1
