"""Deployments to plan, from a file or from flags."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from kintsugi.api.fields import unknown_field_problems
from kintsugi.api.objects import Problem, SpecInvalid, parse_deployment
from kintsugi.api.spec import DeploymentSpec
from kintsugi.cli.manifests import Unreadable as NotAManifest
from kintsugi.cli.manifests import documents

KIND: Final = "DeepSeekV4Deployment"
MOST_BYTES: Final = 16 * 2**20


class Unreadable(click.ClickException):
    """Nothing can be planned from this: exit 2."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class Wanted:
    """One deployment."""

    name: str
    spec: DeploymentSpec
    unknown: tuple[Problem, ...]
    """Fields that nobody reads."""


def from_file(path: Path) -> tuple[Wanted, ...]:
    """Every DeepSeekV4Deployment of a file; objects of other kinds are passed over. Raises Unreadable."""
    objects = [raw for raw in load(path) if isinstance(raw, Mapping)]
    ours = [raw for raw in objects if raw.get("kind", KIND) == KIND and "spec" in raw]
    if not ours:
        raise Unreadable(f"{path}: no {KIND} in it")
    return tuple(from_raw(raw, str(path)) for raw in ours)


def from_raw(raw: Mapping[str, Any], where: str) -> Wanted:
    """One object; raises Unreadable with every problem, each with its path."""
    raw = {"apiVersion": "kintsugi.dev/v1alpha1", "kind": KIND, **raw}
    try:
        deployment = parse_deployment(raw)
        unknown = unknown_field_problems(raw)
    except SpecInvalid as error:
        raise Unreadable("\n".join(f"{where}: {problem}" for problem in error.problems)) from error
    except (RecursionError, TypeError, ValueError, AttributeError) as error:
        raise Unreadable(f"{where}: is no {KIND}: {str(error)[:200]}") from error
    return Wanted(deployment.metadata.name, deployment.spec, unknown)


def load(path: Path) -> list[Any]:
    """The objects of a YAML or JSON file, `-` for stdin; raises Unreadable."""
    try:
        with click.open_file(str(path), "rb") as stream:
            content = stream.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise Unreadable(f"{path}: is larger than 16 MiB")
        return [document.raw for document in documents(content.decode("utf-8-sig"))]
    except OSError as error:
        raise Unreadable(f"{path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise Unreadable(f"{path}: is not UTF-8 text") from error
    except NotAManifest as error:
        raise Unreadable(f"{path}: {error}") from error


def from_flags(said: Mapping[str, Any]) -> Wanted:
    """A deployment with one pool from the flags of `kintsugi plan`; raises Unreadable."""
    args = {
        "tensorParallelSize": said["tp"],
        "pipelineParallelSize": said["pp"],
        "dataParallelSize": said["dp"],
        "enableExpertParallel": said["ep"],
        "maxNumSeqs": said["max_num_seqs"],
        "maxNumBatchedTokens": said["max_num_batched_tokens"],
        "gpuMemoryUtilization": said["gpu_memory_utilization"],
    }
    hardware = {"gpu": said["gpu"], "gpusPerInstance": said["gpus"], "nodesPerInstance": said["nodes"]}
    pool: dict[str, Any] = {"name": "main", "replicas": said["replicas"]}
    if said["profile"]:
        pool["profile"] = said["profile"]
    if said["context"]:
        pool["context"] = {"maxTokens": said["context"]}
    engine: dict[str, Any] = {"args": _told(args)}
    if said["engine_version"]:
        engine["version"] = said["engine_version"]
    if said["offload"]:
        engine["kvOffload"] = {"hostMemoryPerEngine": said["offload"]}
    spec = {"model": {"id": said["model"]}, "engine": engine, "hardware": _told(hardware), "pools": [pool]}
    return from_raw({"metadata": {"name": "plan"}, "spec": spec}, "flags")


def _told(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}
