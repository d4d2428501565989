"""The children of one deployment as Kubernetes objects: pure, so that a test's diff is the review of a change."""

from collections.abc import Mapping
from typing import Any, Final

from kintsugi.api.effective import Pool
from kintsugi.api.objects import DeepSeekV4Deployment
from kintsugi.api.spec import DeploymentSpec
from kintsugi.core import names
from kintsugi.core.arguments import engine_arguments
from kintsugi.core.overlay import merged
from kintsugi.core.recipe import DEFAULT_IMAGE, recipe_of

Json = dict[str, Any]

DEFAULT_SHM: Final = "16Gi"
START_BUDGET_SECONDS: Final = 1800
"""A start may take this long where `engine.startBudgetSeconds` is absent: weights of 160 to 900 GB (S01)."""
STARTUP_PERIOD_SECONDS: Final = 2
PRE_STOP_SECONDS: Final = 5
"""For endings that are not ours (node drain, kubectl delete): endpoints are gone before the signal (S36)."""
SHUTDOWN_SECONDS: Final = 30
"""What an engine without streams may take to end, beside preStop and drain."""


def pool_labels(deployment: str, pool: str) -> dict[str, str]:
    """Labels that every object of a pool carries."""
    return {
        names.MANAGED_BY_LABEL: names.MANAGED_BY,
        names.NAME_LABEL: "deepseek-v4",
        names.DEPLOYMENT_LABEL: deployment,
        names.POOL_LABEL: pool,
    }


def rotation_selector(deployment: str, pool: str) -> dict[str, str]:
    """Selects the pods of a pool that take traffic."""
    return {
        names.DEPLOYMENT_LABEL: deployment,
        names.POOL_LABEL: pool,
        names.ROTATION_LABEL: names.ROTATION_IN,
    }


def owner_reference(deployment: str, uid: str) -> Json:
    """The deployment as controlling owner; never blocking, so its deletion needs no operator."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.DEPLOYMENT_KIND,
        "name": deployment,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": False,
    }


def replica_set_name(deployment: str, pool: str, revision: str) -> str:
    """Name of the ReplicaSet of one pool and revision; at most 57 characters."""
    return f"{deployment}-{pool}-{revision}"


def replica_set(deployment: DeepSeekV4Deployment, uid: str, pool: Pool, revision: str, replicas: int) -> Json:
    """The ReplicaSet of one pool and revision. Its template is never edited afterwards (design §3)."""
    name = deployment.metadata.name
    labels = pool_labels(name, pool.name) | {names.REVISION_LABEL: revision}
    selector = {
        names.DEPLOYMENT_LABEL: name,
        names.POOL_LABEL: pool.name,
        names.REVISION_LABEL: revision,
        names.MEMBER_LABEL: names.MEMBER,
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": _metadata(deployment, uid, replica_set_name(name, pool.name, revision), labels),
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": selector},
            "template": pod_template(deployment.spec, pool, labels),
        },
    }


def pod_template(spec: DeploymentSpec, pool: Pool, labels: Mapping[str, str]) -> Json:
    """One instance of a pool, the user's `podTemplate`s merged last."""
    template: Json = {
        "metadata": {
            "labels": {
                **labels,
                names.ROTATION_LABEL: names.ROTATION_IN,
                names.MEMBER_LABEL: names.MEMBER,
            }
        },
        "spec": {
            "enableServiceLinks": False,
            "restartPolicy": "Always",
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": PRE_STOP_SECONDS
            + spec.healing.drain.timeout_seconds
            + SHUTDOWN_SECONDS,
            "topologySpreadConstraints": [
                {
                    "maxSkew": 1,
                    "topologyKey": "kubernetes.io/hostname",
                    "whenUnsatisfiable": "ScheduleAnyway",
                    "labelSelector": {
                        "matchLabels": {
                            names.DEPLOYMENT_LABEL: labels[names.DEPLOYMENT_LABEL],
                            names.POOL_LABEL: pool.name,
                        }
                    },
                }
            ],
            "tolerations": [{"key": names.GPU_RESOURCE, "operator": "Exists", "effect": "NoSchedule"}],
            "containers": [_engine_container(spec, pool)],
            "volumes": _volumes(spec, pool),
        },
    }
    for over in pool.pod_templates:
        template = merged(template, over)
    return template


def gpus_of(spec: DeploymentSpec, pool: Pool) -> int | None:
    """GPUs of one instance; None where neither the user nor a recipe says."""
    if pool.hardware.gpus_per_instance is not None:
        return pool.hardware.gpus_per_instance
    recipe = recipe_of(spec.model.id)
    return recipe.gpus if recipe else None


def start_budget_seconds(pool: Pool) -> int:
    """How long a start may take before it counts as failed."""
    return pool.engine.start_budget_seconds or START_BUDGET_SECONDS


def _engine_container(spec: DeploymentSpec, pool: Pool) -> Json:
    health = {"httpGet": {"path": "/health", "port": "http"}}
    container: Json = {
        "name": names.ENGINE_CONTAINER,
        "image": pool.engine.image or DEFAULT_IMAGE,
        "args": engine_arguments(spec, pool),
        "env": _environment(spec, pool),
        "ports": [{"name": "http", "containerPort": names.ENGINE_PORT}],
        # No liveness probe: a saturated engine misses deadlines and a hung one answers (S15, S16).
        "startupProbe": health
        | {
            "periodSeconds": STARTUP_PERIOD_SECONDS,
            "timeoutSeconds": 5,
            "failureThreshold": max(1, start_budget_seconds(pool) // STARTUP_PERIOD_SECONDS),
        },
        "readinessProbe": health | {"periodSeconds": 5, "timeoutSeconds": 10, "failureThreshold": 3},
        "lifecycle": {"preStop": {"sleep": {"seconds": PRE_STOP_SECONDS}}},
        "resources": _resources(spec, pool),
        "volumeMounts": _mounts(spec),
    }
    if pool.engine.image_pull_policy:
        container["imagePullPolicy"] = pool.engine.image_pull_policy
    if pool.engine.env_from:
        container["envFrom"] = list(pool.engine.env_from)
    return container


def _environment(spec: DeploymentSpec, pool: Pool) -> list[Json]:
    env: dict[str, Json] = {}
    hub = spec.model.source.hub if spec.model.source else None
    if hub and hub.token_secret_ref:
        env["HF_TOKEN"] = _secret("HF_TOKEN", hub.token_secret_ref.name, hub.token_secret_ref.key)
    if pool.engine.api_key_secret_ref:
        ref = pool.engine.api_key_secret_ref
        env["VLLM_API_KEY"] = _secret("VLLM_API_KEY", ref.name, ref.key)
    if spec.model.source and (spec.model.source.pvc or spec.model.source.image):
        env["HF_HUB_OFFLINE"] = {"name": "HF_HUB_OFFLINE", "value": "1"}
    for variable in pool.engine.env:
        said: Json = {"name": variable.name}
        if variable.value is not None:
            said["value"] = variable.value
        if variable.value_from is not None:
            said["valueFrom"] = variable.value_from
        env[variable.name] = said
    return list(env.values())


def _secret(name: str, secret: str, key: str) -> Json:
    return {"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}


def _resources(spec: DeploymentSpec, pool: Pool) -> Json:
    said = pool.engine.resources
    limits: dict[str, str] = dict(said.limits or {}) if said else {}
    gpus = gpus_of(spec, pool)
    if gpus:
        limits.setdefault(pool.hardware.resource_name or names.GPU_RESOURCE, str(gpus))
    out: Json = {}
    if limits:
        out["limits"] = limits
    if said and said.requests:
        out["requests"] = dict(said.requests)
    if said and said.claims:
        out["claims"] = [claim.dump() for claim in said.claims]
    return out


def _mounts(spec: DeploymentSpec) -> list[Json]:
    mounts: list[Json] = [{"name": "shm", "mountPath": "/dev/shm"}]
    source = spec.model.source
    if source and (source.pvc or source.image):
        mounts.append({"name": "models", "mountPath": "/models", "readOnly": True})
    if source and source.hub and source.hub.cache:
        cache: Json = {"name": "hub-cache", "mountPath": "/root/.cache/huggingface"}
        if source.hub.cache.sub_path:
            cache["subPath"] = source.hub.cache.sub_path
        mounts.append(cache)
    return mounts


def _volumes(spec: DeploymentSpec, pool: Pool) -> list[Json]:
    size = pool.engine.shm.size if pool.engine.shm else DEFAULT_SHM
    volumes: list[Json] = [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": size}}]
    source = spec.model.source
    if source and source.pvc:
        claim = {"claimName": source.pvc.claim_name, "readOnly": True}
        volumes.append({"name": "models", "persistentVolumeClaim": claim})
    if source and source.image:
        image: Json = {"reference": source.image.reference}
        if source.image.pull_policy:
            image["pullPolicy"] = source.image.pull_policy
        volumes.append({"name": "models", "image": image})
    if source and source.hub and source.hub.cache:
        volumes.append(
            {"name": "hub-cache", "persistentVolumeClaim": {"claimName": source.hub.cache.claim_name}}
        )
    return volumes


def service(deployment: DeepSeekV4Deployment, uid: str, pool: str) -> Json:
    """The pool's Service, which selects the pods in rotation."""
    name = deployment.metadata.name
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(deployment, uid, f"{name}-{pool}", pool_labels(name, pool)),
        "spec": {
            "selector": rotation_selector(name, pool),
            "ports": [{"name": "http", "port": names.ENGINE_PORT, "targetPort": "http"}],
        },
    }


def disruption_budget(deployment: DeepSeekV4Deployment, uid: str, pool: str) -> Json:
    """The pool's PodDisruptionBudget over the pods in rotation."""
    name = deployment.metadata.name
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": _metadata(deployment, uid, f"{name}-{pool}", pool_labels(name, pool)),
        "spec": {
            "selector": {"matchLabels": rotation_selector(name, pool)},
            "maxUnavailable": 1,
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }


def _metadata(deployment: DeepSeekV4Deployment, uid: str, name: str, labels: Mapping[str, str]) -> Json:
    return {
        "name": name,
        "namespace": deployment.metadata.namespace,
        "labels": dict(labels),
        "ownerReferences": [owner_reference(deployment.metadata.name, uid)],
    }
