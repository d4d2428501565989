"""Where environment variables come from: sources that Kubernetes refuses, for which no pod would ever be made."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from kintsugi.core.preflight.rule import Rule, Said, example
from kintsugi.core.preflight.view import Json, View, mapping, objects

_PARTS: Final[Mapping[str, tuple[str, ...]]] = {
    "secretKeyRef": ("name", "key"),
    "configMapKeyRef": ("name", "key"),
    "fieldRef": ("fieldPath",),
    "resourceFieldRef": ("resource",),
    "secretRef": ("name",),
    "configMapRef": ("name",),
}
"""What a source must say."""
_IN_TEMPLATE: Final = "emplate.spec."


def _sources(view: View) -> Iterator[Said]:
    for at, owner in _owners(view):
        for index, entry in enumerate(objects(owner.get("env"))):
            yield from _variable(f"{at}.env[{index}]", entry)
        for index, entry in enumerate(objects(owner.get("envFrom"))):
            taken = {key: value for key, value in entry.items() if key != "prefix" and value is not None}
            yield from _one_source(f"{at}.envFrom[{index}]", taken, ("secretRef", "configMapRef"))


def _owners(view: View) -> Iterator[tuple[str, Json]]:
    """Whatever has variables of its own: the engine of the deployment, of each pool, and containers of templates."""
    spec = mapping(view.raw.get("spec"))
    places = [("spec", spec)]
    places += [(f"spec.pools[{index}]", pool) for index, pool in enumerate(objects(spec.get("pools")))]
    for at, place in places:
        yield f"{at}.engine", mapping(place.get("engine"))
        for name in ("podTemplate", "leaderPodTemplate", "workerPodTemplate"):
            pod = mapping(mapping(place.get(name)).get("spec"))
            for kind in ("containers", "initContainers"):
                for index, container in enumerate(objects(pod.get(kind))):
                    yield f"{at}.{name}.spec.{kind}[{index}]", container


def _variable(at: str, entry: Json) -> Iterator[Said]:
    name = entry.get("name")
    if isinstance(name, str) and ("=" in name or not name.isascii() or not name.isprintable()):
        yield Said(
            f"{at}.name",
            f"is {name[:40]!r}, and the name of a variable has printable ASCII characters without '=': Kubernetes refuses the pod",
            "correct the name",
        )
    source = entry.get("valueFrom")
    if source is None or "$patch" in entry:
        return
    if entry.get("value") and _IN_TEMPLATE in at:  # the schema says it of the engine's own
        yield Said(
            at,
            "has value and valueFrom, and a variable has one of them: Kubernetes refuses the pod",
            "keep one of them",
        )
    taken = {key: value for key, value in mapping(source).items() if value is not None}
    yield from _one_source(f"{at}.valueFrom", taken, tuple(_PARTS)[:4])


def _one_source(at: str, taken: Mapping[str, Any], known: tuple[str, ...]) -> Iterator[Said]:
    named = [key for key in taken if key in known]
    if len(named) != 1:
        if set(taken) <= set(known):
            yield Said(
                at,
                f"names {' and '.join(named) or 'no source'}, and must name one: Kubernetes refuses the pod",
                f"write one of {', '.join(known)}",
            )
        return
    missing = [part for part in _PARTS[named[0]] if not mapping(taken[named[0]]).get(part)]
    if missing:
        yield Said(
            f"{at}.{named[0]}",
            f"does not say its {' and its '.join(missing)}: Kubernetes refuses the pod",
            f"add {' and '.join(missing)}",
        )


def _from(**source: object) -> dict[str, object]:
    return {"env": [{"name": "A", "valueFrom": source}]}


_SECRET: Final = {"name": "s", "key": "k"}

RULES: Final = (
    Rule(
        name="VariableSource",
        severity="Error",
        summary="An environment variable has no source, several, one that is not whole, or no legal name.",
        why="Kubernetes refuses the pod, and the operator would try again for ever.",
        sources=("https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/",),
        check=_sources,
        good=(
            example(engine=_from(secretKeyRef=_SECRET)),
            example(engine=_from(fieldRef={"fieldPath": "status.podIP"})),
            example(engine=_from(resourceFieldRef={"resource": "limits.cpu"})),
            example(engine={"envFrom": [{"prefix": "A_", "configMapRef": {"name": "c", "optional": True}}]}),
        ),
        bad=(
            example(engine=_from()),
            example(engine={"env": [{"name": "A=B", "value": "c"}]}),
            example(engine=_from(secretKeyRef={"name": "s"})),
            example(engine=_from(secretKeyRef=_SECRET, fieldRef={"fieldPath": "status.podIP"})),
            example(engine={"envFrom": [{"prefix": "A_"}]}),
            example(pools=[{"name": "a", "engine": {"envFrom": [{"secretRef": {}}]}}]),
            example(
                podTemplate={
                    "spec": {
                        "containers": [
                            {
                                "name": "engine",
                                "env": [{"name": "A", "value": "x", "valueFrom": {"secretKeyRef": _SECRET}}],
                            }
                        ]
                    }
                }
            ),
        ),
    ),
)
