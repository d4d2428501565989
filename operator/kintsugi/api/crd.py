"""The CustomResourceDefinition documents, and whether a live one is older than ours."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any, Final

from pydantic import BaseModel

from kintsugi.api.model import GROUP, VERSION
from kintsugi.api.objects import DeepSeekV4Deployment, Remediation
from kintsugi.api.rules import DEPLOYMENT_RULES, REMEDIATION_RULES, Rule
from kintsugi.api.structural import Schema, structural, walk


def crd_documents() -> list[dict[str, Any]]:
    """Every CustomResourceDefinition, deployments first."""
    return [_deployment(), _remediation()]


def object_schema(model: type[BaseModel], rules: tuple[Rule, ...] = ()) -> Schema:
    """The schema of a whole object: spec and status from `model`, metadata left to Kubernetes, rules placed."""
    schema = structural(model)
    schema["properties"]["metadata"] = {"type": "object"}
    for kept in ("apiVersion", "kind"):
        schema["properties"][kept] = {"type": "string"}
    schema["required"] = ["spec"]
    for rule in rules:
        node = _node(schema, rule.path)
        node.setdefault("x-kubernetes-validations", []).append(rule.as_validation())
    return schema


def _node(schema: Schema, path: str) -> Schema:
    for step in filter(None, path.split(".")):
        schema = schema["properties"][step.removesuffix("[]")]
        if step.endswith("[]"):
            schema = schema["items"]
    return schema


def _column(name: str, path: str, kind: str = "string", *, wide: bool = False, about: str = "") -> Schema:
    column: Schema = {"name": name, "type": kind, "jsonPath": path}
    if about:
        column["description"] = about
    return column | {"priority": 1} if wide else column


_AGE: Final = _column("Age", ".metadata.creationTimestamp", "date")


def _deployment() -> dict[str, Any]:
    return _document(
        kind="DeepSeekV4Deployment",
        plural="deepseekv4deployments",
        short="dsv4",
        schema=object_schema(DeepSeekV4Deployment, DEPLOYMENT_RULES),
        columns=[
            _column("Ready", ".status.ready", about="Instances that serve, of those wanted."),
            _column("Available", '.status.conditions[?(@.type=="Available")].status'),
            _column(
                "Reason", '.status.conditions[?(@.type=="Available")].reason', about="Why (not) available."
            ),
            _column("Healing", ".status.healing", about="Mode of healing, or why it is paused."),
            _column("Mending", ".status.remediations.inFlight", "integer", about="Attempts under way."),
            _column("Why", ".status.why", about="Message of the worst condition."),
            _AGE,
            _column("Model", ".spec.model.id", wide=True),
        ],
        scale={
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        },
    )


def _remediation() -> dict[str, Any]:
    return _document(
        kind="Remediation",
        plural="remediations",
        short="mend",
        schema=object_schema(Remediation, REMEDIATION_RULES),
        columns=[
            _column("Pod", ".spec.instance.name", about="The instance that was sick."),
            _column("Trigger", ".spec.trigger", about="What was found."),
            _column("Remedy", ".spec.remedy", about="What is done about it."),
            _column("Phase", ".status.phase"),
            _column("Outcome", ".status.outcome", about="How it ended."),
            _column(
                "Requests cut", ".status.streamsCut", "integer", about="Still running when it was evicted."
            ),
            _AGE,
            _column("Why", ".status.why", about="What was wrong with the instance."),
            _column(
                "Now", ".status.message", about="What is done or waited for; once it is over: how it ended."
            ),
            _column("Deployment", ".spec.deployment", wide=True),
            _column("Pool", ".spec.pool", wide=True),
            _column("Attempt", ".spec.attempt", "integer", wide=True),
            _column("Replacement", ".status.replacement.name", wide=True),
        ],
    )


def _document(
    *,
    kind: str,
    plural: str,
    short: str,
    schema: Schema,
    columns: list[Schema],
    scale: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    subresources: Schema = {"status": {}} if scale is None else {"status": {}, "scale": dict(scale)}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": plural,
                "singular": kind.lower(),
                "shortNames": [short],
                "categories": ["kintsugi"],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": subresources,
                    "additionalPrinterColumns": deepcopy(columns),
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


def missing_fields(live: Mapping[str, Any], wanted: Mapping[str, Any]) -> tuple[str, ...]:
    """Fields of our CRD (`wanted`) that the cluster's (`live`) lacks, so that the API server would drop them.

    Not empty means: report `CRDOutdated` and the command that applies the new CRD. Newer fields in `live` are
    no fault.
    """
    ours, theirs = _schema_of(wanted), _schema_of(live)
    known = {path for path, _ in walk(theirs)}
    return tuple(path for path, _ in walk(ours) if path not in known)


def _schema_of(document: Mapping[str, Any]) -> Schema:
    versions = [entry for entry in document["spec"]["versions"] if entry["name"] == VERSION]
    if not versions:
        return {}
    schema: Schema = versions[0].get("schema", {}).get("openAPIV3Schema", {})
    return schema
