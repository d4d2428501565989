from collections.abc import Iterable
from typing import Any

import pytest

from kintsugi.adapters.kube.permissions import PERMISSIONS, Scope
from tests.unit.chart.helm import only, template

Grant = tuple[str, str, str]


def needed(*scopes: Scope) -> set[Grant]:
    """(group, resource, verb) of every row of these scopes."""
    return {(p.group, p.resource, verb) for p in PERMISSIONS if p.scope in scopes for verb in p.verbs}


def granted(role: dict[str, Any]) -> set[Grant]:
    return {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def bound(objects: Iterable[dict[str, Any]]) -> dict[tuple[str, str, str], tuple[str, str]]:
    """(kind, namespace, name) of each role → the ServiceAccount that it is bound to, by namespace and name."""
    found = {}
    for o in objects:
        if o["kind"].endswith("RoleBinding"):
            (subject,) = o["subjects"]
            key = (o["roleRef"]["kind"], o["metadata"].get("namespace", ""), o["roleRef"]["name"])
            found[key] = (subject["namespace"], subject["name"])
    return found


def test_watching_all_namespaces_grants_exactly_what_the_adapter_needs() -> None:
    objects = template()
    assert granted(only(objects, "ClusterRole")) == needed(Scope.CLUSTER, Scope.WEBHOOK_CLUSTER, Scope.FLEET)
    assert granted(only(objects, "Role", "rel-kintsugi-lease")) == needed(Scope.OWN)
    assert granted(only(objects, "Role", "rel-kintsugi-webhook")) == needed(Scope.WEBHOOK)


def test_nodes_may_be_patched_only_where_the_values_say_so() -> None:
    objects = template("--set", "nodeActions.enabled=true,webhook.enabled=false")
    assert granted(only(objects, "ClusterRole")) == needed(Scope.CLUSTER, Scope.NODES, Scope.FLEET)
    assert ("", "nodes", "patch") not in granted(only(template(), "ClusterRole"))


def test_watching_some_namespaces_grants_writes_in_these_alone() -> None:
    objects = template("--set", "watchNamespaces={llm,lab},webhook.enabled=false")
    assert granted(only(objects, "ClusterRole")) == needed(Scope.CLUSTER)
    roles = {o["metadata"]["namespace"]: granted(o) for o in objects if o["kind"] == "Role"}
    assert roles == {"llm": needed(Scope.FLEET), "lab": needed(Scope.FLEET), "ops": needed(Scope.OWN)}


@pytest.mark.parametrize("arguments", [(), ("--set", "watchNamespaces={llm,lab}")], ids=["all", "some"])
def test_every_role_is_bound_to_the_operators_account(arguments: tuple[str, ...]) -> None:
    objects = template(*arguments)
    roles = {
        (o["kind"], o["metadata"].get("namespace", ""), o["metadata"]["name"])
        for o in objects
        if o["kind"] in {"Role", "ClusterRole"}
    }
    assert set(bound(objects)) == roles
    assert set(bound(objects).values()) == {("ops", "rel-kintsugi")}


def test_an_operator_without_leader_election_may_write_no_lease() -> None:
    objects = template("--set", "leaderElection.enabled=false,webhook.enabled=false")
    assert [o for o in objects if o["kind"] == "Role"] == []


def test_rights_to_the_webhooks_objects_go_by_their_name_where_the_table_says_so() -> None:
    objects = template()
    rules = [
        (only(objects, "ClusterRole"), Scope.WEBHOOK_CLUSTER),
        (only(objects, "Role", "rel-kintsugi-webhook"), Scope.WEBHOOK),
    ]
    for role, scope in rules:
        by_name = [rule for rule in role["rules"] if "resourceNames" in rule]
        assert [rule["resourceNames"] for rule in by_name] == [["rel-kintsugi-webhook"]]
        wanted = {
            (p.group, p.resource, v) for p in PERMISSIONS if p.scope is scope and p.named for v in p.verbs
        }
        assert granted({"rules": by_name}) == wanted


def test_no_rule_grants_everything() -> None:
    grants = set().union(*(granted(o) for o in template() if o["kind"] in {"Role", "ClusterRole"}))
    assert not any("*" in part for grant in grants for part in grant)


def test_own_roles_can_be_brought_instead() -> None:
    objects = template("--set", "rbac.create=false,serviceAccount.create=false,serviceAccount.name=mine")
    assert {o["kind"] for o in objects} == {
        "CustomResourceDefinition",
        "Deployment",
        "Service",
        "ValidatingWebhookConfiguration",
    }
    assert only(objects, "Deployment")["spec"]["template"]["spec"]["serviceAccountName"] == "mine"
