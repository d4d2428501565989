"""A pod of a snapshot as the facts of its start, with the fields of the spec that it was made from."""

from collections.abc import Mapping
from typing import Any, Final

from kintsugi.api.model import Model
from kintsugi.api.spec import DeploymentSpec
from kintsugi.core.classify import kinds
from kintsugi.core.classify.classify import classify
from kintsugi.core.classify.facts import StartFacts
from kintsugi.core.classify.failure import StartFailure, made
from kintsugi.core.classify.lines import one_line
from kintsugi.core.classify.pod import CONFIG_WAITS, IMAGE_WAITS
from kintsugi.core.snapshot import Instance

SLACK_SECONDS: Final = 1.0
"""Times of Kubernetes have whole seconds."""
NEVER_RAN: Final = IMAGE_WAITS | CONFIG_WAITS
"""Waits of a container that was not even started."""


def start_failure(instance: Instance, spec: DeploymentSpec) -> StartFailure | None:
    """Why this pod does not start; None while it is on its way, once it is Ready, and when it is to go."""
    if instance.ready or instance.deleting:
        return None
    return classify(start_facts(instance, spec))


def failed_again(instance: Instance, down_since: float) -> bool:
    """Whether a start failed after the engine went down at `down_since` (epoch seconds): the end of a run that had served
    is no failed start, and neither is one that was overcome long ago."""
    if instance.waiting_reason in NEVER_RAN:
        return True
    ended = instance.last_termination
    return ended is not None and ended.finished_at > down_since + SLACK_SECONDS


def adapter_failure(instance: Instance, spec: DeploymentSpec) -> StartFailure | None:
    """Which adapters a Ready engine does not list, so that requests for them fail (S53); None while all are there."""
    if not instance.ready or instance.deleting or instance.listed is None:
        return None
    missing = [a.name for a in spec.model.lora_adapters if a.name not in instance.listed]
    if not missing:
        return None
    text = f"the engine does not list the adapter{'s' if len(missing) > 1 else ''} {', '.join(missing)}"
    return made(kinds.ADAPTER_FAILED, one_line(text), "spec.model.loraAdapters")


def start_facts(instance: Instance, spec: DeploymentSpec) -> StartFacts:
    """What is known of the pod's start."""
    ended = instance.last_termination
    index = next((n for n, pool in enumerate(spec.pools) if pool.name == instance.pool), None)
    own: tuple[str, ...] = ()
    if index is not None:
        pool = spec.pools[index]
        own = tuple(f for part in ("engine", "hardware") for f in _written(getattr(pool, part), part))
        own += ("podTemplate",) if pool.pod_template else ()
    return StartFacts(
        pod=instance.name,
        phase=instance.phase,
        phase_reason=instance.phase_reason,
        phase_message=instance.waiting_message if not instance.waiting_reason else "",
        scheduled=bool(instance.node),
        waiting_reason=instance.waiting_reason,
        waiting_message=instance.waiting_message,
        exit_code=ended.exit_code if ended else None,
        ended_reason=ended.reason if ended else "",
        ended_message=ended.message if ended else "",
        restarts=instance.restarts,
        events=instance.told,
        log=instance.log_tail,
        served=instance.served_before,
        host_ipc=instance.host_ipc,
        pool="" if index is None else f"spec.pools[{index}]",
        own=own,
        references=_references(spec, index),
        claims=_claims(spec),
    )


def _written(part: Model | None, path: str) -> list[str]:
    """Paths of the fields that `part` sets: of each leaf."""
    if part is None:
        return []
    found: list[str] = []
    for name in part.model_fields_set:
        value = getattr(part, name)
        at = f"{path}.{type(part).model_fields[name].alias or name}"
        if value is None:
            continue
        found += _written(value, at) if isinstance(value, Model) else [at]
    return sorted(found)


def _references(spec: DeploymentSpec, index: int | None) -> tuple[tuple[str, str], ...]:
    """Fields that name a Secret, with its name."""
    found: list[tuple[str, str]] = []
    engines = [spec.engine] + ([spec.pools[index].engine] if index is not None else [])
    for engine in engines:
        if engine is None:
            continue
        if engine.api_key_secret_ref:
            found.append(("engine.apiKeySecretRef", engine.api_key_secret_ref.name))
        found += [("engine.env", name) for variable in engine.env for name in _named(variable.value_from)]
        found += [("engine.envFrom", name) for source in engine.env_from for name in _named(source)]
    hub = spec.model.source.hub if spec.model.source else None
    if hub and hub.token_secret_ref:
        found.append(("model.source.hub.tokenSecretRef", hub.token_secret_ref.name))
    return tuple(dict.fromkeys(found))


def _claims(spec: DeploymentSpec) -> tuple[tuple[str, str], ...]:
    source, found = spec.model.source, []
    if source and source.pvc:
        found.append(("model.source.pvc.claimName", source.pvc.claim_name))
    if source and source.hub and source.hub.cache:
        found.append(("model.source.hub.cache.claimName", source.hub.cache.claim_name))
    return tuple(found)


def _named(source: Mapping[str, Any] | None) -> list[str]:
    """Names of the objects that a `valueFrom` or an `envFrom` entry refers to."""
    parts = [part for part in (source or {}).values() if isinstance(part, Mapping)]
    return [str(part["name"]) for part in parts if part.get("name")]
