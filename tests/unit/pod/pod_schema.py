"""The fields of a pod template and their kinds, drawn from Kubernetes' OpenAPI document.

`python -m tests.unit.pod.pod_schema` writes the file that the package ships.
"""

import json
from pathlib import Path
from typing import Any

import kubernetes_validate

SCHEMAS = Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema"
NEWEST = max(SCHEMAS.glob("v*-local"), key=lambda path: int(path.name.split(".")[1]))
ROOT = "io.k8s.api.core.v1.PodTemplateSpec"
SHIPPED = Path(__file__).parents[3] / "operator" / "kintsugi" / "core" / "pod" / "data" / "pod_fields.json"

Fields = dict[str, dict[str, str]]


def pod_fields() -> Fields:
    """Kinds of objects by their short name; of each, its fields with their kinds (`[X]`: a list, `{X}`: a map)."""
    definitions = json.loads((NEWEST / "_definitions.json").read_text())["$defs"]
    found: Fields = {}
    todo = [ROOT]
    while todo:
        name = todo.pop()
        if short(name) in found:
            continue
        fields = definitions[name].get("properties", {})
        found[short(name)] = {
            field: kind(schema, definitions, todo) for field, schema in sorted(fields.items())
        }
    return {name: found[name] for name in sorted(found)}


def kind(schema: dict[str, Any], definitions: dict[str, Any], todo: list[str]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        if definitions[name].get("properties"):
            todo.append(name)
            return short(name)
        return {"Quantity": "quantity", "IntOrString": "number or string"}.get(
            short(name),
            "any" if "type" not in definitions[name] else kind(definitions[name], definitions, todo),
        )
    types = schema.get("type")
    plain = next((t for t in types if t != "null"), "any") if isinstance(types, list) else types
    if plain == "array":
        return f"[{kind(schema['items'], definitions, todo)}]"
    if plain == "object":
        values = schema.get("additionalProperties")
        return f"{{{kind(values, definitions, todo)}}}" if isinstance(values, dict) else "{any}"
    return str(plain) if plain else "any"


def short(name: str) -> str:
    return name.rpartition(".")[2]


def text() -> str:
    return json.dumps(pod_fields(), indent=0, separators=(",", ":")) + "\n"


if __name__ == "__main__":
    SHIPPED.write_text(text())
