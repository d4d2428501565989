"""The fake API server's memory: versions, preconditions, subresources, schemas, merges."""

from typing import Any

import pytest

from kintsugi.api.crd import crd_documents
from kintsugi.core import names
from kintsugi.ports.errors import AlreadyExists, Conflict, Invalid, NotFound
from kintsugi.testing.cluster import FakeCluster
from kintsugi.testing.cluster.matching import labels_match, node_fits
from kintsugi.testing.cluster.merge import apply, merge_patch
from kintsugi.testing.cluster.schema import Schemas

NS = "llm"


def deployment(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.DEPLOYMENT_KIND,
        "metadata": {"namespace": NS, "name": "chat"},
        "spec": {"model": {"id": "deepseek-ai/DeepSeek-V4-Flash"}, **spec},
        "status": {"why": "a status in a create is dropped"},
    }


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


def test_a_new_object_gets_identity_and_no_status(cluster: FakeCluster) -> None:
    meta = cluster.put(deployment())["metadata"]
    assert meta["uid"]
    assert meta["resourceVersion"]
    assert meta["generation"] == 1
    assert meta["creationTimestamp"] == "2026-01-01T00:00:00Z"
    assert "status" not in cluster.get(names.DEPLOYMENT_KIND, NS, "chat")


def test_generation_counts_changes_of_the_spec_alone(cluster: FakeCluster) -> None:
    cluster.put(deployment())
    cluster.edit(
        names.DEPLOYMENT_KIND, NS, "chat", {"metadata": {"labels": {"a": "b"}}, "status": {"why": "x"}}
    )
    held = cluster.get(names.DEPLOYMENT_KIND, NS, "chat")
    assert held["metadata"]["generation"] == 1
    assert "status" not in held
    cluster.edit(names.DEPLOYMENT_KIND, NS, "chat", {"spec": {"healing": {"mode": "Observe"}}})
    assert cluster.get(names.DEPLOYMENT_KIND, NS, "chat")["metadata"]["generation"] == 2


def test_what_is_read_can_be_changed_without_changing_what_is_stored(cluster: FakeCluster) -> None:
    cluster.put(deployment())
    cluster.get(names.DEPLOYMENT_KIND, NS, "chat")["spec"]["model"]["id"] = "other"
    assert cluster.get(names.DEPLOYMENT_KIND, NS, "chat")["spec"]["model"]["id"] != "other"


def test_fields_that_the_crd_does_not_know_go_and_are_remembered(cluster: FakeCluster) -> None:
    made = cluster.put(deployment(noSuchField=1))
    assert "noSuchField" not in made["spec"]
    assert cluster.pruned == ["DeepSeekV4Deployment.spec.noSuchField"]


def test_defaults_of_a_schema_are_filled_in_from_outside_in() -> None:
    inner = {"type": "object", "properties": {"size": {"type": "integer", "default": 3}}}
    spec = {
        "type": "object",
        "properties": {"a": {**inner, "default": {}}, "b": inner, "list": {"items": inner}},
    }
    schemas = Schemas({"Thing": {"type": "object", "properties": {"spec": spec}}})
    thing = {"spec": {"list": [{}, {"size": 1}]}}
    schemas.fill_defaults("Thing", thing)
    assert thing == {"spec": {"a": {"size": 3}, "list": [{"size": 3}, {"size": 1}]}}


@pytest.mark.parametrize(
    "wrong",
    [
        {"pools": [{"name": "a"}, {"name": "a"}]},
        {"healing": {"mode": "Sometimes"}},
        {"healing": {"budget": {"minHealthyPercent": 101}}},
        {"model": {"id": 5}},
        {"model": None},
    ],
)
def test_an_object_against_its_schema_is_invalid(cluster: FakeCluster, wrong: dict[str, Any]) -> None:
    with pytest.raises(Invalid):
        cluster.put(deployment(**wrong))


def test_a_required_field_that_is_missing_is_named(cluster: FakeCluster) -> None:
    without = deployment()
    del without["spec"]["model"]
    with pytest.raises(Invalid, match="model"):
        cluster.put(without)


def test_names_are_taken_once_and_given_back(cluster: FakeCluster) -> None:
    first = cluster.put(deployment())
    with pytest.raises(AlreadyExists):
        cluster.put(deployment())
    cluster.remove(names.DEPLOYMENT_KIND, NS, "chat")
    with pytest.raises(NotFound):
        cluster.get(names.DEPLOYMENT_KIND, NS, "chat")
    assert cluster.put(deployment())["metadata"]["uid"] != first["metadata"]["uid"]


def test_a_stale_version_or_another_uid_is_a_conflict(cluster: FakeCluster) -> None:
    old = cluster.put(deployment())["metadata"]
    cluster.edit(names.DEPLOYMENT_KIND, NS, "chat", {"metadata": {"labels": {"a": "b"}}})
    for stale in ({"resourceVersion": old["resourceVersion"]}, {"uid": "another"}):
        with pytest.raises(Conflict):
            cluster.edit(names.DEPLOYMENT_KIND, NS, "chat", {"metadata": stale})


def test_a_write_that_changes_nothing_is_none(cluster: FakeCluster) -> None:
    made = cluster.put(deployment())
    again = cluster.edit(names.DEPLOYMENT_KIND, NS, "chat", {"spec": {"model": made["spec"]["model"]}})
    assert again["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


def test_every_crd_of_ours_has_a_schema_here() -> None:
    schemas = Schemas.of_crds(crd_documents())
    for kind in (names.DEPLOYMENT_KIND, names.REMEDIATION_KIND):
        assert schemas.prune(kind, {"spec": {"nonsense": 1}}) == ["spec.nonsense"]
    assert schemas.prune("Pod", {"spec": {"nonsense": 1}}) == []


def test_a_merge_patch_is_rfc_7386() -> None:
    target = {"a": {"b": 1, "c": [1, 2]}, "d": 5}
    assert merge_patch(target, {"a": {"b": None, "c": [3]}, "e": {"f": None}}) == {
        "a": {"c": [3]},
        "d": 5,
        "e": {},
    }
    assert target == {"a": {"b": 1, "c": [1, 2]}, "d": 5}


def test_an_apply_takes_back_its_own_and_leaves_what_is_others() -> None:
    live = {"metadata": {"labels": {"ours": "1", "theirs": "2"}}, "spec": {"a": {"b": 1}, "replicas": 3}}
    last = {"metadata": {"labels": {"ours": "1"}}, "spec": {"a": {"b": 1}}}
    assert apply(live, last, {"spec": {"c": 1}}) == {
        "metadata": {"labels": {"theirs": "2"}},
        "spec": {"replicas": 3, "c": 1},
    }


@pytest.mark.parametrize(
    ("expression", "holds"),
    [
        ({"key": "a", "operator": "In", "values": ["1"]}, True),
        ({"key": "a", "operator": "NotIn", "values": ["1"]}, False),
        ({"key": "z", "operator": "NotIn", "values": ["1"]}, True),
        ({"key": "a", "operator": "Exists"}, True),
        ({"key": "z", "operator": "DoesNotExist"}, True),
        ({"key": "n", "operator": "Gt", "values": ["4"]}, True),
        ({"key": "n", "operator": "Lt", "values": ["4"]}, False),
        ({"key": "z", "operator": "Gt", "values": ["4"]}, False),
    ],
)
def test_label_expressions(expression: dict[str, Any], holds: bool) -> None:
    assert labels_match({"matchExpressions": [expression]}, {"a": "1", "n": "5"}) is holds


def test_an_empty_selector_matches_all_and_none_matches_nothing() -> None:
    assert labels_match({}, {})
    assert not labels_match(None, {"a": "1"})


def test_terms_of_a_node_selector_are_alternatives() -> None:
    node = {"metadata": {"name": "n1", "labels": {"kubernetes.io/hostname": "n1", "gpu": "h200"}}, "spec": {}}

    def fits(*terms: dict[str, Any]) -> bool:
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
        return node_fits({"affinity": {"nodeAffinity": required}}, node)

    avoid = {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["n1"]}
    want = {"key": "gpu", "operator": "In", "values": ["h200"]}
    assert fits({"matchExpressions": [want]})
    assert fits({"matchExpressions": [want, avoid]}, {"matchExpressions": [want]})
    assert not fits({"matchExpressions": [want, avoid]}, {"matchExpressions": [avoid]})
    assert not fits({})
    assert not fits({"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n1"]}]})
