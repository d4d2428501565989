"""Templates are joined by Kubernetes' own keys: its OpenAPI document says which, and this compares."""

import json
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kintsugi.core.pod.merge import KEY_DEFAULTS, MERGE_KEYS, merged

SCHEMAS = Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema"
NEWEST = max(SCHEMAS.glob("v*-local"), key=lambda path: int(path.name.split(".")[1]))
POD = "io.k8s.api.core.v1.PodTemplateSpec"
NOT_OF_A_TEMPLATE = {"ownerReferences", "finalizers", "managedFields"}


def kubernetes_says() -> dict[str, tuple[str, ...]]:
    """The lists below a pod template whose patch strategy is `merge`, and the keys of their items."""
    definitions = json.loads((NEWEST / "_definitions.json").read_text())["$defs"]
    found: dict[str, tuple[str, ...]] = {}
    todo, seen = [POD], set()
    while todo:
        name = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        for field, schema in definitions[name].get("properties", {}).items():
            if "merge" in schema.get("x-kubernetes-patch-strategy", "") and field not in NOT_OF_A_TEMPLATE:
                found[field] = tuple(schema["x-kubernetes-list-map-keys"])
            for node in (schema, schema.get("items") or {}):
                todo += [node["$ref"].rpartition("/")[2]] if "$ref" in node else []
    return found


def test_the_table_is_kubernetes_own() -> None:
    said = kubernetes_says()
    assert len(said) >= 12
    assert dict(MERGE_KEYS) == said
    assert KEY_DEFAULTS == {"protocol": "TCP"}


@pytest.mark.parametrize(
    ("at", "base", "over", "wanted"),
    [
        ("tolerations", [{"key": "a"}], [{"key": "b"}], [{"key": "b"}]),
        ("args", ["a"], ["b"], ["b"]),
        ("env", [{"name": "A", "value": "1"}], [{"name": "A"}], [{"name": "A", "value": "1"}]),
        ("env", [{"name": "A", "value": "1"}], [{"name": "A", "$patch": "delete"}], []),
        (
            "env",
            [{"name": "A", "value": "1"}],
            [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}],
            [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}],
        ),
        (
            "env",
            [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}],
            [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
            [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
        ),
        (
            "volumeMounts",
            [{"name": "shm", "mountPath": "/dev/shm"}],
            [{"name": "mine", "mountPath": "/dev/shm/"}],
            [{"name": "mine", "mountPath": "/dev/shm/"}],
        ),
        (
            "volumes",
            [{"name": "shm", "emptyDir": {"medium": "Memory"}}],
            [{"name": "shm", "hostPath": {"path": "/x"}}],
            [{"name": "shm", "hostPath": {"path": "/x"}}],
        ),
        (
            "volumes",
            [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "16Gi"}}],
            [{"name": "shm", "emptyDir": {"sizeLimit": "1Gi"}}],
            [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}],
        ),
        (
            "ports",
            [{"containerPort": 8000, "name": "http"}],
            [{"containerPort": 8000, "protocol": "UDP"}],
            [{"containerPort": 8000, "name": "http"}, {"containerPort": 8000, "protocol": "UDP"}],
        ),
        (
            "ports",
            [{"containerPort": 1}],
            [{"$patch": "replace"}, {"containerPort": 2}],
            [{"containerPort": 2}],
        ),
        ("readinessProbe", {"httpGet": {}}, {"exec": {"command": ["a"]}}, {"exec": {"command": ["a"]}}),
        ("readinessProbe", {"httpGet": {}}, {"periodSeconds": 1}, {"httpGet": {}, "periodSeconds": 1}),
        ("readinessProbe", {"httpGet": {}}, {"httpGet": None, "exec": {}}, {"exec": {}}),
        ("preStop", {"sleep": {"seconds": 5}}, {"exec": {"command": ["a"]}}, {"exec": {"command": ["a"]}}),
        ("nodeSelector", {"a": "1"}, {"b": "2"}, {"a": "1", "b": "2"}),
        ("nodeSelector", {"a": "1"}, {"$patch": "replace", "b": "2"}, {"b": "2"}),
        ("affinity", {"podAffinity": {}}, {"podAffinity": {"$patch": "delete"}}, {}),
        ("limits", {"a": "1"}, {"a": "0"}, {"a": "0"}),
        ("limits", {"a": "1"}, {"a": None}, {}),
    ],
)
def test_fields_are_joined_as_kubernetes_joins_them(at: str, base: Any, over: Any, wanted: Any) -> None:
    assert merged(base, over, at) == wanted


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["name", "env", "volumes", "ports", "mountPath", "$patch", "x"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=12,
)


@given(JSON, JSON, st.sampled_from(["", *MERGE_KEYS]))
def test_whatever_is_joined_nothing_breaks_and_nothing_given_is_changed(
    base: Any, over: Any, at: str
) -> None:
    before = json.dumps([base, over])
    once = merged(base, over, at)
    assert json.dumps([base, over]) == before
    assert merged(base, over, at) == once


@given(JSON)
def test_an_empty_template_changes_nothing(base: Any) -> None:
    assert merged({"spec": base}, {}) == {"spec": base}
