"""Reading and writing lose nothing, and what the descriptions promise is what the models do."""

import json
import re
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from kintsugi.api.model import Model, format_timestamp
from kintsugi.api.objects import (
    DeepSeekV4Deployment,
    Remediation,
    SpecInvalid,
    json_path,
    parse_deployment,
    parse_remediation,
)
from kintsugi.api.remediation import MAX_LOG_LINE, BlackBox, GateAnswer, RemediationSpec, RemediationStatus
from kintsugi.api.spec import DeploymentSpec, EngineSpec
from kintsugi.api.status import DeploymentStatus, StormStatus
from kintsugi.api.structural import structural
from tests.unit.api.generated import Maximal, objects
from tests.unit.api.manifests import deployment

PARTS: list[type[Model]] = [DeploymentSpec, DeploymentStatus, RemediationSpec, RemediationStatus]


@settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(st.data())
@pytest.mark.parametrize("model", PARTS)
def test_whatever_fits_the_schema_is_read_and_written_without_loss(
    model: type[Model], data: st.DataObject
) -> None:
    raw = data.draw(objects(structural(model)))
    read = model.model_validate(raw)
    assert model.model_validate(read.dump()) == read
    assert model.model_validate_json(read.model_dump_json(by_alias=True)) == read


@pytest.mark.parametrize("model", PARTS)
def test_an_object_with_every_field_set_is_written_as_it_was_read(model: type[Model]) -> None:
    raw = Maximal().of(structural(model))
    assert model.model_validate(raw).dump() == raw


def test_only_the_models_id_is_required() -> None:
    assert parse_deployment(deployment({"model": {"id": "m"}})).spec.model.id == "m"
    schema = structural(DeploymentSpec)
    assert schema["required"] == ["model"]
    assert schema["properties"]["model"]["required"] == ["id"]


def test_null_means_absent() -> None:
    spec = {"model": {"id": "m"}, "replicas": None, "healing": None, "podTemplate": {"spec": {"gone": None}}}
    read = parse_deployment(deployment(spec)).spec
    assert read.replicas is None
    assert read.healing.mode == "Act"
    assert read.pod_template == {"spec": {"gone": None}}


def test_a_field_from_the_future_is_ignored() -> None:
    read = parse_deployment(deployment({"model": {"id": "m", "aura": 7}, "wish": []}))
    assert read.dump()["spec"]["model"] == {"id": "m"}


def test_models_cannot_be_changed_in_place() -> None:
    engine = EngineSpec(image="vllm/vllm-openai:v0.33.0")
    with pytest.raises(ValidationError, match="frozen"):
        engine.image = "other"  # type: ignore[misc]


def test_a_quantity_may_be_written_as_a_number() -> None:
    read = parse_deployment(deployment({"model": {"id": "m"}, "engine": {"shm": {"size": 1024}}}))
    assert read.spec.engine is not None
    assert read.spec.engine.shm is not None
    assert read.spec.engine.shm.size == "1024"


def test_what_is_passed_through_keeps_its_empty_parts() -> None:
    template = {"spec": {"volumes": [{"name": "tmp", "emptyDir": {}}], "tolerations": []}}
    read = parse_deployment(
        deployment({"model": {"id": "m", "source": {"hub": {}}}, "podTemplate": template})
    )
    written = read.dump()["spec"]
    assert written["podTemplate"] == template
    assert written["model"]["source"] == {"hub": {}}


def test_timestamps_are_written_in_utc() -> None:
    there = datetime(2026, 8, 1, 14, 0, tzinfo=timezone(timedelta(hours=2)))
    assert format_timestamp(there) == "2026-08-01T12:00:00Z"
    assert format_timestamp(there + timedelta(microseconds=250)) == "2026-08-01T12:00:00.000250Z"
    storm = StormStatus(pool="", since=there, last_sick_at=there)
    assert storm.since.tzinfo is UTC
    assert storm.dump()["since"] == "2026-08-01T12:00:00Z"


def test_a_time_without_zone_is_refused() -> None:
    with pytest.raises(ValidationError, match="timezone"):
        StormStatus(pool="", since=datetime(2026, 8, 1), last_sick_at=datetime(2026, 8, 1))  # noqa: DTZ001


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"model": {}}, "spec.model.id: is required: set it"),
        ({"model": 3}, "spec.model: must be an object"),
        ({"model": {"id": "m"}, "pools": {}}, "spec.pools: must be a list"),
        (
            {"model": {"id": "m"}, "healing": {"mode": "On"}},
            "spec.healing.mode: must be 'Observe', 'Recommend' or",
        ),
        ({"model": {"id": "m"}, "replicas": "2"}, "spec.replicas: input should be a valid integer"),
        ({"model": {"id": "m"}, "replicas": -2}, "spec.replicas: must be at least 0"),
        ({"model": {"id": "m"}, "pools": [{"name": "a"}] * 2}, "spec.pools: has two items whose name is a"),
    ],
)
def test_a_refusal_says_where_and_what_would_cure_it(spec: dict[str, Any], problem: str) -> None:
    with pytest.raises(SpecInvalid) as refused:
        parse_deployment(deployment(spec))
    assert problem in str(refused.value)


def test_every_problem_is_named_at_once() -> None:
    with pytest.raises(SpecInvalid) as refused:
        parse_deployment(deployment({"model": {}, "replicas": -1, "routing": {"mode": "x"}}))
    assert [problem.path for problem in refused.value.problems] == [
        "spec.model.id",
        "spec.replicas",
        "spec.routing.mode",
    ]


def test_paths_are_written_as_kubernetes_writes_them() -> None:
    assert json_path(("spec", "pools", 1, "name")) == "spec.pools[1].name"


def test_a_remediation_needs_its_victim() -> None:
    with pytest.raises(SpecInvalid, match=r"spec\.instance: is required"):
        parse_remediation({"spec": {"deployment": "chat"}})


def test_a_black_box_is_cut_to_its_bounds_and_keeps_the_newest() -> None:
    box = BlackBox.clipped(
        pages=tuple(f"{n} " + "ä" * 9000 for n in range(5)),
        logs=tuple(f"line {n} " + "€" * 500 + f" end {n}" for n in range(300)),
        container_statuses=({"name": "engine", "restartCount": 3},),
        events=tuple(f"event {n}" for n in range(50)),
    )
    assert len(box.pages) == 3
    assert len(box.logs) == 100
    assert box.logs[-1].endswith("end 299")
    assert all(len(line.encode()) <= MAX_LOG_LINE for line in box.logs)
    assert box.events[-1] == "event 49"
    assert box.container_statuses == ({"name": "engine", "restartCount": 3},)


def test_a_black_box_keeps_the_container_statuses_that_fit_together() -> None:
    statuses = tuple({"name": name, "text": "x" * size} for name, size in (("engine", 3000), ("log", 4000)))
    assert BlackBox.clipped(container_statuses=statuses).container_statuses == statuses[:1]


def test_a_remediation_with_everything_at_its_bound_is_at_most_64_kib() -> None:
    long = "ab, cd " * 2000
    box = BlackBox.clipped(
        pages=(long,) * 9,
        logs=(long,) * 900,
        container_statuses=tuple({"name": "engine", "text": long[:500]} for _ in range(99)),
        events=(long,) * 99,
    )
    status = Maximal().of(structural(RemediationStatus)) | {
        "message": long,
        "evidence": [{"signal": "s" * 128, "value": 1.5, "unit": "u" * 63, "message": long}] * 16,
        "gates": [{"name": f"gate-{n:<58}", "open": False, "message": long} for n in range(16)],
        "blackBox": box.dump(),
    }
    spec = Maximal().of(structural(RemediationSpec)) | {"deployment": "d" * 253, "attemptId": "a" * 253}
    whole = Remediation.model_validate({"metadata": {"name": "n" * 253}, "spec": spec, "status": status})
    managed_fields = 5 * 1024  # of one operator's writes
    assert len(json.dumps(whole.dump(), ensure_ascii=False).encode()) + managed_fields <= 64 * 1024


def test_a_text_of_ours_that_is_too_long_is_cut_and_never_refused() -> None:
    gate = GateAnswer(name="budget", open=False, message="x" * 9000)
    assert len(gate.message) == 256
    assert gate.message.endswith("x…")
    changed = gate.model_copy(update={"message": "y" * 9000})
    assert len(changed.dump()["message"]) == 256


def models_below(model: type[BaseModel]) -> set[type[BaseModel]]:
    """`model` and every model that its fields are made of."""
    found = {model}
    for field in model.model_fields.values():
        for inner in re.findall(r"kintsugi\.api\.\w+\.(\w+)", str(field.annotation)):
            found |= {other for other in Model.__subclasses__() if other.__name__ == inner}
    deeper = {other for inner in found - {model} for other in models_below(inner)}
    return found | deeper


ALL_MODELS = sorted(
    models_below(DeepSeekV4Deployment) | models_below(Remediation), key=lambda model: model.__name__
)


@pytest.mark.parametrize("model", ALL_MODELS, ids=lambda model: model.__name__)
def test_every_field_is_described_in_a_sentence(model: type[BaseModel]) -> None:
    assert model.__doc__
    for name, field in model.model_fields.items():
        assert field.description, name
        assert field.description.endswith("."), name


DOCUMENTED = [
    (model, name, match.group(1).strip("`"))
    for model in ALL_MODELS
    for name, field in model.model_fields.items()
    if (match := re.search(r"Absent:\s(`?\w+`?)\.(?:\s|$)", field.description or ""))
    and field.default is not None
]


@pytest.mark.parametrize(
    ("model", "name", "said"), DOCUMENTED, ids=lambda part: getattr(part, "__name__", part)
)
def test_the_default_in_the_description_is_the_models_default(
    model: type[BaseModel], name: str, said: str
) -> None:
    default = model.model_fields[name].default
    assert said == (str(default).lower() if isinstance(default, bool) else str(default).removesuffix(".0"))


def test_most_defaults_are_documented() -> None:
    assert len(DOCUMENTED) > 30
