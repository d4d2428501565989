"""LoRA adapters as vLLM's front end takes them: listed beside the model, or the end of the start."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

CONFIG = "adapter_config.json"
"""The file without which a folder is no adapter."""


class AdapterError(ValueError):
    """An adapter can't be loaded; the message is vLLM's (`vllm/lora/worker_manager.py`)."""


@dataclass(frozen=True, slots=True)
class Adapter:
    """One entry of `--lora-modules`."""

    name: str
    path: str


def read_adapters(modules: Sequence[str]) -> tuple[Adapter, ...]:
    """`NAME=PATH` or a JSON object with `name` and `path`; AdapterError for anything else."""
    return tuple(_read(module) for module in modules)


def _read(module: str) -> Adapter:
    if module.startswith("{"):
        try:
            said = json.loads(module)
            return Adapter(str(said["name"]), str(said["path"]))
        except (ValueError, KeyError, TypeError) as error:
            raise AdapterError(f"argument --lora-modules: invalid JSON: {module}") from error
    name, equals, path = module.partition("=")
    if not (name and equals and path):
        raise AdapterError(f"argument --lora-modules: invalid format {module!r}: expected name=path")
    return Adapter(name, path)


def load(adapters: Sequence[Adapter]) -> None:
    """What a start does with them: AdapterError for the first whose folder holds no adapter.

    A path that is no absolute one is taken for a repository of the hub, and for loaded.
    """
    for adapter in adapters:
        if adapter.path.startswith("/") and not (Path(adapter.path) / CONFIG).is_file():
            raise AdapterError(f"Loading lora {adapter.name} failed: No adapter found for {adapter.path}")
