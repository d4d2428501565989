"""The two kinds as whole objects, and how they are read."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, TypeVar

from pydantic import Field, ValidationError

from kintsugi.api.model import Model, Opaque, Timestamp, format_timestamp
from kintsugi.api.remediation import RemediationSpec, RemediationStatus
from kintsugi.api.rules import DEPLOYMENT_RULES, broken
from kintsugi.api.spec import DeploymentSpec
from kintsugi.api.status import DeploymentStatus
from kintsugi.api.structural import Schema, structural, without_nulls

M = TypeVar("M", bound=Model)


class ObjectMeta(Model):
    """The part of an object's metadata that the operator reads or writes."""

    name: str = ""
    """Name of the object."""
    namespace: str | None = None
    """Its namespace."""
    uid: str | None = None
    """Its UID."""
    resource_version: str | None = None
    """Version of the object in the API server."""
    generation: int | None = None
    """Version of its spec."""
    creation_timestamp: Timestamp | None = None
    """When it was made."""
    deletion_timestamp: Timestamp | None = None
    """When it was asked to go."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Its labels."""
    annotations: dict[str, str] = Field(default_factory=dict)
    """Its annotations."""
    owner_references: tuple[Opaque, ...] = ()
    """Its owners."""


class DeepSeekV4Deployment(Model):
    """A DeepSeek-V4 fleet: pools of engines that serve one model, and how they are healed."""

    api_version: Literal["kintsugi.dev/v1alpha1"] = "kintsugi.dev/v1alpha1"
    """Always `kintsugi.dev/v1alpha1`."""
    kind: Literal["DeepSeekV4Deployment"] = "DeepSeekV4Deployment"
    """Always `DeepSeekV4Deployment`."""
    metadata: ObjectMeta = ObjectMeta()
    """Name, labels and the like."""
    spec: DeploymentSpec
    """The wanted state."""
    status: DeploymentStatus = DeploymentStatus()
    """The observed state."""


class Remediation(Model):
    """One attempt to cure one instance, made and kept by the operator."""

    api_version: Literal["kintsugi.dev/v1alpha1"] = "kintsugi.dev/v1alpha1"
    """Always `kintsugi.dev/v1alpha1`."""
    kind: Literal["Remediation"] = "Remediation"
    """Always `Remediation`."""
    metadata: ObjectMeta = ObjectMeta()
    """Name, labels and the like."""
    spec: RemediationSpec
    """What was decided."""
    status: RemediationStatus = RemediationStatus()
    """How it went."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with an object: where, and what would cure it."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


class SpecInvalid(ValueError):
    """The object can't be read. `problems` name each path and the cure."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        self.problems = problems
        super().__init__("; ".join(map(str, problems)))


def parse_deployment(raw: Mapping[str, Any]) -> DeepSeekV4Deployment:
    """The deployment in `raw`, read as strictly as the API server reads it, rules included.

    Unknown fields are ignored (see `fields.unknown_fields`). Raises SpecInvalid with every problem found.
    """
    deployment = _parse(DeepSeekV4Deployment, raw)
    ruled = {"metadata": {"name": deployment.metadata.name}, "spec": deployment.spec.dump()}
    if problems := tuple(Problem(at, rule.message) for at, rule in broken(DEPLOYMENT_RULES, ruled)):
        raise SpecInvalid(problems)
    return deployment


def parse_remediation(raw: Mapping[str, Any]) -> Remediation:
    """The remediation in `raw`; raises SpecInvalid."""
    return _parse(Remediation, raw)


@cache
def _schema(model: type[Model]) -> Schema:
    return structural(model)


def _parse(model: type[M], raw: Mapping[str, Any]) -> M:
    try:
        plain = without_nulls(raw, _schema(model))
        # From JSON, since only there does strict mode take a list for a tuple and a string for a timestamp.
        return model.model_validate_json(json.dumps(plain, default=format_timestamp), strict=True)
    except ValidationError as error:
        raise SpecInvalid(problems_of(error)) from error


def problems_of(error: ValidationError) -> tuple[Problem, ...]:
    """What pydantic found, in words of the manifest."""
    return tuple(
        Problem(json_path(found["loc"]), _cure(found["type"], found["msg"], found.get("ctx", {})))
        for found in error.errors(include_url=False)
    )


def json_path(location: tuple[int | str, ...]) -> str:
    """`("spec", "pools", 0, "name")` as `spec.pools[0].name`."""
    parts = [f"[{step}]" if isinstance(step, int) else f".{step}" for step in location]
    return "".join(parts).removeprefix(".") or "."


def _cure(kind: str, message: str, context: Mapping[str, Any]) -> str:
    match kind:
        case "tuple_type":
            return "must be a list"
        case "model_type":
            return "must be an object"
        case "missing":
            return "is required: set it"
        case "literal_error":
            return f"must be {context['expected']}"
        case "greater_than_equal":
            return f"must be at least {context['ge']}"
        case "less_than_equal":
            return f"must be at most {context['le']}"
        case "greater_than":
            return f"must be more than {context['gt']}"
        case "string_pattern_mismatch":
            return f"must match {context['pattern']}"
        case "value_error":
            return str(context["error"])
        case _:
            return message[:1].lower() + message[1:]
