"""The pod template of one instance: the operator's part, and the user's `podTemplate`s merged last."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kintsugi.api.effective import Pool
from kintsugi.api.spec import DeploymentSpec
from kintsugi.core import names
from kintsugi.core.catalog.catalog import Catalog
from kintsugi.core.catalog.load import in_force
from kintsugi.core.command.choice import Choice, choose
from kintsugi.core.command.render import engine_command
from kintsugi.core.pod.ending import pre_stop
from kintsugi.core.pod.environment import environment
from kintsugi.core.pod.finish import finished
from kintsugi.core.pod.known import gpu_resource, vendors_resource
from kintsugi.core.pod.merge import merged
from kintsugi.core.pod.seconds import (
    grace_seconds,
    shutdown_timeout,
    start_budget_seconds,
    startup_probe,
)
from kintsugi.core.pod.telemetry import commanded, injected, laid_on
from kintsugi.core.pod.volumes import mounts, volumes

Json = dict[str, Any]

_SERVING: Final = frozenset({"ports", "startupProbe", "readinessProbe"})


def pod_template(
    spec: DeploymentSpec,
    pool: Pool,
    labels: Mapping[str, str],
    catalog: Catalog | None = None,
    operator_image: str = "",
) -> Json:
    """One instance of a pool. `catalog` None is the one in force; `operator_image` '' lays no telemetry on."""
    catalog = catalog or in_force()
    choice = choose(spec, pool, catalog)
    command = commanded(engine_command(spec, pool, catalog), pool, choice, operator_image)
    return made(spec, pool, labels, command.words(), pool.pod_templates, catalog, operator_image)


def made(
    spec: DeploymentSpec,
    pool: Pool,
    labels: Mapping[str, str],
    words: list[str],
    templates: Sequence[Mapping[str, Any]],
    catalog: Catalog,
    operator_image: str,
    *,
    serves: bool = True,
) -> Json:
    """A pod whose engine is started with `words`; `templates` are laid over it in that order.

    `serves` False: a worker of a group, which answers no requests, so that nothing is sent to it or asked of it.
    """
    choice = choose(spec, pool, catalog)
    rotation = {names.ROTATION_LABEL: names.ROTATION_IN} if serves else {}
    beside = serves and laid_on(pool, choice, operator_image)
    engine = _engine_container(spec, pool, words, choice, catalog)
    engine["lifecycle"] = {"preStop": pre_stop(pool, spec.healing.drain.timeout_seconds, beside)}
    if not serves:
        engine = {key: value for key, value in engine.items() if key not in _SERVING}
    template: Json = {
        "metadata": {"labels": {**labels, **rotation, names.MEMBER_LABEL: names.MEMBER}},
        "spec": {
            # A Service named vllm would inject VLLM_PORT=tcp://…, which the engine refuses (S48).
            "enableServiceLinks": False,
            "restartPolicy": "Always",
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": grace_seconds(
                spec.healing.drain.timeout_seconds, shutdown_timeout(words)
            ),
            "topologySpreadConstraints": [_spread(labels[names.DEPLOYMENT_LABEL], pool.name)],
            "tolerations": [
                {"key": vendors_resource(choice.gpu), "operator": "Exists", "effect": "NoSchedule"}
            ],
            "containers": [engine],
            "volumes": volumes(spec, pool, choice),
        },
    }
    for over in templates:
        template = merged(template, over)
    return injected(finished(template, pool, choice), pool, choice, operator_image)


def _spread(deployment: str, pool: str) -> Json:
    chosen = {names.DEPLOYMENT_LABEL: deployment, names.POOL_LABEL: pool}
    return {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": chosen},
    }


def _engine_container(
    spec: DeploymentSpec, pool: Pool, words: list[str], choice: Choice, catalog: Catalog
) -> Json:
    budget = start_budget_seconds(pool, catalog)
    container: Json = {
        "name": names.ENGINE_CONTAINER,
        "image": pool.engine.image or catalog.default_image(choice.model, choice.gpu),
        "args": words,
        "env": environment(spec, pool, choice, budget),
        "ports": [{"name": "http", "containerPort": names.ENGINE_PORT}],
        # No liveness probe: a saturated engine misses deadlines and a hung one answers (S15, S16).
        "startupProbe": startup_probe(budget),
        "readinessProbe": {
            "httpGet": {"path": "/health", "port": "http"},
            "periodSeconds": 5,
            "timeoutSeconds": 10,
            "failureThreshold": 3,
        },
        # The first error of an engine that does not start, read without its log where that is gone (S22).
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "resources": _resources(pool, choice),
        "volumeMounts": mounts(spec),
    }
    if pool.engine.command:
        container["command"] = list(pool.engine.command)
    if pool.engine.image_pull_policy:
        container["imagePullPolicy"] = pool.engine.image_pull_policy
    if pool.engine.env_from:
        container["envFrom"] = list(pool.engine.env_from)
    return container


def _resources(pool: Pool, choice: Choice) -> Json:
    said = pool.engine.resources
    limits: dict[str, str] = dict(said.limits or {}) if said else {}
    if choice.parallel.gpus:
        limits.setdefault(gpu_resource(pool.hardware, choice.gpu), str(choice.parallel.gpus))
    out: Json = {}
    if limits:
        out["limits"] = limits
    if said and said.requests:
        out["requests"] = dict(said.requests)
    if said and said.claims:
        out["claims"] = [claim.dump() for claim in said.claims]
    return out
