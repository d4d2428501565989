"""How long an instance may take to start and to end."""

import math
from collections.abc import Mapping
from typing import Any, Final

from kintsugi.api.effective import Pool
from kintsugi.api.spec import ModelSpec
from kintsugi.core.catalog.catalog import Catalog
from kintsugi.core.catalog.load import in_force
from kintsugi.core.names import ENGINE_CONTAINER
from kintsugi.core.pod.merge import merged

UNKNOWN_START_SECONDS: Final = 1800
"""A start may take this long where the model is not in the catalog."""
DOWNLOAD_BYTES_PER_SECOND: Final = 100_000_000
"""Assumed of a download from the hub, through one gateway that others use too: 865 GB then take 2.4 hours."""
STARTUP_PERIOD_SECONDS: Final = 2
PRE_STOP_SECONDS: Final = 5
"""For endings that are not ours (node drain, kubectl delete): endpoints are gone before the signal (S36)."""
SHUTDOWN_SECONDS: Final = 20
"""What an engine without streams may take to end, where `--shutdown-timeout` does not say."""
GRACE_MARGIN_SECONDS: Final = 10
"""Beside everything else: vLLM's supervisor waits five seconds beyond its timeout, and the kubelet is not exact."""


def start_budget_seconds(pool: Pool, catalog: Catalog | None = None) -> int:
    """How long a start may take before it counts as failed, for the kubelet and for the operator alike.

    `engine.startBudgetSeconds`, else what a start-up probe in a `podTemplate` allows, else the time that the model
    needs from a fast volume, and its download on top where the weights come from the hub.
    """
    written = pool.engine.start_budget_seconds
    if written:
        return written
    known = _from_model(pool.model, catalog)
    probe = _written_probe(pool)
    return _allowed(merged(_our_probe(known), probe)) if probe else known


def downloads(model: ModelSpec) -> bool:
    """Whether the weights come from the hub when an engine starts."""
    source = model.source
    mounted = source is not None and bool(source.pvc or source.image)
    return not mounted and not model.id.startswith(("/", "./", "../"))


def _from_model(spec: ModelSpec, catalog: Catalog | None) -> int:
    model = (catalog or in_force()).model(spec.id)
    if model is None:
        return UNKNOWN_START_SECONDS
    more = model.disk_bytes / DOWNLOAD_BYTES_PER_SECOND if downloads(spec) else 0.0
    return model.start_budget_seconds + math.ceil(more / 60) * 60


def _our_probe(budget: int) -> dict[str, Any]:
    return {
        "periodSeconds": STARTUP_PERIOD_SECONDS,
        "failureThreshold": max(1, budget // STARTUP_PERIOD_SECONDS),
    }


def _written_probe(pool: Pool) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for template in pool.pod_templates:
        for container in engines(template):
            if isinstance(container.get("startupProbe"), Mapping):
                found = merged(found, container["startupProbe"])
    return {key: value for key, value in found.items() if key in _TIMES and _count(value)}


_TIMES: Final = ("initialDelaySeconds", "periodSeconds", "failureThreshold")


def engines(template: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The engine's container in a pod or a patch of one; nothing where it is not there, or nothing is a pod."""
    spec = template.get("spec")
    containers = spec.get("containers") if isinstance(spec, Mapping) else None
    if not isinstance(containers, list):
        return []
    return [c for c in containers if isinstance(c, Mapping) and c.get("name") == ENGINE_CONTAINER]


def _count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _allowed(probe: Mapping[str, Any]) -> int:
    seconds = int(probe.get("initialDelaySeconds", 0)) + probe["periodSeconds"] * probe["failureThreshold"]
    return max(1, int(seconds))


def startup_probe(budget: int) -> dict[str, Any]:
    """The start-up probe that gives an engine `budget` seconds."""
    return {"httpGet": {"path": "/health", "port": "http"}, "timeoutSeconds": 5} | _our_probe(budget)


def grace_seconds(drain: int, shutdown: int | None) -> int:
    """The grace period of a pod: its drain too, since a node that is emptied does not ask the operator."""
    return PRE_STOP_SECONDS + drain + (shutdown or SHUTDOWN_SECONDS) + GRACE_MARGIN_SECONDS


def least_grace_seconds(template: Mapping[str, Any]) -> int:
    """The shortest `terminationGracePeriodSeconds` in which a rendered pod can end in good order.

    preStop (a `sleep` says its seconds; of another hook nothing is known), the engine's `--shutdown-timeout`, and a
    margin. `template` is a pod template, or a pod.
    """
    engine: Mapping[str, Any] = next(iter(engines(template)), {})
    stop = engine.get("lifecycle", {}).get("preStop") or {}
    slept = (stop.get("sleep") or {}).get("seconds", 0)
    shutdown = shutdown_timeout(engine.get("args") or [])
    return int(slept) + (shutdown if shutdown is not None else 0) + GRACE_MARGIN_SECONDS


def shutdown_timeout(words: list[str]) -> int | None:
    """Seconds of `--shutdown-timeout` in an engine's arguments; None where it is not there."""
    found: int | None = None
    for index, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name.replace("_", "-") == "--shutdown-timeout":
            text = value if equals else (words[index + 1] if index + 1 < len(words) else "")
            found = int(text) if text.isdigit() else found
    return found
