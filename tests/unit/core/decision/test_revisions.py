"""The revision moves when an engine would, and at no other time: a moved revision replaces every pod."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kintsugi.api.objects import parse_deployment
from kintsugi.core.revision import REVISION_LENGTH, revision_of
from tests.unit.core.decision.made import MODEL, spec

BASE: dict[str, Any] = spec(
    2,
    engine={"image": "engine:1", "args": {"maxNumSeqs": 64}, "env": [{"name": "A", "value": "1"}]},
    pools=[
        {"name": "short", "replicas": 2, "context": {"maxTokens": 8192}},
        {"name": "long", "replicas": 1},
    ],
)


def revision(body: dict[str, Any], pool: str = "short") -> str:
    made = parse_deployment({"metadata": {"name": "chat", "namespace": "llm"}, "spec": body})
    return revision_of(made.spec, next((p for p in made.spec.pools if p.name == pool), None))


def changed(path: str, value: Any) -> dict[str, Any]:
    """`BASE` with the value at a dotted path replaced; `pools.0.x` for items."""
    body = copy.deepcopy(BASE)
    at: Any = body
    *steps, last = path.split(".")
    for step in steps:
        at = at[int(step)] if step.isdigit() else at.setdefault(step, {})
    at[last] = value
    return body


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("pools.0.replicas", 7),
        ("pools.1.replicas", 7),
        ("replicas", 7),
        ("healing", {"mode": "Observe", "drain": {"timeoutSeconds": 5}}),
        ("routing", {"enabled": False}),
        ("rollout", {"strategy": "Surge"}),
        ("monitoring", {"scrapeIntervalSeconds": 9}),
        ("validation", {"allow": ["Rule"]}),
        ("pools.1.engine", {"image": "engine:2"}),
        ("pools.1.context", {"maxTokens": 99}),
    ],
)
def test_what_changes_no_engine_of_the_pool_moves_no_pod(path: str, value: Any) -> None:
    body = changed(path, value)
    if path == "replicas":
        body["scalePool"] = "long"
    assert revision(body) == revision(BASE)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("model.id", "deepseek-ai/DeepSeek-V4-Pro"),
        ("model.servedNames", ["chat"]),
        ("engine.image", "engine:2"),
        ("engine.args.maxNumSeqs", 65),
        ("engine.args.blockSize", 256),
        ("engine.extraArgs", ["--x"]),
        ("engine.env.0.value", "2"),
        ("hardware.gpusPerInstance", 2),
        ("podTemplate", {"spec": {"priorityClassName": "high"}}),
        ("pools.0.engine", {"image": "engine:2"}),
        ("pools.0.profile", "LongContext"),
        ("pools.0.context.maxTokens", 4096),
        ("pools.0.hardware", {"gpusPerInstance": 2}),
        ("pools.0.podTemplate", {"spec": {"priorityClassName": "high"}}),
    ],
)
def test_what_changes_the_engine_moves_its_pods(path: str, value: Any) -> None:
    assert revision(changed(path, value)) != revision(BASE)


def test_a_default_that_a_user_writes_out_is_the_users_word() -> None:
    """An upgrade may change the default; then the written one stays, and the pods of the other move."""
    assert revision(changed("pools.0.profile", "Balanced")) != revision(BASE)


def test_a_field_that_is_written_and_left_empty_says_nothing() -> None:
    for path, value in (("engine.extraArgs", []), ("pools.0.engine", {}), ("engine.args.speculative", None)):
        assert revision(changed(path, value)) == revision(BASE)


def test_the_order_of_pools_and_of_keys_does_not_matter() -> None:
    body = copy.deepcopy(BASE)
    body["pools"].reverse()
    body["engine"] = dict(reversed(body["engine"].items()))
    assert revision(body) == revision(BASE)


def test_a_pool_that_is_written_out_as_the_only_one_is_not_moved_by_its_size() -> None:
    assert revision({"model": MODEL}, "none") == revision({"model": MODEL}, "other")
    one = {"model": MODEL, "pools": [{"name": "main", "replicas": 3}]}
    assert revision(one, "main") == revision({"model": MODEL}, "none")


@given(st.integers(0, 20), st.integers(1, 100), st.sampled_from(["Act", "Observe", "Recommend"]))
def test_no_size_and_no_healing_moves_a_pod(replicas: int, percent: int, mode: str) -> None:
    body = changed("pools.0.replicas", replicas)
    body["healing"] = {"mode": mode, "budget": {"minHealthyPercent": percent}}
    assert revision(body) == revision(BASE)
    assert len(revision(body)) == REVISION_LENGTH
