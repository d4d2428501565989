"""Rules that span fields, as data: each in CEL for the API server and as a predicate for everything else.

Both forms are run on the rule's own examples and on generated objects by the tests. The expressions keep to the
part of CEL that every evaluator has. A default named in a rule is the model's own.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kintsugi.api.healing import (
    DEFAULT_STALL_FOR_SECONDS,
    DEFAULT_STALL_REMOVE_AFTER_SECONDS,
    GpuUtilizationTrigger,
    Storm,
)

MAX_NAME_AND_POOL: Final = 45
"""Names of pods add a revision and a suffix to these two, and a pod's name must fit a label value (63)."""

_GPU: Final = GpuUtilizationTrigger()
_STORM: Final = Storm()


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule on the value at `path` (`a.b`, items of a list as `list[]`; empty: the whole object).

    `field` names the field under `path` that a refusal points at. An example is the value at `path`; where the
    rule compares with the past (`transition`) it is the pair of the old and the new value.
    """

    path: str
    cel: str
    holds: Callable[[Any], bool]
    message: str
    good: tuple[Any, ...]
    bad: tuple[Any, ...]
    field: str | None = None
    transition: bool = False

    def as_validation(self) -> dict[str, Any]:
        """The entry under `x-kubernetes-validations`."""
        out = {"rule": self.cel, "message": self.message}
        return out if self.field is None else out | {"fieldPath": f".{self.field}"}


def _pool_names(spec: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(pool["name"] for pool in spec.get("pools") or ({"name": "main"},))


def _name(whole: Mapping[str, Any]) -> str:
    return str(whole.get("metadata", {}).get("name", ""))


_DNS_NAME: Final = "^[a-z]([-a-z0-9]*[a-z0-9])?$"


def _is_service_name(whole: Mapping[str, Any]) -> bool:
    name = _name(whole)
    plain = name.replace("-", "a")
    return not name or (
        name[0].isalpha()
        and name[-1] != "-"
        and plain.isascii()
        and plain.isalnum()
        and plain == plain.lower()
    )


def _in_order(ladder: list[str]) -> bool:
    rungs = ("Compact", "Recreate", "RecreateElsewhere")
    places = [rungs.index(rung) for rung in ladder]
    return places == sorted(set(places))


_SPEC: Final[tuple[Rule, ...]] = (
    Rule(
        path="",
        cel=f"self.metadata.name.matches('{_DNS_NAME}')",
        holds=_is_service_name,
        message="metadata.name must be lower case letters, digits and '-', and begin with a letter: "
        "Services are named after it",
        good=({"metadata": {"name": "chat-2"}, "spec": {}},),
        bad=({"metadata": {"name": "2chat"}, "spec": {}}, {"metadata": {"name": "chat.v4"}, "spec": {}}),
    ),
    Rule(
        path="",
        cel="has(self.spec.pools) && size(self.spec.pools) > 0"
        f" ? self.spec.pools.all(p, size(self.metadata.name) + size(p.name) <= {MAX_NAME_AND_POOL})"
        f" : size(self.metadata.name) + 4 <= {MAX_NAME_AND_POOL}",
        holds=lambda self: all(
            len(_name(self)) + len(pool) <= MAX_NAME_AND_POOL for pool in _pool_names(self["spec"])
        ),
        message=f"metadata.name and the name of each of spec.pools must have at most {MAX_NAME_AND_POOL} "
        "characters together (a deployment without pools has the pool main): shorten one",
        good=(
            {"metadata": {"name": "c" * 41}, "spec": {}},
            {"metadata": {"name": "c" * 40}, "spec": {"pools": [{"name": "short"}]}},
        ),
        bad=(
            {"metadata": {"name": "c" * 42}, "spec": {}},
            {"metadata": {"name": "c" * 40}, "spec": {"pools": [{"name": "a"}, {"name": "longer"}]}},
        ),
    ),
    Rule(
        path="spec",
        cel="!has(self.replicas) || has(self.scalePool) || !has(self.pools) || size(self.pools) <= 1",
        holds=lambda self: "replicas" not in self or "scalePool" in self or len(self.get("pools", ())) <= 1,
        message="scalePool must name the pool that replicas is about, since there are several pools",
        good=({"replicas": 2}, {"replicas": 2, "scalePool": "b", "pools": [{"name": "a"}, {"name": "b"}]}),
        bad=({"replicas": 2, "pools": [{"name": "a"}, {"name": "b"}]},),
        field="replicas",
    ),
    Rule(
        path="spec",
        cel="!has(self.scalePool) || (has(self.pools) && size(self.pools) > 0"
        " ? self.pools.exists(p, p.name == self.scalePool) : self.scalePool == 'main')",
        holds=lambda self: "scalePool" not in self or self["scalePool"] in _pool_names(self),
        message="scalePool must be the name of one of pools",
        good=({"scalePool": "main"}, {"scalePool": "b", "pools": [{"name": "a"}, {"name": "b"}]}, {}),
        bad=({"scalePool": "c"}, {"scalePool": "main", "pools": [{"name": "a"}]}),
        field="scalePool",
    ),
    Rule(
        path="spec.model.source",
        cel="[has(self.pvc), has(self.hub), has(self.image)].filter(x, x).size() == 1",
        holds=lambda self: sum(key in self for key in ("pvc", "hub", "image")) == 1,
        message="source must have exactly one of pvc, hub and image",
        good=({"hub": {}}, {"pvc": {"claimName": "models"}}, {"image": {"reference": "registry.local/v4:1"}}),
        bad=({}, {"hub": {}, "pvc": {"claimName": "models"}}),
    ),
    Rule(
        path="spec.healing.triggers.cacheHitRate",
        cel="!has(self.mode) || self.mode != 'Act'",
        holds=lambda self: self.get("mode") != "Act",
        message="mode can't be Act: a new instance starts with an empty cache; use Observe or Recommend",
        good=({}, {"mode": "Observe"}, {"mode": "Recommend"}),
        bad=({"mode": "Act"},),
        field="mode",
    ),
    Rule(
        path="spec.healing.triggers.preemptions",
        cel="!has(self.mode) || self.mode != 'Act'",
        holds=lambda self: self.get("mode") != "Act",
        message="mode can't be Act: preemptions are a lack of capacity, which no restart cures; "
        "use Observe or Recommend",
        good=({}, {"mode": "Observe"}, {"mode": "Recommend"}),
        bad=({"mode": "Act"},),
        field="mode",
    ),
    Rule(
        path="spec.healing.triggers.gpuUtilization",
        cel="!has(self.mode) || self.mode == 'Observe'",
        holds=lambda self: self.get("mode", "Observe") == "Observe",
        message="mode can only be Observe: the use of a GPU says nothing about its health",
        good=({}, {"mode": "Observe"}),
        bad=({"mode": "Act"}, {"mode": "Recommend"}),
        field="mode",
    ),
    Rule(
        path="spec.healing.triggers.gpuUtilization",
        cel=f"(has(self.minPercent) ? self.minPercent : {_GPU.min_percent})"
        f" < (has(self.maxPercent) ? self.maxPercent : {_GPU.max_percent})",
        holds=lambda self: (
            self.get("minPercent", _GPU.min_percent) < self.get("maxPercent", _GPU.max_percent)
        ),
        message=f"minPercent (absent: {_GPU.min_percent}) must be less than "
        f"maxPercent (absent: {_GPU.max_percent})",
        good=({}, {"minPercent": 10}, {"minPercent": 95, "maxPercent": 99}),
        bad=({"minPercent": 95}, {"maxPercent": 70}),
        field="minPercent",
    ),
    Rule(
        path="spec.healing.triggers.stall",
        cel=f"(has(self.forSeconds) ? self.forSeconds : {DEFAULT_STALL_FOR_SECONDS})"
        " < (has(self.removeAfterSeconds) ? self.removeAfterSeconds"
        f" : {DEFAULT_STALL_REMOVE_AFTER_SECONDS})",
        holds=lambda self: (
            self.get("forSeconds", DEFAULT_STALL_FOR_SECONDS)
            < self.get("removeAfterSeconds", DEFAULT_STALL_REMOVE_AFTER_SECONDS)
        ),
        message=f"forSeconds (absent: {DEFAULT_STALL_FOR_SECONDS}) must be less than removeAfterSeconds "
        f"(absent: {DEFAULT_STALL_REMOVE_AFTER_SECONDS}): an instance is withdrawn before it is removed",
        good=({}, {"forSeconds": 90}, {"forSeconds": 600, "removeAfterSeconds": 1200}),
        bad=({"forSeconds": 300}, {"forSeconds": 600, "removeAfterSeconds": 600}, {"removeAfterSeconds": 60}),
        field="removeAfterSeconds",
    ),
    Rule(
        path="spec.healing.storm",
        cel=f"(has(self.cooldownSeconds) ? self.cooldownSeconds : {_STORM.cooldown_seconds})"
        f" <= (has(self.trialAfterSeconds) ? self.trialAfterSeconds : {_STORM.trial_after_seconds})",
        holds=lambda self: (
            self.get("cooldownSeconds", _STORM.cooldown_seconds)
            <= self.get("trialAfterSeconds", _STORM.trial_after_seconds)
        ),
        message=f"trialAfterSeconds (absent: {_STORM.trial_after_seconds}) must not be less than "
        f"cooldownSeconds (absent: {_STORM.cooldown_seconds})",
        good=({}, {"cooldownSeconds": 1800}),
        bad=({"cooldownSeconds": 3600}, {"trialAfterSeconds": 60}),
        field="trialAfterSeconds",
    ),
    Rule(
        path="spec.healing.ladder",
        cel="self.all(x, self.exists_one(y, x == y))"
        " && (!('Compact' in self) || self[0] == 'Compact')"
        " && (!('RecreateElsewhere' in self) || self[size(self) - 1] == 'RecreateElsewhere')",
        holds=_in_order,
        message="ladder must name each remedy at most once, in the order Compact, Recreate, "
        "RecreateElsewhere",
        good=(["Compact", "Recreate", "RecreateElsewhere"], ["Recreate"], ["Compact", "RecreateElsewhere"]),
        bad=(["Recreate", "Compact"], ["Recreate", "Recreate"], ["RecreateElsewhere", "Recreate"]),
    ),
    Rule(
        path="spec.pools[].context",
        cel="!has(self.defaultOutputTokens) || self.defaultOutputTokens < self.maxTokens",
        holds=lambda self: self.get("defaultOutputTokens", 0) < self["maxTokens"],
        message="defaultOutputTokens must be less than maxTokens, so that a prompt fits beside the answer",
        good=({"maxTokens": 8192}, {"maxTokens": 8192, "defaultOutputTokens": 512}),
        bad=({"maxTokens": 512, "defaultOutputTokens": 512},),
        field="defaultOutputTokens",
    ),
)

_ENGINE: Final[tuple[Rule, ...]] = tuple(
    rule
    for engine in ("spec.engine", "spec.pools[].engine")
    for rule in (
        Rule(
            path=f"{engine}.env[]",
            cel="!has(self.value) || !has(self.valueFrom)",
            holds=lambda self: "value" not in self or "valueFrom" not in self,
            message="an environment variable has value or valueFrom, not both",
            good=({"name": "A"}, {"name": "A", "value": ""}, {"name": "A", "valueFrom": {"fieldRef": {}}}),
            bad=({"name": "A", "value": "", "valueFrom": {"fieldRef": {}}},),
            field="valueFrom",
        ),
        Rule(
            path=f"{engine}.args.speculative",
            cel="self.method != 'Disabled' || !has(self.numTokens)",
            holds=lambda self: self["method"] != "Disabled" or "numTokens" not in self,
            message="numTokens has no meaning when method is Disabled",
            good=({"method": "Disabled"}, {"method": "DSpark", "numTokens": 7}),
            bad=({"method": "Disabled", "numTokens": 7},),
            field="numTokens",
        ),
    )
)

DEPLOYMENT_RULES: Final = _SPEC + _ENGINE

REMEDIATION_RULES: Final[tuple[Rule, ...]] = (
    Rule(
        path="spec",
        cel="self == oldSelf",
        holds=lambda pair: bool(pair[0] == pair[1]),
        message="spec can't be changed: it says what was decided",
        good=(({"remedy": "Recreate", "attempt": 1}, {"remedy": "Recreate", "attempt": 1}),),
        bad=(({"remedy": "Recreate"}, {"remedy": "GiveUp"}),),
        transition=True,
    ),
)


def values_at(raw: Any, path: str, where: str = "") -> Iterator[tuple[str, Any]]:
    """Every value at a rule's `path` in `raw`, with its own path (`spec.pools[1].context`)."""
    if not path:
        yield where, raw
        return
    step, _, rest = path.partition(".")
    name = step.removesuffix("[]")
    if not isinstance(raw, Mapping) or name not in raw:
        return
    here = f"{where}.{name}".removeprefix(".")
    if step.endswith("[]"):
        for index, item in enumerate(raw[name]):
            yield from values_at(item, rest, f"{here}[{index}]")
    else:
        yield from values_at(raw[name], rest, here)


def broken(rules: tuple[Rule, ...], raw: Mapping[str, Any]) -> Iterator[tuple[str, Rule]]:
    """Each rule that `raw` breaks, with the path of the value. `raw` must fit the schema; no rule on change."""
    for rule in rules:
        if rule.transition:
            continue
        for where, value in values_at(raw, rule.path):
            if not rule.holds(value):
                yield (
                    f"{where}.{rule.field}".removeprefix(".") if rule.field else where or "metadata.name",
                    rule,
                )
