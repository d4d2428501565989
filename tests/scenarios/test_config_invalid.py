"""What the rules refuse makes no pod and changes none; what they warn of is said once."""

from typing import Any

import pytest

from kintsugi.api.condition import find_condition
from tests.scenarios.stage import STATUS, Scene, warm

BAD: Any = {"args": {"blockSize": 16}, "extraArgs": ["--swap-space", "16G"]}


def accepted(scene: Scene) -> tuple[str, str, str]:
    """Status, reason and message of SpecAccepted."""
    found = find_condition(scene.status.conditions, "SpecAccepted")
    assert found is not None
    return found.status, found.reason, found.message


async def test_no_object_is_made_for_a_spec_that_is_refused() -> None:
    scene = Scene()
    scene.deploy({"short": 3}, engine=BAD)
    await scene.run(600)
    status, reason, message = accepted(scene)
    assert (status, reason) == ("False", "ConfigInvalid")
    assert "spec.engine.args.blockSize" in message
    assert "spec.engine.extraArgs[0]" in message
    assert "kvOffload" in message, "the cure is named"
    for kind in ("Pod", "ReplicaSet", "Service", "PodDisruptionBudget"):
        assert scene.cluster.all(kind, "llm") == []
    assert scene.status.why == message


async def test_every_offender_is_named_even_where_all_that_is_wrong_does_not_fit() -> None:
    scene = Scene()
    words = [
        "--swap-space=1",
        "--disable-log-stats",
        "-q=awq",
        "--dtype=half",
        "--port=1",
        "--max-num-seqs=x",
    ]
    scene.deploy({"short": 1}, engine={"args": {"blockSize": 16}, "extraArgs": words})
    await scene.run(60)
    message = accepted(scene)[2]
    assert message.startswith("7 errors (")
    for path in ("spec.engine.args.blockSize", *(f"spec.engine.extraArgs[{index}]" for index in range(6))):
        assert path in message


async def test_once_corrected_it_starts() -> None:
    scene = Scene()
    scene.deploy({"short": 2}, engine=BAD)
    await scene.run(120)
    scene.edit(engine={"args": {"blockSize": 256}, "extraArgs": None})
    await scene.run(300)
    assert accepted(scene)[:2] == ("True", "Accepted")
    assert len(scene.pods("short")) == 2


@pytest.mark.parametrize("bad", [BAD, {"image": "vllm/vllm-openai:v0.19.1"}], ids=["arguments", "image"])
async def test_a_running_fleet_is_left_alone_by_an_edit_that_is_refused(bad: Any) -> None:
    scene = await warm({"short": 3}, seconds=300)
    before = scene.uids()
    scene.edit(engine=bad)
    await scene.run(900)
    assert accepted(scene)[:2] == ("False", "ConfigInvalid")
    assert scene.uids() == before
    assert scene.serving() == 3
    assert scene.removals() == []


async def test_what_is_allowed_runs_and_is_still_said() -> None:
    scene = Scene()
    scene.deploy({"short": 1}, engine={"args": {"blockSize": 16}}, validation={"allow": ["BlockSize"]})
    await scene.run(300)
    status, reason, message = accepted(scene)
    assert (status, reason) == ("True", "Accepted")
    assert "spec.engine.args.blockSize" in message
    assert len(scene.pods("short")) == 1


async def test_a_warning_is_written_once() -> None:
    scene = await warm({"short": 2}, engine={"image": "registry.corp/vllm:prod"})
    assert "spec.engine.version" in accepted(scene)[2]
    since = len(scene.cluster.writes)
    await scene.run(600)
    assert scene.writes(since=since).count(STATUS) == 0
