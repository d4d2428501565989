"""Fields that nobody reads, by name: a typing error must not pass in silence."""

import json
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from typing import Any, Final

from kintsugi.api.model import Model
from kintsugi.api.objects import DeepSeekV4Deployment, Problem, Remediation
from kintsugi.api.structural import PRESERVE, Schema, structural

LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_MODELS: Final[Mapping[str, type[Model]]] = {
    "DeepSeekV4Deployment": DeepSeekV4Deployment,
    "Remediation": Remediation,
}


def unknown_fields(raw: Mapping[str, Any]) -> list[str]:
    """Paths in `raw` that no model knows, such as `spec.healing.budgets`, sorted. Metadata is not looked at.

    The API server has already dropped such fields from a live object; what `kubectl apply` was given is still in
    an annotation, and is looked through too.
    """
    return sorted({path for path, _ in _all_unknown(raw)})


def unknown_field_problems(raw: Mapping[str, Any]) -> tuple[Problem, ...]:
    """The same, each with the name that was probably meant."""
    found = dict(_all_unknown(raw))
    return tuple(Problem(path, _hint(path, found[path])) for path in sorted(found))


def _hint(path: str, siblings: tuple[str, ...]) -> str:
    close = get_close_matches(path.rsplit(".", 1)[-1], siblings, n=1)
    return (
        f"is unknown and has no effect; did you mean {close[0]}?" if close else "is unknown and has no effect"
    )


def _all_unknown(raw: Mapping[str, Any]) -> Iterator[tuple[str, tuple[str, ...]]]:
    schema = _schema(str(raw.get("kind", "DeepSeekV4Deployment")))
    applied = (raw.get("metadata") or {}).get("annotations", {}).get(LAST_APPLIED)
    for source in (raw, _json_object(applied)):
        body = {key: value for key, value in source.items() if key != "metadata"}
        yield from _unknown(body, schema, "")


def _json_object(text: object) -> Mapping[str, Any]:
    if not isinstance(text, str):
        return {}
    try:
        found = json.loads(text)
    except ValueError:  # somebody else wrote the annotation: it tells us nothing
        return {}
    return found if isinstance(found, dict) else {}


@cache
def _schema(kind: str) -> Schema:
    return structural(_MODELS.get(kind, DeepSeekV4Deployment))


def _unknown(raw: Any, schema: Schema, path: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    if isinstance(raw, list):
        for index, item in enumerate(raw):
            yield from _unknown(item, schema.get("items", {}), f"{path}[{index}]")
    if not isinstance(raw, Mapping) or schema.get(PRESERVE):
        return
    known: Schema = schema.get("properties", {})
    values = schema.get("additionalProperties")
    for key, value in raw.items():
        here = f"{path}.{key}".removeprefix(".")
        if key in known:
            yield from _unknown(value, known[key], here)
        elif isinstance(values, dict):
            yield from _unknown(value, values, here)
        elif known:
            yield here, tuple(known)
