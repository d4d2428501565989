"""What is in force for one pool."""

from typing import Any

import pytest

from kintsugi.api.effective import Pool, pools_of, scaled_pool
from kintsugi.api.spec import DeploymentSpec


def spec(**fields: Any) -> DeploymentSpec:
    return DeploymentSpec.model_validate({"model": {"id": "m"}} | fields)


def only(**fields: Any) -> Pool:
    (pool,) = pools_of(spec(**fields))
    return pool


def test_a_deployment_without_pools_has_the_pool_main() -> None:
    pool = only()
    assert (pool.name, pool.replicas, pool.profile, pool.max_tokens) == ("main", 1, "Balanced", None)


@pytest.mark.parametrize(
    ("fields", "replicas"),
    [
        ({"replicas": 3}, [3]),
        ({"replicas": 0}, [0]),
        ({"pools": [{"name": "a", "replicas": 2}]}, [2]),
        ({"replicas": 3, "pools": [{"name": "a", "replicas": 2}]}, [3]),
        ({"replicas": 3, "scalePool": "b", "pools": [{"name": "a", "replicas": 2}, {"name": "b"}]}, [2, 3]),
        ({"scalePool": "b", "pools": [{"name": "a", "replicas": 2}, {"name": "b"}]}, [2, 1]),
        ({"replicas": 3, "pools": [{"name": "a", "replicas": 2}, {"name": "b"}]}, [2, 1]),
    ],
)
def test_replicas_are_laid_over_the_scaled_pool_alone(fields: dict[str, Any], replicas: list[int]) -> None:
    assert [pool.replicas for pool in pools_of(spec(**fields))] == replicas


def test_scale_is_about_the_only_pool_or_the_named_one() -> None:
    assert scaled_pool(spec()) == "main"
    assert scaled_pool(spec(pools=[{"name": "a"}])) == "a"
    assert scaled_pool(spec(pools=[{"name": "a"}, {"name": "b"}])) is None
    assert scaled_pool(spec(pools=[{"name": "a"}, {"name": "b"}], scalePool="b")) == "b"


def test_a_pools_engine_is_laid_over_the_deployments_field_by_field() -> None:
    pool = only(
        engine={"image": "i", "args": {"blockSize": 256, "maxNumSeqs": 64}, "extraArgs": ["--a"]},
        pools=[{"name": "a", "engine": {"args": {"maxNumSeqs": 8}, "shm": {"size": "1Gi"}}}],
    )
    assert pool.engine.dump() == {
        "image": "i",
        "args": {"blockSize": 256, "maxNumSeqs": 8},
        "extraArgs": ["--a"],
        "shm": {"size": "1Gi"},
    }


def test_a_pools_lists_replace_and_its_variables_join_by_name() -> None:
    pool = only(
        engine={"extraArgs": ["--a"], "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "1"}]},
        pools=[
            {
                "name": "a",
                "engine": {"extraArgs": ["--b"], "env": [{"name": "C"}, {"name": "A", "value": ""}]},
            }
        ],
    )
    assert pool.engine.extra_args == ("--b",)
    assert [(variable.name, variable.value) for variable in pool.engine.env] == [
        ("A", ""),
        ("B", "1"),
        ("C", None),
    ]


def test_a_pool_may_empty_a_list_of_the_deployment() -> None:
    pool = only(engine={"extraArgs": ["--a"]}, pools=[{"name": "a", "engine": {"extraArgs": []}}])
    assert pool.engine.extra_args == ()


def test_hardware_and_templates_are_laid_over_too() -> None:
    pool = only(
        hardware={"gpu": "H200", "gpusPerInstance": 4},
        podTemplate={"spec": {"a": 1}},
        pools=[{"name": "a", "hardware": {"gpusPerInstance": 8}, "podTemplate": {"spec": {"b": 2}}}],
    )
    assert pool.hardware.dump() == {"gpu": "H200", "gpusPerInstance": 8}
    assert pool.pod_templates == ({"spec": {"a": 1}}, {"spec": {"b": 2}})


@pytest.mark.parametrize(("context", "output"), [(None, 1024), (8192, 1024), (2000, 500), (2, 1)])
def test_an_answer_of_unknown_length_is_assumed_to_leave_room_for_the_prompt(
    context: int | None, output: int
) -> None:
    pools = [{"name": "a"} | ({"context": {"maxTokens": context}} if context else {})]
    assert only(pools=pools).default_output_tokens == output
