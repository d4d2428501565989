"""SARIF 2.1.0 by what OASIS' specification demands of the properties that are written (sections 3.13 to 3.58)."""

import json
from pathlib import Path
from typing import Any, Final

import jsonschema
import yaml
from click.testing import CliRunner

from kintsugi.__main__ import main

TEXT: Final[Any] = {
    "type": "object",
    "required": ["text"],
    "properties": {"text": {"type": "string", "minLength": 1}},
    "additionalProperties": False,
}
LEVEL: Final[Any] = {"enum": ["none", "note", "warning", "error"]}
SCHEMA: Final[Any] = {
    "type": "object",
    "required": ["version", "runs"],
    "properties": {
        "$schema": {"type": "string", "format": "uri"},
        "version": {"const": "2.1.0"},
        "runs": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["tool", "results"],
                "additionalProperties": False,
                "properties": {
                    "columnKind": {"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
                    "tool": {
                        "type": "object",
                        "required": ["driver"],
                        "additionalProperties": False,
                        "properties": {
                            "driver": {
                                "type": "object",
                                "required": ["name"],
                                "additionalProperties": False,
                                "properties": {
                                    "name": {"type": "string"},
                                    "version": {"type": "string"},
                                    "semanticVersion": {"type": "string", "pattern": r"^\d+\.\d+\.\d+"},
                                    "rules": {
                                        "type": "array",
                                        "uniqueItems": True,
                                        "items": {
                                            "type": "object",
                                            "required": ["id"],
                                            "additionalProperties": False,
                                            "properties": {
                                                "id": {"type": "string"},
                                                "shortDescription": TEXT,
                                                "fullDescription": TEXT,
                                                "helpUri": {"type": "string", "format": "uri"},
                                                "defaultConfiguration": {
                                                    "type": "object",
                                                    "additionalProperties": False,
                                                    "properties": {"level": LEVEL},
                                                },
                                            },
                                        },
                                    },
                                },
                            }
                        },
                    },
                    "invocations": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "required": ["executionSuccessful"],
                            "additionalProperties": False,
                            "properties": {
                                "executionSuccessful": {"type": "boolean"},
                                "toolExecutionNotifications": {
                                    "type": "array",
                                    "items": {
                                        "type": "object",
                                        "required": ["message"],
                                        "additionalProperties": False,
                                        "properties": {"level": LEVEL, "message": TEXT},
                                    },
                                },
                            },
                        },
                    },
                    "results": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "required": ["message"],
                            "additionalProperties": False,
                            "properties": {
                                "ruleId": {"type": "string"},
                                "ruleIndex": {"type": "integer", "minimum": 0},
                                "level": LEVEL,
                                "message": TEXT,
                                "locations": {
                                    "type": "array",
                                    "items": {
                                        "type": "object",
                                        "additionalProperties": False,
                                        "properties": {
                                            "physicalLocation": {
                                                "type": "object",
                                                "required": ["artifactLocation"],
                                                "additionalProperties": False,
                                                "properties": {
                                                    "artifactLocation": {
                                                        "type": "object",
                                                        "additionalProperties": False,
                                                        "properties": {
                                                            "uri": {
                                                                "type": "string",
                                                                "format": "uri-reference",
                                                            }
                                                        },
                                                    },
                                                    "region": {
                                                        "type": "object",
                                                        "additionalProperties": False,
                                                        "properties": {
                                                            "startLine": {"type": "integer", "minimum": 1},
                                                            "startColumn": {"type": "integer", "minimum": 1},
                                                        },
                                                    },
                                                },
                                            },
                                            "logicalLocations": {
                                                "type": "array",
                                                "items": {
                                                    "type": "object",
                                                    "additionalProperties": False,
                                                    "properties": {"fullyQualifiedName": {"type": "string"}},
                                                },
                                            },
                                        },
                                    },
                                },
                            },
                        },
                    },
                },
            },
        },
    },
}
MANIFEST: Final = """\
apiVersion: kintsugi.dev/v1alpha1
kind: DeepSeekV4Deployment
metadata: {name: chat}
spec:
  model: {id: deepseek-ai/DeepSeek-V4-Flash-0731}
  engine:
    image: registry.corp/vllm:prod
    args:
      blockSize: 16
    extraArgs:
      - --max-num-seqs=64
      - --swap-space=16
"""


def sarif(*files: str) -> dict[str, Any]:
    result = CliRunner().invoke(main, ["lint", "-o", "sarif", *files])
    log: dict[str, Any] = json.loads(result.stdout)
    return log


def test_the_log_has_the_shape_that_the_specification_demands(tmp_path: Path) -> None:
    path = tmp_path / "my fleet.yaml"
    path.write_text(MANIFEST, encoding="utf-8")
    log = sarif(str(path), str(tmp_path / "missing.yaml"))
    jsonschema.validate(log, SCHEMA)
    (run,) = log["runs"]
    assert run["invocations"][0]["executionSuccessful"] is False
    rules = run["tool"]["driver"]["rules"]
    assert all(rules[each["ruleIndex"]]["id"] == each["ruleId"] for each in run["results"])
    assert {each["ruleId"] for each in run["results"]} == {"BlockSize", "SwapSpace", "EngineVersionUnknown"}


def test_each_result_points_at_the_line_of_its_field(tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text(MANIFEST, encoding="utf-8")
    lines = {}
    for each in sarif(str(path))["runs"][0]["results"]:
        place = each["locations"][0]["physicalLocation"]
        lines[each["ruleId"]] = (place["region"]["startLine"], place["region"]["startColumn"])
    text = MANIFEST.splitlines()
    assert lines == {
        "BlockSize": (text.index("      blockSize: 16") + 1, 7),
        "SwapSpace": (text.index("      - --swap-space=16") + 1, 9),
        "EngineVersionUnknown": (text.index("    image: registry.corp/vllm:prod") + 1, 5),
    }


def test_a_clean_file_gives_an_empty_run(tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text(
        yaml.safe_dump(
            yaml.safe_load(MANIFEST) | {"spec": {"model": {"id": "deepseek-ai/DeepSeek-V4-Flash"}}}
        )
    )
    log = sarif(str(path))
    jsonschema.validate(log, SCHEMA)
    assert log["runs"][0]["results"] == []
