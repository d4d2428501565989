"""What is wrong with an object's shape, before any rule can look at its meaning. Nothing here can be allowed away."""

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from typing import Any, Final

from kintsugi.api.fields import unknown_field_problems
from kintsugi.api.objects import DeepSeekV4Deployment
from kintsugi.api.structural import structural, walk
from kintsugi.core.catalog.load import in_force
from kintsugi.core.pod.fields import unknown_fields as unknown_pod_fields
from kintsugi.core.pod.owned import template_problems
from kintsugi.core.preflight.finding import Finding

INVALID: Final = "InvalidField"
UNKNOWN: Final = "UnknownField"
UNKNOWN_IN_POD: Final = "UnknownPodField"
OWNED: Final = "OperatorOwnedField"
RESTART: Final = "RestartPolicy"

_IMPERATIVES: Final = ("use ", "set ", "write ", "remove ", "shorten ", "quote ", "choose ", "name ")
_ARGUMENT: Final = re.compile(r"engine\.args\.([A-Za-z0-9_]+)$")
_POD_FIELDS: Final = (
    "nodeSelector",
    "tolerations",
    "affinity",
    "imagePullSecrets",
    "priorityClassName",
    "volumes",
)
_ELSEWHERE: Final = {
    **{name: f"podTemplate.spec.{name}" for name in _POD_FIELDS},
    **dict.fromkeys(("gpus", "gpuCount", "gpusPerNode"), "hardware.gpusPerInstance"),
    **dict.fromkeys(("gpuType", "gpuName"), "hardware.gpu"),
    **dict.fromkeys(("nodes", "nodeCount"), "hardware.nodesPerInstance"),
}
"""Names that people know from elsewhere, and the field of a deployment or of a pool that says it here."""
_ELSEWHERE_ONCE: Final = {
    "spec.model.name": "spec.model.id",
    "spec.model.path": "spec.model.source.pvc",
    "spec.model.source.path": "spec.model.source.pvc",
    "spec.model.token": "spec.model.source.hub.tokenSecretRef",
    "spec.healing.enabled": "spec.healing.mode",
    "spec.healing.dryRun": "spec.healing.mode",
}
_OFTEN: Final = ("name", "key", "path", "enabled")
"""Names that say nothing by themselves: another field of that name is hardly the one that was meant."""
_TEMPLATES: Final = ("podTemplate", "leaderPodTemplate", "workerPodTemplate")


def invalid(path: str, text: str) -> Finding:
    """A field whose value can't be read: `text` continues its path, as in `must be a list`."""
    for name in (path, path.rpartition(".")[2]):
        text = text.removeprefix(f"{name} ")
    if text.startswith("must match") and "Ki|Mi" in text:
        return _finding(path, "is no quantity of Kubernetes", "write it as 64Gi (2^30) or 64G (10^9)")
    if text == "input should be a valid integer":
        return _finding(path, text, "write a whole number, without unit or quotes: 8192, not 8K")
    if text == "input should be a valid string":
        return _finding(path, text, "write it in quotes")
    for mark in ("; ", ": "):
        said, _, cure = text.rpartition(mark)
        if said and cure.startswith(_IMPERATIVES):
            return _finding(path, said, cure)
    for opening, verb in (("must be ", "make it "), ("input should be ", "write ")):
        if text.startswith(opening):
            return _finding(path, text, verb + text.removeprefix(opening).partition(":")[0])
    return _finding(path, text, "correct the value")


def _finding(path: str, text: str, cure: str) -> Finding:
    return Finding("Error", INVALID, path, f"{path} {text}", cure)


def unknown_fields(raw: Mapping[str, Any]) -> Iterator[Finding]:
    """Fields that nobody reads, in the object and in its pod templates."""
    for problem in unknown_field_problems(_searchable(raw)):
        text, _, meant = problem.message.partition("; did you mean ")
        path = problem.path
        better = (
            _elsewhere(path)
            or _same_name(path)
            or _as_flag(path)
            or meant.removesuffix("?")
            or _similar(path)
        )
        hint = f"; did you mean {better}?" if better else ""
        cure = f"write {better}" if better else "remove it"
        yield Finding("Error", UNKNOWN, problem.path, f"{problem.path} {text}{hint}", cure)
    for at, template in pod_templates(raw):
        yield from _unknown_in_template(at, template)
    for at, engine in _engines(raw):
        yield from _unknown_in_variables(at, engine)


def _elsewhere(path: str) -> str:
    """The field that says here what an unknown one says elsewhere; empty where none is known to."""
    parent, _, name = path.rpartition(".")
    within = "spec.pools[]" if parent.startswith("spec.pools[") else "spec"
    here = _ELSEWHERE.get(name)
    return _ELSEWHERE_ONCE.get(path) or (f"{within}.{here}" if here else "")


def _same_name(path: str) -> str:
    """The field whose name, or whose last two names together, is that of an unknown one: `spec.shmSize` is
    `spec.engine.shm.size`, `max_num_seqs` is `maxNumSeqs`. Empty where no field is."""
    name = path.rpartition(".")[2].lower().replace("_", "")
    found = [known for known in _known_paths() if name in _spellings(known)[name in _OFTEN :]]
    return min(found, key=lambda known: (known.startswith("spec.pools"), known.count("."), known), default="")


def _similar(path: str) -> str:
    """A field beside an unknown one whose name is a little like it, or one elsewhere whose name is very much so."""
    parent, _, name = re.sub(r"\[\d+\]", "[]", path).rpartition(".")
    beside = [k.rpartition(".")[2] for k in _known_paths() if k.rpartition(".")[0] == parent]
    if close := get_close_matches(name, beside, n=1, cutoff=0.5):
        return close[0]
    if name in _OFTEN:
        return ""
    everywhere = {
        k.rpartition(".")[2]: k for k in reversed(_known_paths()) if not k.startswith("spec.pools[].")
    }
    close = get_close_matches(name, sorted(everywhere), n=1, cutoff=0.8)
    return everywhere[close[0]] if close else ""


def _as_flag(path: str) -> str:
    """How an engine argument that has no typed field is written; empty where the engine knows none of that name."""
    found = _ARGUMENT.search(path)
    if found is None:
        return ""
    words = re.sub(r"(?<!^)(?=[A-Z])", "-", found[1]).lower().replace("_", "-")
    if words == "swap-space":
        return "spec.engine.kvOffload.hostMemoryPerEngine"
    known = f"--{words}" in in_force().releases[-1][1]
    return f"--{words} in extraArgs" if known else ""


@cache
def _known_paths() -> tuple[str, ...]:
    schema = structural(DeepSeekV4Deployment)
    return tuple(path for path, _ in walk(schema) if path.startswith("spec."))


def _spellings(path: str) -> tuple[str, str]:
    parts = path.replace("[]", "").replace("{}", "").lower().split(".")
    return parts[-1], "".join(parts[-2:])


def _searchable(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """`raw`, its metadata only where it has the shape that the search of the last-applied annotation needs."""
    metadata = raw.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, Mapping) else None
    kept = {"metadata": {"annotations": annotations}} if isinstance(annotations, Mapping) else {}
    return {key: value for key, value in raw.items() if key != "metadata"} | kept


def pod_templates(raw: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every pod template of an object with its path, the deployment's first."""
    spec = _map(raw.get("spec"))
    pools = spec.get("pools")
    places = [("spec", spec)]
    places += [(f"spec.pools[{i}]", _map(p)) for i, p in enumerate(pools if isinstance(pools, list) else ())]
    for at, owner in places:
        for name in _TEMPLATES:
            if isinstance(owner.get(name), Mapping):
                yield f"{at}.{name}", owner[name]


def _engines(raw: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    spec = _map(raw.get("spec"))
    pools = spec.get("pools")
    places = [("spec.engine", spec)]
    places += [
        (f"spec.pools[{i}].engine", _map(p)) for i, p in enumerate(pools if isinstance(pools, list) else ())
    ]
    yield from ((at, _map(owner.get("engine"))) for at, owner in places)


def _unknown_in_variables(at: str, engine: Mapping[str, Any]) -> Iterator[Finding]:
    """Below `env` and `envFrom` stands what Kubernetes defines, and other names are dropped in silence."""
    variables = [{"valueFrom": _map(entry).get("valueFrom")} for entry in _items(engine.get("env"))]
    container = {"env": variables, "envFrom": [*_items(engine.get("envFrom"))]}
    for problem in unknown_pod_fields({"spec": {"containers": [container]}}):
        cure = "correct the name" if "did you mean" in problem.message else "remove it"
        path = problem.path.replace("spec.containers[0]", at, 1)
        yield Finding("Error", UNKNOWN_IN_POD, path, f"{path} {problem.message}", cure)


def _items(node: Any) -> list[Any]:
    return node if isinstance(node, list) else []


def template_faults(at: str, template: Mapping[str, Any]) -> Iterator[Finding]:
    """What keeps a pod template from being merged: fields of the operator's, and lists that are none."""
    for problem in template_problems(template):
        path = f"{at}.{problem.path}"
        text, _, cure = problem.message.partition(": ")
        if problem.path == "spec.restartPolicy":
            yield Finding(
                "Error", RESTART, path, f"{path} {problem.message}", "remove it: the operator sets Always"
            )
        elif text == "belongs to the operator" or text.startswith("is the serving port"):
            yield Finding("Error", OWNED, path, f"{path} {text}", cure)
        elif problem.message.startswith("is unknown"):
            better = problem.message.rpartition("did you mean ")[2].removesuffix("?")
            yield Finding("Error", UNKNOWN, path, f"{path} {problem.message}", f"write {better}")
        else:
            yield invalid(path, problem.message)


def _unknown_in_template(at: str, template: Mapping[str, Any]) -> Iterator[Finding]:
    for problem in unknown_pod_fields(template):
        cure = "correct the name" if "did you mean" in problem.message else "remove it"
        path = f"{at}.{problem.path}"
        yield Finding("Error", UNKNOWN_IN_POD, path, f"{path} {problem.message}", cure)


def _map(node: Any) -> Mapping[str, Any]:
    return node if isinstance(node, Mapping) else {}
