"""Templates that would break an instance are refused by the name of the field, with the cure."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kintsugi.core.pod.owned import problems_in_templates, template_problems
from tests.unit.pod.pods import deployment


def problems(template: Any) -> dict[str, str]:
    return {problem.path: problem.message for problem in template_problems(template)}


def of_engine(**fields: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "engine", **fields}]}}


@pytest.mark.parametrize(
    ("template", "path", "words"),
    [
        ({"spec": {"restartPolicy": "OnFailure"}}, "spec.restartPolicy", "must be Always, not OnFailure"),
        (of_engine(args=["--x"]), "spec.containers[0].args", "use engine.args"),
        (of_engine(image="x"), "spec.containers[0].image", "set engine.image"),
        (of_engine(ports=[{"containerPort": 8000}]), "spec.containers[0].ports[0]", "serving port"),
        (
            of_engine(ports=[{"containerPort": 1, "name": "http"}]),
            "spec.containers[0].ports[0]",
            "serving port",
        ),
        (of_engine(ports=[{"name": "x"}]), "spec.containers[0].ports", "containerPort"),
        (of_engine(env=[{"value": "x"}]), "spec.containers[0].env[0]", "name"),
        (of_engine(volumeMounts=[{"name": "x"}]), "spec.containers[0].volumeMounts[0]", "mountPath"),
        (of_engine(volumeMounts={}), "spec.containers[0].volumeMounts", "must be a list"),
        (of_engine(**{"$patch": "delete"}), "spec.containers[0].$patch", "would remove"),
        ({"spec": {"volumes": [{"emptyDir": {}}]}}, "spec.volumes[0]", "name"),
        ({"spec": {"activeDeadlineSeconds": 9}}, "spec.activeDeadlineSeconds", "stay up"),
        ({"spec": {"ephemeralContainers": []}}, "spec.ephemeralContainers", "kubectl debug"),
        ({"spec": {"$patch": "replace"}}, "spec.$patch", "would remove"),
        ({"spec": {"containers": [{"$patch": "replace"}]}}, "spec.containers", "each with its name"),
        ({"spec": {"tolerations": [], "$retainKeys": ["x"]}}, "spec.$retainKeys", "no directive"),
        ({"spec": {"containers": [{"name": "vllm"}]}}, "spec.containers[0].image", "is called 'engine'"),
        (
            {"spec": {"containers": [{"name": "a", "image": "x"}, {"name": "a", "image": "y"}]}},
            "spec.containers[1].name",
            "a second time",
        ),
        ({"containers": []}, "containers", "did you mean spec.containers"),
        ({"metadata": {"annotations": {"a": True}}}, "metadata.annotations[a]", 'write "true"'),
    ],
)
def test_a_field_is_refused_by_its_path_with_the_cure(template: Any, path: str, words: str) -> None:
    assert words in problems(template)[path]


@pytest.mark.parametrize("field", ["podTemplate", "leaderPodTemplate", "workerPodTemplate"])
@pytest.mark.parametrize("pool", [False, True])
def test_every_template_is_looked_through_and_the_pool_is_in_the_path(field: str, pool: bool) -> None:
    wrong = {field: of_engine(image="x")}
    spec = {"pools": [{"name": "a"}, {"name": "b", **wrong}]} if pool else wrong
    at = "spec.pools[1]" if pool else "spec"
    paths = [problem.path for problem in problems_in_templates(deployment(spec).spec)]
    assert paths == [f"{at}.{field}.spec.containers[0].image"]


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "spec",
                    "metadata",
                    "containers",
                    "name",
                    "env",
                    "labels",
                    "ports",
                    "$patch",
                    "volumes",
                    "initContainers",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=15,
)


@given(st.dictionaries(st.sampled_from(["spec", "metadata", "x"]), ANY, max_size=3))
def test_whatever_is_written_the_answer_is_a_list_of_paths(template: dict[str, Any]) -> None:
    for problem in template_problems(template):
        assert problem.path
        assert problem.message
