"""Manifests that several suites use: the examples of the repository, and those that must be refused."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

EXAMPLES: Final = Path(__file__).parents[3] / "examples"


@dataclass(frozen=True, slots=True)
class Invalid:
    """A manifest that must be refused with a message that names `field` and says `message`."""

    case: str
    field: str
    message: str
    manifest: dict[str, Any]


def deployment(spec: dict[str, Any], name: str = "chat") -> dict[str, Any]:
    """A manifest of kind DeepSeekV4Deployment."""
    return {
        "apiVersion": "kintsugi.dev/v1alpha1",
        "kind": "DeepSeekV4Deployment",
        "metadata": {"name": name},
        "spec": spec,
    }


def invalid_manifests() -> list[Invalid]:
    """Every entry of `invalid_manifests.yaml`."""
    entries = yaml.safe_load((Path(__file__).parent / "invalid_manifests.yaml").read_text())
    return [
        Invalid(
            entry["case"],
            entry["field"],
            entry.get("message", ""),
            deployment(
                entry["spec"] if entry.get("whole") else {"model": {"id": "m"}} | entry["spec"],
                entry.get("name", "chat"),
            ),
        )
        for entry in entries
    ]


def example_documents() -> list[tuple[str, dict[str, Any]]]:
    """Every document in `examples/`, with its file's name."""
    return [
        (path.name, document)
        for path in sorted(EXAMPLES.rglob("*.yaml"))
        for document in yaml.safe_load_all(path.read_text())
    ]


def example_deployments() -> list[tuple[str, dict[str, Any]]]:
    """Those of kind DeepSeekV4Deployment."""
    return [(name, raw) for name, raw in example_documents() if raw["kind"] == "DeepSeekV4Deployment"]
