"""Manifests whose commands are kept in golden files, and how a command is written there."""

import shlex
from collections.abc import Iterator
from difflib import ndiff
from pathlib import Path
from typing import Any

from kintsugi.api.effective import pools_of
from kintsugi.api.spec import DeploymentSpec
from kintsugi.core.catalog.load import builtin
from kintsugi.core.catalog.version import parse_version
from kintsugi.core.command.argument import Command
from kintsugi.core.command.render import engine_command, worker_command

GOLDEN = Path(__file__).with_name("golden")
VERSIONS = ("0.20.0", "0.25.0", "0.29.0", "0.33.0")
UNKNOWN = "unknown"
"""A tag that says no version."""

FLASH = "deepseek-ai/DeepSeek-V4-Flash"
FLASH_0731 = "deepseek-ai/DeepSeek-V4-Flash-0731"
PRO = "deepseek-ai/DeepSeek-V4-Pro"

CASES: dict[str, dict[str, Any]] = {
    "flash-minimal": {"model": {"id": FLASH}},
    "flash-0731-minimal": {"model": {"id": FLASH_0731}},
    "flash-0731-on-8-h200": {
        "model": {"id": FLASH_0731},
        "hardware": {"gpu": "H200", "gpusPerInstance": 8},
    },
    "flash-0731-on-8-b200": {
        "model": {"id": FLASH_0731},
        "hardware": {"gpu": "B200", "gpusPerInstance": 8},
    },
    "pro-on-8-h200": {"model": {"id": PRO}, "hardware": {"gpu": "H200", "gpusPerInstance": 8}},
    "pro-dp8-on-8-h200": {
        "model": {"id": PRO},
        "engine": {"args": {"dataParallelSize": 8, "enableExpertParallel": True}},
        "hardware": {"gpu": "H200", "gpusPerInstance": 8},
    },
    "pro-0813-on-8-b200-tp-only": {
        "model": {"id": "deepseek-ai/DeepSeek-V4-Pro-0813"},
        "engine": {"args": {"enableExpertParallel": False}},
        "hardware": {"gpu": "B200", "gpusPerInstance": 8},
    },
    "flash-nvfp4-on-4-b200": {
        "model": {"id": "nvidia/DeepSeek-V4-Flash-NVFP4"},
        "hardware": {"gpu": "B200", "gpusPerInstance": 4},
    },
    "flash-on-8-mi355x": {"model": {"id": FLASH}, "hardware": {"gpu": "MI355X", "gpusPerInstance": 8}},
    "v41-flash": {"model": {"id": "deepseek-ai/DeepSeek-V4.1-Flash"}},
    "v3-on-8-h200": {
        "model": {"id": "deepseek-ai/DeepSeek-V3"},
        "hardware": {"gpu": "H200", "gpusPerInstance": 8},
    },
    "r1-on-8-h200": {
        "model": {"id": "deepseek-ai/DeepSeek-R1-0528"},
        "hardware": {"gpu": "H200", "gpusPerInstance": 8},
    },
    "unknown-model": {
        "model": {"id": "someone/something-7b"},
        "hardware": {"gpu": "H200", "gpusPerInstance": 2},
    },
    "two-pools": {
        "model": {"id": FLASH_0731, "servedNames": ["chat", "deepseek-v4"], "revision": "main"},
        "engine": {"args": {"gpuMemoryUtilization": 0.9}, "extraArgs": ["--kv-cache-metrics"]},
        "hardware": {"gpu": "H200", "gpusPerInstance": 4},
        "pools": [
            {"name": "short", "profile": "HighThroughput", "context": {"maxTokens": 8192}},
            {
                "name": "long",
                "profile": "LongContext",
                "context": {"maxTokens": 1048576},
                "engine": {"args": {"dataParallelSize": 4}, "extraArgs": ["--max_num_seqs=24", "-O", "2"]},
            },
        ],
    },
    "lora": {
        "model": {
            "id": FLASH,
            "source": {"pvc": {"claimName": "models", "subPath": "v4-flash"}},
            "loraAdapters": [
                {"name": "tax", "path": "/models/tax"},
                {"name": "law", "path": "org/law=de,at"},
            ],
        },
    },
    "offload": {
        "model": {"id": FLASH_0731},
        "engine": {"kvOffload": {"hostMemoryPerEngine": "200Gi"}, "args": {"dataParallelSize": 4}},
        "hardware": {"gpu": "H200", "gpusPerInstance": 4},
    },
    "own-speculation": {
        "model": {"id": FLASH},
        "engine": {
            "args": {"speculative": {"method": "MTP"}, "toolCallParser": "", "enablePrefixCaching": False}
        },
        "hardware": {"gpu": "H200", "gpusPerInstance": 4},
        "pools": [
            {"name": "mtp"},
            {
                "name": "ngram",
                "engine": {"args": {"speculative": {"method": "NGram", "numTokens": 5}}},
            },
            {"name": "none", "engine": {"args": {"speculative": {"method": "Disabled"}}}},
        ],
    },
    "pro-on-2-nodes-of-8-h100": {
        "model": {"id": "deepseek-ai/DeepSeek-V4-Pro-0813"},
        "hardware": {"gpu": "H100", "gpusPerInstance": 8, "nodesPerInstance": 2},
    },
    "native": {
        "model": {"id": FLASH, "servedNames": ["chat"]},
        "engine": {"runtime": "Native", "image": "registry.example/native:1"},
        "pools": [{"name": "long", "profile": "LongContext", "context": {"maxTokens": 1048576}}],
    },
}


def spec_of(name: str, version: str) -> DeploymentSpec:
    """A case with the engine's version written down; `unknown`: with a tag that says none."""
    body = CASES[name]
    said = {"image": "registry.example/vllm:prod"} if version == UNKNOWN else {"version": version}
    return DeploymentSpec.model_validate(body | {"engine": said | body.get("engine", {})})


def versions_of(name: str) -> tuple[str, ...]:
    """The versions that can run the case's model, and an unknown one."""
    model = builtin().model(CASES[name]["model"]["id"])
    if CASES[name].get("engine", {}).get("runtime") == "Native":
        return (UNKNOWN,)
    able = [
        each
        for each in VERSIONS
        if model is None or (parse_version(each) or model.min_engine) >= model.min_engine
    ]
    return (*able, UNKNOWN)


def commands_of(name: str, version: str) -> Iterator[tuple[str, Command]]:
    """Every command of a case, with a title."""
    spec = spec_of(name, version)
    for pool in pools_of(spec):
        yield f"pool {pool.name}", engine_command(spec, pool)
        if (pool.hardware.nodes_per_instance or 1) > 1:
            yield f"pool {pool.name}, workers", worker_command(spec, pool)


def golden_text(name: str) -> str:
    """The golden file of a case: one argument a line, with the field that says it.

    A version that differs from the one before shows what goes (`-`) and what comes (`+`).
    """
    lines = ["# Written by `make generate`; read the diff after a wanted change."]
    before: dict[str, list[str]] = {}
    for version in versions_of(name):
        for title, command in commands_of(name, version):
            shown = [f"{shlex.join(a.words):<70}  # {a.origin}" for a in command.arguments]
            lines += ["", f"== vLLM {version}, {title}"]
            lines += _difference(before[title], shown) if title in before else shown
            before[title] = shown
    return "\n".join(lines) + "\n"


def _difference(before: list[str], now: list[str]) -> list[str]:
    changed = [line for line in ndiff(before, now) if line[0] in "-+"]
    return changed or ["as before"]


def path_of(name: str) -> Path:
    """Where the case's golden file lies."""
    return GOLDEN / f"{name}.txt"
