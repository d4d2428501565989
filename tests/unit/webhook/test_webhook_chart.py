"""What the chart tells the API server to ask, and what not."""

from typing import Any

from kintsugi.core import names
from kintsugi.runtime.webhook import PATH
from tests.unit.chart.helm import only, template

NAME = "rel-kintsugi-webhook"


def configuration(*arguments: str) -> dict[str, Any]:
    return only(template(*arguments), "ValidatingWebhookConfiguration", NAME)


def hook(*arguments: str) -> dict[str, Any]:
    (found,) = configuration(*arguments)["webhooks"]
    return dict(found)


def test_only_creations_and_updates_of_fleets_are_asked_about_never_status_scale_or_deletions() -> None:
    definition = next(
        o
        for o in template()
        if o["kind"] == "CustomResourceDefinition" and o["spec"]["names"]["plural"] == names.DEPLOYMENT_PLURAL
    )
    served = [version["name"] for version in definition["spec"]["versions"] if version["served"]]
    assert hook()["rules"] == [
        {
            "apiGroups": [names.GROUP],
            "apiVersions": served,
            "resources": [names.DEPLOYMENT_PLURAL],
            "operations": ["CREATE", "UPDATE"],
            "scope": "Namespaced",
        }
    ]
    assert hook()["matchPolicy"] == "Equivalent"


def test_an_operator_that_is_down_keeps_nobody_waiting_by_default() -> None:
    assert hook()["failurePolicy"] == "Ignore"
    assert hook()["timeoutSeconds"] == 5
    assert hook()["sideEffects"] == "None"
    assert hook("--set", "webhook.failurePolicy=Fail")["failurePolicy"] == "Fail"


def test_the_api_server_passes_over_the_dying_and_updates_that_leave_the_spec_alone() -> None:
    assert [each["name"] for each in hook()["matchConditions"]] == ["not-being-deleted", "spec-changes"]


def test_the_service_leads_to_the_port_that_the_operator_serves() -> None:
    objects = template("--set", "webhook.port=8443")
    service = only(objects, "Service", NAME)
    (port,) = service["spec"]["ports"]
    (container,) = only(objects, "Deployment")["spec"]["template"]["spec"]["containers"]
    assert {"name": port["targetPort"], "containerPort": 8443} in container["ports"]
    assert {"name": "KINTSUGI_WEBHOOK_PORT", "value": "8443"} in container["env"]
    called = only(objects, "ValidatingWebhookConfiguration")["webhooks"][0]["clientConfig"]["service"]
    assert called == {"name": NAME, "namespace": "ops", "path": PATH, "port": port["port"]}


def test_helm_leaves_the_authorities_to_the_operator() -> None:
    assert "caBundle" not in hook()["clientConfig"]


def test_an_operator_of_some_namespaces_is_asked_about_these_alone() -> None:
    assert "namespaceSelector" not in hook()
    (wanted,) = hook("--set", "watchNamespaces={llm,lab}")["namespaceSelector"]["matchExpressions"]
    assert wanted == {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["llm", "lab"]}
    own = hook("--set", "watchNamespaces={llm},webhook.namespaceSelector.matchLabels.team=a")
    assert own["namespaceSelector"] == {"matchLabels": {"team": "a"}}


def test_without_it_nothing_of_it_is_made() -> None:
    objects = template("--set", "webhook.enabled=false")
    assert NAME not in str(objects)
    assert "KINTSUGI_WEBHOOK" not in str(only(objects, "Deployment"))


def test_the_longest_names_are_still_names_of_services() -> None:
    objects = template("--set", f"fullnameOverride={'a' * 50}")
    (name,) = [o["metadata"]["name"] for o in objects if o["kind"] == "ValidatingWebhookConfiguration"]
    assert len(name) <= 63
