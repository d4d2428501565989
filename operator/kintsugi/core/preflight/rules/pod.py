"""Plumbing of the pod: service links, the metrics directory (S14, S48)."""

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Final

from kintsugi.core.preflight.rule import Rule, Said, example
from kintsugi.core.preflight.view import Json, PoolView, View, mapping, objects

METRICS_DIRECTORY: Final = "/tmp"  # a path in the engine's container, not of this process
"""Where vLLM's API server makes the directory of its metrics unless PROMETHEUS_MULTIPROC_DIR says another."""


_PROBES: Final = ("startupProbe", "readinessProbe", "livenessProbe")
_HOOKS: Final = ("postStart", "preStop")
_HANDLERS: Final = ("exec", "httpGet", "tcpSocket", "grpc", "sleep")
_NO_SOURCE: Final = ("name", "$patch", "$retainKeys")
"""Fields of a volume that say nothing of where it comes from."""


def _metrics_directory(view: View) -> Iterator[Said]:
    for pool in view.pools:
        if not pool.vllm:
            continue
        wanted = PurePosixPath(pool.variable("PROMETHEUS_MULTIPROC_DIR") or METRICS_DIRECTORY)
        volumes = {volume.get("name"): volume for volume in objects(pool.pod_spec.get("volumes"))}
        for mount in objects(pool.container.get("volumeMounts")):
            at = PurePosixPath(str(mount.get("mountPath", "")) or ".")
            volume = volumes.get(mount.get("name")) if isinstance(mount.get("name"), str) else None
            if (at == wanted or at in wanted.parents) and volume is not None and "emptyDir" not in volume:
                path = _mount_path(pool, str(mount.get("mountPath")))
                if path is not None:
                    yield Said(
                        path,
                        f"lays a volume over {at}, where the engine keeps the files of its metrics ({wanted}): on a network "
                        "volume /metrics answers 500 while requests are served",
                        "mount it elsewhere, or set PROMETHEUS_MULTIPROC_DIR to a folder on an emptyDir",
                    )


def _mount_path(pool: PoolView, mount: str) -> str | None:
    for at, template in pool.templates():
        for index, container in enumerate(objects(mapping(template.get("spec")).get("containers"))):
            for number, each in enumerate(objects(container.get("volumeMounts"))):
                if container.get("name") == "engine" and each.get("mountPath") == mount:
                    return f"{at}.spec.containers[{index}].volumeMounts[{number}]"
    return None


def _volumes(view: View) -> Iterator[Said]:
    for pool in view.pools:
        known = {str(volume.get("name")) for volume in objects(pool.pod_spec.get("volumes"))}
        for at, template in pool.templates() if pool.pod else ():
            spec = mapping(template.get("spec"))
            for index, volume in enumerate(objects(spec.get("volumes"))):
                kinds = [key for key, value in volume.items() if key not in _NO_SOURCE and value is not None]
                if len(kinds) > 1:
                    yield Said(
                        f"{at}.spec.volumes[{index}]",
                        f"has the sources {' and '.join(kinds)}, and a volume has one: Kubernetes refuses the pod",
                        f"keep one of {', '.join(kinds)}",
                    )
            for kind in ("containers", "initContainers"):
                for index, container in enumerate(objects(spec.get(kind))):
                    yield from _mounts(f"{at}.spec.{kind}[{index}].volumeMounts", container, known)


def _mounts(at: str, container: Json, known: set[str]) -> Iterator[Said]:
    seen: set[str] = set()
    for index, mount in enumerate(objects(container.get("volumeMounts"))):
        name, where = mount.get("name"), str(mount.get("mountPath"))
        if "$patch" in mount:
            continue
        if isinstance(name, str) and name not in known:
            yield Said(
                f"{at}[{index}].name",
                f"is {name!r}, and the pod has no volume of that name: Kubernetes refuses the pod",
                "add it to volumes of the podTemplate, or correct the name",
            )
        if where in seen:
            yield Said(
                f"{at}[{index}].mountPath",
                f"is {where} a second time in this container: Kubernetes refuses the pod",
                "mount each volume at a path of its own",
            )
        seen.add(where)


def _handlers(view: View) -> Iterator[Said]:
    for pool in view.pools:
        for at, template in pool.templates():
            for kind in ("containers", "initContainers"):
                for index, container in enumerate(objects(mapping(template.get("spec")).get(kind))):
                    here = f"{at}.spec.{kind}[{index}]"
                    life = mapping(container.get("lifecycle"))
                    places = [(f"{here}.{name}", container.get(name)) for name in _PROBES]
                    places += [(f"{here}.lifecycle.{name}", life.get(name)) for name in _HOOKS]
                    yield from (said for path, found in places for said in _one_handler(path, mapping(found)))


def _one_handler(path: str, found: Json) -> Iterator[Said]:
    taken = [name for name in _HANDLERS if found.get(name) is not None]
    if len(taken) > 1:
        yield Said(
            path,
            f"has {' and '.join(taken)}, and may have one of them: Kubernetes refuses the pod",
            f"keep one of {', '.join(taken)}",
        )


def _service_links(view: View) -> Iterator[Said]:
    for pool in view.pools:
        path = pool.template_path("enableServiceLinks")
        if path is not None and pool.pod_spec.get("enableServiceLinks") is True:
            yield Said(
                path,
                "turns service links on: a Service called vllm in this namespace would set VLLM_PORT to tcp://…, which the engine "
                "refuses, and each vllm-… one adds variables that it warns about",
                "remove it, or keep every Service whose name begins with vllm out of the namespace",
            )


def _named_vllm(view: View) -> Iterator[Said]:
    if view.name == "vllm":
        yield Said(
            "metadata.name",
            "is vllm: engines of this deployment are safe, but a Service of that name sets VLLM_PORT in every other pod of the "
            "namespace that has service links, and vLLM refuses it there",
            "choose another name",
        )


_TMP: Final = {"name": "engine", "volumeMounts": [{"name": "scratch", "mountPath": "/tmp"}]}


def _engine(**fields: object) -> dict[str, object]:
    return {"spec": {"containers": [{"name": "engine", **fields}]}}


_DATA: Final = {"name": "scratch", "mountPath": "/data"}
_CLAIM: Final = {"name": "scratch", "persistentVolumeClaim": {"claimName": "rwx"}}

RULES: Final = (
    Rule(
        name="MetricsDirectoryCovered",
        severity="Warning",
        summary="A volume lies over the folder in which the engine keeps its metrics.",
        why="The API servers share counters through mapped files there, which network file systems do not keep well.",
        sources=("https://github.com/vllm-project/vllm/issues/49983",),
        claims=("A9", "A20"),
        check=_metrics_directory,
        good=(
            example(
                podTemplate={"spec": {"containers": [_TMP], "volumes": [{"name": "scratch", "emptyDir": {}}]}}
            ),
            example(
                engine={"env": [{"name": "PROMETHEUS_MULTIPROC_DIR", "value": "/run/metrics"}]},
                podTemplate={"spec": {"containers": [_TMP], "volumes": [_CLAIM]}},
            ),
        ),
        bad=(
            example(podTemplate={"spec": {"containers": [_TMP], "volumes": [_CLAIM]}}),
            example(
                engine={"env": [{"name": "PROMETHEUS_MULTIPROC_DIR", "value": "/data/prom/files"}]},
                podTemplate={
                    "spec": {
                        "containers": [
                            {"name": "engine", "volumeMounts": [{"name": "scratch", "mountPath": "/data"}]}
                        ],
                        "volumes": [_CLAIM],
                    }
                },
            ),
        ),
    ),
    Rule(
        name="VolumesContradict",
        severity="Error",
        summary="Volumes and mounts of a pod template do not go together.",
        why="Kubernetes refuses the pod, and the operator would try again for ever.",
        sources=("https://kubernetes.io/docs/concepts/storage/volumes/",),
        check=_volumes,
        good=(
            example(podTemplate={"spec": {"containers": [_TMP], "volumes": [{"name": "scratch"}]}}),
            example(
                podTemplate={"spec": {"volumes": [{"name": "scratch", "emptyDir": {}}]}},
                pools=[{"name": "a", "podTemplate": {"spec": {"containers": [_TMP]}}}],
            ),
        ),
        bad=(
            example(podTemplate={"spec": {"containers": [_TMP]}}),
            example(podTemplate={"spec": {"volumes": [{**_CLAIM, "emptyDir": {}}]}}),
            example(
                podTemplate={
                    "spec": {
                        "initContainers": [
                            {
                                "name": "copy",
                                "image": "busybox:1.37",
                                "volumeMounts": [_DATA, {**_DATA, "subPath": "x"}],
                            }
                        ],
                        "volumes": [_CLAIM],
                    }
                }
            ),
        ),
    ),
    Rule(
        name="HandlersContradict",
        severity="Error",
        summary="A probe or a hook of a pod template says two things to do.",
        why="Kubernetes refuses the pod, and the operator would try again for ever.",
        sources=(
            "https://kubernetes.io/docs/concepts/configuration/liveness-readiness-startup-probes/",
            "https://kubernetes.io/docs/concepts/containers/container-lifecycle-hooks/",
        ),
        check=_handlers,
        good=(
            example(podTemplate=_engine(readinessProbe={"httpGet": {"path": "/health", "port": 8000}})),
            example(podTemplate=_engine(lifecycle={"preStop": {"sleep": {"seconds": 5}}})),
        ),
        bad=(
            example(
                podTemplate=_engine(readinessProbe={"tcpSocket": {"port": 1}, "exec": {"command": ["a"]}})
            ),
            example(
                podTemplate=_engine(
                    lifecycle={"preStop": {"sleep": {"seconds": 5}, "exec": {"command": ["a"]}}}
                )
            ),
        ),
    ),
    Rule(
        name="ServiceLinks",
        severity="Warning",
        summary="Kubernetes' service links are turned on for the engine.",
        why="They turn the names of Services into environment variables, and vLLM reads what begins with VLLM_.",
        sources=(
            "https://github.com/vllm-project/vllm/issues/34199",
            "https://github.com/defilantech/LLMKube/issues/358",
        ),
        check=_service_links,
        good=(example(), example(podTemplate={"spec": {"enableServiceLinks": False}})),
        bad=(example(podTemplate={"spec": {"enableServiceLinks": True}}),),
    ),
    Rule(
        name="NamedVllm",
        severity="Warning",
        summary="The deployment is called vllm.",
        why="Services are named after it, and a Service called vllm breaks other pods' vLLM.",
        sources=("https://github.com/vllm-project/vllm/issues/34199",),
        check=_named_vllm,
        good=(example(), example(name="vllm-chat")),
        bad=(example(name="vllm"),),
    ),
)
