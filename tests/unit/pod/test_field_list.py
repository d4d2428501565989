"""What the user wrote is what the pod has: one case for each thing that people need to say, on both levels."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from kintsugi.core.pod.owned import problems_in_templates
from tests.unit.pod.pods import container, deployment, missing, pod, valid

CASES: list[dict[str, Any]] = yaml.safe_load((Path(__file__).parent / "field_list.yaml").read_text())
_OF_POOLS = ("engine", "hardware", "podTemplate")


def of_pool(spec: dict[str, Any]) -> dict[str, Any]:
    """The same words in the second of two pools."""
    own = {key: value for key, value in spec.items() if key in _OF_POOLS}
    rest = {key: value for key, value in spec.items() if key not in _OF_POOLS}
    return rest | {"pools": [{"name": "short"}, {"name": "long", **own}]}


@pytest.mark.parametrize("level", ["deployment", "pool"])
@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_what_was_written_is_what_the_pod_has(case: dict[str, Any], level: str) -> None:
    spec = case["spec"] if level == "deployment" else of_pool(case["spec"])
    template = pod(spec, 0 if level == "deployment" else 1)
    wanted = case.get("pod", {} if "engine" in case else case["spec"]["podTemplate"])
    assert missing(wanted, template) == []
    assert missing(case.get("engine", {}), container(template)) == []
    assert problems_in_templates(deployment(spec).spec) == ()
    valid(template)


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_a_pool_that_says_nothing_gets_nothing_of_another_pools_words(case: dict[str, Any]) -> None:
    spec = of_pool(case["spec"])
    bare = {key: value for key, value in spec.items() if key != "pools"}
    assert pod(spec, 0) == pod(bare | {"pools": [{"name": "short"}]}, 0)


def test_no_probe_and_no_hook_has_two_handlers() -> None:
    handlers = {"httpGet", "exec", "tcpSocket", "grpc", "sleep"}
    for case in CASES:
        engine = container(pod(case["spec"]))
        found = [engine.get(f"{kind}Probe") for kind in ("startup", "readiness", "liveness")]
        for hook in [*found, *engine["lifecycle"].values()]:
            assert hook is None or len(handlers & set(hook)) == 1, case["name"]


def test_arguments_are_kept_byte_for_byte_and_in_order() -> None:
    words = [
        "--attention_config.use_fp4_indexer_cache=True",
        "--compilation-config",
        '{\n  "mode": 0,\n  "cudagraph_capture_sizes": [1, 2,\t4]\n}\n',
        "--kv_transfer_config={'a': \"b\"}",
        "",
        " lead and trail ",
        "--name=ünïcode ✓",
        "$(POD_IP) $$(NOT) ${SHELL}",
    ]
    made = pod({"engine": {"extraArgs": words}})
    assert container(made)["args"][-len(words) :] == words


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_each_pool_has_its_own_arguments_variables_resources_probes_and_size(role: str) -> None:
    def own(name: str, threshold: int) -> dict[str, Any]:
        probe = {"failureThreshold": threshold}
        return {
            "name": name,
            "replicas": threshold,
            "engine": {
                "extraArgs": [f"--role={name}"],
                "env": [{"name": "ROLE", "value": name}],
                "resources": {"limits": {"rdma/ib": str(threshold)}},
            },
            "podTemplate": {"spec": {"containers": [{"name": "engine", "startupProbe": probe}]}},
        }

    spec = {
        "pools": [own("prefill", 4), own("decode", 3)],
        "engine": {"env": [{"name": "ALL", "value": "1"}]},
    }
    index = 0 if role == "prefill" else 1
    engine = container(pod(spec, index))
    assert engine["args"][-1] == f"--role={role}"
    assert [e["value"] for e in engine["env"] if e["name"] in ("ALL", "ROLE")] == ["1", role]
    assert engine["resources"]["limits"]["rdma/ib"] == str(4 - index)
    assert engine["startupProbe"]["failureThreshold"] == 4 - index
