"""What the operator refuses beyond the rules, and that it asks them once for each spec."""

from typing import Any

from kintsugi.api.objects import DeepSeekV4Deployment, parse_deployment
from kintsugi.core.accept import problems_of_spec, refusals, warnings


def deployment(name: str = "chat", **spec: Any) -> DeepSeekV4Deployment:
    model = {"id": "deepseek-ai/DeepSeek-V4-Flash-0731"}
    return parse_deployment({"metadata": {"name": name}, "spec": {"model": model, **spec}})


def test_a_refusal_names_field_reason_rule_and_cure() -> None:
    (refusal,) = refusals(deployment(engine={"args": {"blockSize": 16}}))
    assert refusal.startswith("spec.engine.args.blockSize is 16")
    assert "[BlockSize]" in refusal
    assert refusal.endswith("256 is what the operator sets")


def test_a_warning_refuses_nothing() -> None:
    made = deployment(engine={"args": {"enforceEager": True}})
    assert refusals(made) == ()
    (warning,) = warnings(made)
    assert warning.startswith("spec.engine.args.enforceEager")


def test_several_nodes_are_a_warning_of_the_rules_and_a_refusal_of_this_version() -> None:
    several = {"gpu": "H200", "gpusPerInstance": 8, "nodesPerInstance": 2}
    whole = deployment(hardware=several)
    assert [problem.path for problem in problems_of_spec(whole.spec)] == ["spec.hardware.nodesPerInstance"]
    one_pool = deployment(
        pools=[{"name": "a", "context": {"maxTokens": 8192}}, {"name": "b", "hardware": several}]
    )
    assert [p.path for p in problems_of_spec(one_pool.spec)] == ["spec.pools[1].hardware.nodesPerInstance"]


def test_the_name_counts_and_two_deployments_are_never_taken_for_one() -> None:
    assert warnings(deployment()) == ()
    (named,) = warnings(deployment("vllm"))
    assert named.startswith("metadata.name is vllm")
    assert warnings(deployment()) == ()


def test_what_was_written_and_what_was_not_are_told_apart() -> None:
    """A default that is written out is a person's word, and is blamed by its path."""
    written = deployment(healing={"drain": {"timeoutSeconds": 0}})
    assert [w.split()[0] for w in warnings(written)] == ["spec.healing.drain.timeoutSeconds"]
