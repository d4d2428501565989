"""A manifest through `kintsugi lint -o json`, as a person would check it."""

import json
from collections.abc import Mapping
from typing import Any

import yaml
from click.testing import CliRunner

from kintsugi.__main__ import main

FLASH = "deepseek-ai/DeepSeek-V4-Flash"
FLASH_0731 = "deepseek-ai/DeepSeek-V4-Flash-0731"
PRO = "deepseek-ai/DeepSeek-V4-Pro"
PVC = {"pvc": {"claimName": "models"}}


def manifest(model: str = FLASH_0731, /, name: str = "chat", **spec: Any) -> dict[str, Any]:
    """A whole object; the weights lie on a volume."""
    return {
        "apiVersion": "kintsugi.dev/v1alpha1",
        "kind": "DeepSeekV4Deployment",
        "metadata": {"name": name},
        "spec": {"model": {"id": model, "source": PVC}, **spec},
    }


def gpus(kind: str, count: int, nodes: int | None = None) -> dict[str, Any]:
    """The hardware of an instance."""
    return {"gpu": kind, "gpusPerInstance": count} | ({"nodesPerInstance": nodes} if nodes else {})


def vllm(tag: str, **engine: Any) -> dict[str, Any]:
    """An engine of vLLM's own image."""
    return {"image": f"vllm/vllm-openai:{tag}", **engine}


class Answer:
    """What lint said: its exit code and findings."""

    def __init__(self, *objects: Mapping[str, Any]) -> None:
        result = CliRunner().invoke(main, ["lint", "-o", "json", "-"], input=yaml.safe_dump_all(objects))
        self.code = result.exit_code
        self.findings: list[dict[str, Any]] = json.loads(result.stdout)

    def of(self, severity: str) -> list[tuple[str, str]]:
        """Rule and path of every finding of that severity."""
        return [(f["rule"], f["path"]) for f in self.findings if f["severity"] == severity]

    @property
    def errors(self) -> list[tuple[str, str]]:
        return self.of("Error")

    @property
    def warnings(self) -> list[tuple[str, str]]:
        return self.of("Warning")

    def text(self, rule: str) -> str:
        """Message and cure of every finding of a rule."""
        return " | ".join(f"{f['message']} => {f['cure']}" for f in self.findings if f["rule"] == rule)


def lint(*objects: Mapping[str, Any]) -> Answer:
    """What lint says of the objects."""
    return Answer(*objects)
