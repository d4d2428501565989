"""The telemetry in an engine's pod without an image of its own: an init container lays our package on `PYTHONPATH`.

The image that it comes from is the operator's own, handed in by whoever renders. Where none is (a manifest that is rendered
on a desk) pods are made without it, and where the engine might not know the flags.
"""

from collections.abc import Mapping
from typing import Any, Final

from kintsugi.api.effective import Pool
from kintsugi.core.command.argument import Command
from kintsugi.core.command.choice import Choice
from kintsugi.core.command.telemetry import measured, unsure
from kintsugi.core.names import ENGINE_CONTAINER
from kintsugi.core.pod.environment import CACHE_PATH
from kintsugi.core.pod.seconds import engines
from kintsugi_engine.contract import TELEMETRY_DIR_VARIABLE

Json = dict[str, Any]

CONTAINER: Final = "kintsugi-telemetry"
VOLUME: Final = "kintsugi-telemetry"
PATH: Final = "/opt/kintsugi-telemetry"
PYTHONPATH: Final = "PYTHONPATH"
_USERS: Final = "KINTSUGI_USER_PYTHONPATH"
_SMALL: Final = {"cpu": "10m", "memory": "64Mi"}
_MOST: Final = {"memory": "256Mi"}


def wanted(pool: Pool) -> bool:
    """Whether the init container is to lay the package beside the engine.

    An entry point of the user's may be no vLLM at all, which arguments of ours would end: there it must be asked for.
    """
    asked = pool.engine.telemetry or ("Disabled" if _own_entry_point(pool) else "Auto")
    return asked == "Auto" and pool.engine.runtime != "Native"


def laid_on(pool: Pool, choice: Choice, image: str) -> bool:
    """Whether it is wanted and can be had: from `image` ('' for nowhere), for a release of which it is known to start."""
    return bool(image) and wanted(pool) and not unsure(pool, choice)


def _own_entry_point(pool: Pool) -> bool:
    templates = (*pool.pod_templates, *pool.leader_templates, *pool.worker_templates)
    return bool(pool.engine.command) or any(
        container.get("command") for template in templates for container in engines(template)
    )


def commanded(command: Command, pool: Pool, choice: Choice, image: str) -> Command:
    """The engine's command, with the telemetry on where its package will be there; `image` as in `laid_on`.

    `telemetry: Image` is the user's word that the image has it, whatever its tag.
    """
    in_image = pool.engine.telemetry == "Image" and pool.engine.runtime != "Native"
    return measured(command, choice) if in_image or laid_on(pool, choice, image) else command


def injected(template: Json, pool: Pool, choice: Choice, image: str) -> Json:
    """A finished pod with the package laid on, beside whatever `PYTHONPATH` the user set; `image` as in `laid_on`."""
    if not laid_on(pool, choice, image):
        return template
    pod = dict(template["spec"])
    pod["containers"] = [
        _reached(dict(container)) if container["name"] == ENGINE_CONTAINER else container
        for container in pod["containers"]
    ]
    theirs = list(pod.get("initContainers") or ())
    if all(container.get("name") != CONTAINER for container in theirs):
        pod["initContainers"] = [*theirs, _container(image)]
        pod["volumes"] = [*(pod.get("volumes") or ()), {"name": VOLUME, "emptyDir": {"sizeLimit": "64Mi"}}]
    return template | {"spec": pod}


def _container(image: str) -> Json:
    """Runs under the strictest of Kubernetes' pod security standards, and in namespaces with quotas."""
    return {
        "name": CONTAINER,
        "image": image,
        "command": ["kintsugi-engine", "inject", PATH],
        "resources": {"requests": dict(_SMALL), "limits": dict(_MOST)},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumeMounts": [{"name": VOLUME, "mountPath": PATH}],
    }


def _reached(engine: Json) -> Json:
    env = [dict(variable) for variable in engine.get("env") or ()]
    if all(variable["name"] != TELEMETRY_DIR_VARIABLE for variable in env):
        env.append({"name": TELEMETRY_DIR_VARIABLE, "value": f"{CACHE_PATH}/telemetry"})
    said = [at for at, variable in enumerate(env) if variable["name"] == PYTHONPATH]
    if said:
        env[said[-1] : said[-1] + 1] = _beside(env[said[-1]])
    else:
        env.append({"name": PYTHONPATH, "value": PATH})
    mounts = [*(engine.get("volumeMounts") or ()), {"name": VOLUME, "mountPath": PATH, "readOnly": True}]
    return engine | {"env": env, "volumeMounts": mounts}


def _beside(theirs: Mapping[str, Any]) -> list[Json]:
    """The user's folders first; one that comes from elsewhere is put in by Kubernetes."""
    if "valueFrom" not in theirs:
        value = str(theirs.get("value") or "")
        return [{"name": PYTHONPATH, "value": f"{value}:{PATH}" if value else PATH}]
    return [dict(theirs) | {"name": _USERS}, {"name": PYTHONPATH, "value": f"$({_USERS}):{PATH}"}]
