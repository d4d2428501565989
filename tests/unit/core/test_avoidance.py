"""The one edit of a template: ANDed into every term, told from what the user wrote, and taken out without a trace."""

from typing import Any

import pytest

from kintsugi.core.avoidance import REQUIRED, avoid, avoiding, may_land, with_avoidance
from kintsugi.core.names import AVOIDS_ANNOTATION, HOSTNAME_LABEL
from kintsugi.core.snapshot import NodeRoom, ReplicaSet
from kintsugi.testing.cluster.merge import merge_patch

Json = dict[str, Any]


def requirement(key: str, operator: str, *values: str) -> Json:
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


def affinity(*terms: Json, **more: Any) -> Json:
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}, **more}}


OURS = requirement(HOSTNAME_LABEL, "NotIn", "a", "b")
ZONE = {"matchExpressions": [requirement("zone", "In", "x")]}
PREFERRED = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": ZONE}]}
TAINTED = {"matchExpressions": [requirement(HOSTNAME_LABEL, "NotIn", "a", "b")]}

USERS: list[Json] = [
    {},
    affinity(ZONE),
    affinity(ZONE, {"matchFields": [requirement("metadata.name", "In", "n1")]}),
    affinity(TAINTED),
    affinity({"matchExpressions": [*ZONE["matchExpressions"], *TAINTED["matchExpressions"]]}),
    {"nodeAffinity": PREFERRED},
    affinity(ZONE, **PREFERRED) | {"podAntiAffinity": {REQUIRED: [{"topologyKey": "zone"}]}},
    affinity({}, ZONE),
    {"podAffinity": {}},
]


@pytest.mark.parametrize("users", USERS)
def test_what_was_put_in_is_taken_out_without_a_trace(users: Json) -> None:
    inside = with_avoidance(users, (), ("a", "b"))
    assert inside != users
    assert with_avoidance(inside, ("a", "b"), ()) == users
    moved_on = with_avoidance(inside, ("a", "b"), ("c",))
    assert moved_on == with_avoidance(users, (), ("c",))


@pytest.mark.parametrize("users", USERS)
def test_every_term_that_matches_anything_gets_the_requirement(users: Json) -> None:
    terms = with_avoidance(users, (), ("a", "b"))["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    assert all(OURS in term.get("matchExpressions", ()) for term in terms if term)
    assert [term for term in terms if not term] == [
        term
        for term in users.get("nodeAffinity", {}).get(REQUIRED, {}).get("nodeSelectorTerms", ())
        if not term
    ], "a term without requirements matches no node, and must not begin to match"


@pytest.mark.parametrize("users", USERS)
def test_the_patch_brings_the_object_to_that_form_and_back(users: Json) -> None:
    held: Json = {"metadata": {"name": "rs"}, "spec": {"template": {"spec": {"affinity": users, "x": 1}}}}
    before = ReplicaSet("rs", "u", "p", "r", 1, 1, 0.0, "7", affinity=users)
    action = avoid(before, ["b", "a", "b"])
    assert action is not None
    assert (action.hosts, action.resource_version) == (("a", "b"), "7")
    after: Any = merge_patch(held, action.patch)
    assert after["spec"]["template"]["spec"]["affinity"] == with_avoidance(users, (), ("a", "b"))
    assert after["metadata"]["annotations"] == {AVOIDS_ANNOTATION: "a,b"}
    inside = ReplicaSet(
        "rs", "u", "p", "r", 1, 1, 0.0, "8", ("a", "b"), after["spec"]["template"]["spec"]["affinity"]
    )
    assert avoid(inside, ("a", "b")) is None
    out = avoid(inside, ())
    assert out is not None
    restored: Any = merge_patch(after, out.patch)
    assert restored["spec"]["template"]["spec"].get("affinity", {}) == users
    assert restored["metadata"].get("annotations", {}) == {}


def test_a_set_that_is_about_to_be_made_avoids_from_its_first_pod_on() -> None:
    manifest: Json = {
        "kind": "ReplicaSet",
        "metadata": {},
        "spec": {"template": {"spec": {"containers": []}}},
    }
    assert avoiding(manifest, ()) is manifest
    made = avoiding(manifest, ["a"])
    assert made["metadata"]["annotations"] == {AVOIDS_ANNOTATION: "a"}
    assert "affinity" in made["spec"]["template"]["spec"]
    assert "affinity" not in manifest["spec"]["template"]["spec"]


LABELS = {HOSTNAME_LABEL: "host1", "zone": "x", "gpus": "8"}


@pytest.mark.parametrize(
    ("terms", "lands"),
    [
        ([], False),
        ([{}], False),
        ([ZONE], True),
        ([{"matchExpressions": [requirement("zone", "NotIn", "x")]}], False),
        ([{"matchExpressions": [requirement("zone", "NotIn", "x")]}, ZONE], True),
        ([{"matchExpressions": [requirement(HOSTNAME_LABEL, "NotIn", "host1")]}], False),
        ([{"matchExpressions": [requirement("rack", "NotIn", "7")]}], True),
        ([{"matchExpressions": [requirement("rack", "Exists")]}], False),
        ([{"matchExpressions": [requirement("rack", "DoesNotExist")]}], True),
        ([{"matchExpressions": [requirement("gpus", "Gt", "4")]}], True),
        ([{"matchExpressions": [requirement("gpus", "Lt", "4")]}], False),
        ([{"matchExpressions": [requirement("zone", "Gt", "4")]}], False),
        ([{"matchExpressions": [requirement("rack", "Gt", "4")]}], False),
        ([{"matchExpressions": [requirement("zone", "Resembles", "x")]}], False),
        ([{"matchFields": [requirement("metadata.name", "In", "n1")]}], True),
        ([{"matchFields": [requirement("metadata.name", "In", "n2")]}], False),
    ],
)
def test_where_new_pods_may_land_follows_the_templates_terms(terms: list[Json], lands: bool) -> None:
    node = NodeRoom("n1", True, True, 8, LABELS)
    owner = ReplicaSet("rs", "u", "p", "r", 1, 1, 0.0, "7", affinity=affinity(*terms))
    assert may_land(owner, node) is lands


def test_a_node_selector_counts_and_no_set_yet_excludes_nothing() -> None:
    node = NodeRoom("n1", True, True, 8, LABELS)
    owner = ReplicaSet("rs", "u", "p", "r", 1, 1, 0.0, "7", node_selector={"zone": "y"})
    assert not may_land(owner, node)
    assert may_land(None, node)
    assert NodeRoom("n1", True, True, 8).host == "n1"
    assert node.host == "host1"
