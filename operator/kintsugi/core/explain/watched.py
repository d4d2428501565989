"""What is watched for, which triggers act, and what each has to show for itself so far."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, get_args

from kintsugi.api.condition import find_condition
from kintsugi.api.healing import ADVICE_ONLY, HealingSpec, Trigger, Triggers
from kintsugi.core.explain.case import Case
from kintsugi.core.finding import Detector
from kintsugi.core.metric_contract import GPU_SERIES, NEEDS, SOURCES, name_in
from kintsugi.core.series import TABLE
from kintsugi_engine import contract

Json: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class TriggerWords:
    """`watches`: what it looks for. `figures`: the line in force, from the spec. `proof`: what must hold before it acts."""

    watches: str
    figures: Callable[[Triggers], str]
    proof: str
    signal: str = ""
    """The operator's own metric that shows how near to the line healthy instances come; '' where there is none."""
    needs: tuple[str, ...] = ()
    """What DataFresh calls what it can't do without beside the series of `core.metric_contract`."""


def _stall(t: Triggers) -> str:
    first = "60" if t.stall.for_seconds is None else f"{t.stall.for_seconds}"
    last = "300" if t.stall.remove_after_seconds is None else f"{t.stall.remove_after_seconds}"
    unsaid = t.stall.for_seconds is None or t.stall.remove_after_seconds is None
    more = " (longer where prefill is not chunked)" if unsaid else ""
    return f"withdrawn after {first} s without a step, replaced after {last} s{more}"


TRIGGER_WORDS: Final[Mapping[str, TriggerWords]] = {
    "dead": TriggerWords(
        "a container that ended, or refuses connections",
        lambda t: "third restart in 30 min, or not Ready again",
        "the kubelet's own statements, not ours",
    ),
    "stall": TriggerWords(
        "work, and no engine step; canaries unanswered",
        _stall,
        "three canaries of one token each stay unanswered, and no step counter moves; one step or one answer ends it",
        signal="flat_seconds",
    ),
    "fragmentation": TriggerWords(
        "memory that is free but in pieces",
        lambda t: (
            f"above {t.fragmentation.threshold_percent} % for {t.fragmentation.for_seconds} s "
            f"({', '.join(t.fragmentation.sources)})"
        ),
        "more than half of a whole window above the line, in a process that began at least 5 points below it",
        signal="fragmentation_percent",
    ),
    "throughput": TriggerWords(
        "steps longer than what they hold explains",
        lambda t: f"{t.throughput.drop_percent} % of the step rate lost for {t.throughput.for_seconds} s",
        "a whole window over the line, against its own past and against siblings alike, and two clocks that agree; the "
        "figure is lostPercent in status.instances[].signals, which healthy weeks keep far below the line",
        signal="lost_percent",
    ),
    "errors": TriggerWords(
        "requests that fail here and not in siblings",
        lambda t: f"more than {t.errors.max_percent} % fail",
        "99 % confidence over at least 20 requests, then a round of 20 canaries that fails here and not in siblings",
        signal="error_percent",
    ),
    "corruptedOutput": TriggerWords(
        "wrong answers to known probes",
        lambda t: "half of eight known answers wrong, where siblings answer right",
        "two bursts of eight questions a minute apart, both at least half wrong, and two siblings of the same revision (one "
        "in a pool of two) with at most one slip; a pool of one is reported only",
    ),
    "memoryGrowth": TriggerWords(
        "host memory that grows towards its limit",
        lambda t: f"reaches it within {t.memory_growth.horizon_seconds} s",
        "a trend over hours, and a forecast within the horizon",
        signal="memory_percent",
        needs=(contract.CONTAINER_MEMORY_ANONYMOUS, "resources.limits.memory"),
    ),
    "deviceHealth": TriggerWords(
        "a GPU that its device plugin calls unhealthy",
        lambda t: f"for {t.device_health.for_seconds} s",
        "the device plugin's word, not ours; replaced on another node only, and left where none has room",
        needs=("allocatedResourcesStatus", "health of "),
    ),
    "starvedAdmission": TriggerWords(
        "a queue that stands while memory and slots are free",
        lambda t: "against siblings",
        "canaries wait in vain here, and not in siblings",
    ),
    "rankDivergence": TriggerWords(
        "one rank that leaves its sisters",
        lambda t: "within one instance",
        "its sisters in the same instance go on",
    ),
    "cacheHitRate": TriggerWords(
        "few prompt tokens found in the prefix cache",
        lambda t: f"below {t.cache_hit_rate.min_percent} %",
        "it never acts",
        signal="cache_hit_percent",
    ),
    "preemptions": TriggerWords(
        "requests pushed out of the KV cache",
        lambda t: f"above {t.preemptions.max_per_second:g} a second",
        "it never acts",
        signal="preemptions_per_second",
    ),
    "gpuUtilization": TriggerWords(
        "GPU use outside a band",
        lambda t: f"outside {t.gpu_utilization.min_percent} to {t.gpu_utilization.max_percent} %",
        "it never acts",
        signal="gpu_utilization_percent",
        needs=(GPU_SERIES,),
    ),
}
"""By trigger, surest first; advice last."""

BUILT: Final = frozenset(detector.value for detector in Detector)

NEVER_ACTS: Final[Mapping[str, str]] = {
    "rankDivergence": "advice only in this version, whatever its mode: a person looks at that rank",
}
"""Triggers whose findings lead to no replacement though their mode may say Act (`detect.diverging`)."""
TRUST_WINDOW: Final = "7d"
"""A week holds the usual ups and downs of traffic. Assumed."""


def watched(case: Case) -> list[Json]:
    """Every trigger of the spec; empty where the spec can't be read."""
    if case.spec is None:
        return []
    healing = case.spec.healing
    return [_trigger(case, healing, name) for name in TRIGGER_WORDS if name in get_args(Trigger)]


def _trigger(case: Case, healing: HealingSpec, name: str) -> Json:
    words = TRIGGER_WORDS[name]
    mode, built = healing.mode_of(name), name in BUILT
    now = [(one, each) for one in case.status.instances for each in one.findings if each.detector == name]
    held = {entry.instance: entry.gate for entry in case.status.remediations.withheld}
    sick = {one.name for one, each in now if each.severity.upper() == "SICK"}
    return {
        "trigger": name,
        "built": built,
        "mode": mode,
        "adviceOnly": name in ADVICE_ONLY,
        "watches": words.watches,
        "figures": words.figures(healing.triggers),
        "proof": words.proof,
        "effect": _effect(name, mode, built),
        "blind": _blind(case, name) if built else "",
        "query": _query(case, words) if built else "",
        "now": {
            "sick": len(sick),
            "suspect": len({one.name for one, each in now if each.severity.upper() == "SUSPECT"}),
            "heldBackByMode": sum(held.get(instance) in ("mode", "approval") for instance in sick),
        },
        "record": _record(case, name),
    }


def _effect(name: str, mode: str, built: bool) -> str:
    if not built:
        return "not built in this version: nothing is found by it"
    if name in NEVER_ACTS:
        return NEVER_ACTS[name]
    if name in ADVICE_ONLY:
        return "advice only: a new instance would not cure it"
    return {"Act": "acts", "Recommend": "recommends, and waits for a person"}.get(
        mode, "observes: shows what it finds"
    )


def _blind(case: Case, name: str) -> str:
    """Which series it lacks, as the condition DataFresh says; '' where none is named."""
    needs = _needs(case, name)
    fresh = find_condition(case.status.conditions, "DataFresh")
    if fresh is None or fresh.status != "True" or not needs:
        return ""
    lacking = [each.strip() for each in needs if each in fresh.message]
    return f"not judged, since {', '.join(lacking)} is not exported" if lacking else ""


def _needs(case: Case, name: str) -> tuple[str, ...]:
    """What DataFresh calls each thing that the trigger can't do without."""
    if name == "fragmentation" and case.spec is not None:
        sources = case.spec.healing.triggers.fragmentation.sources
        return tuple(TABLE[SOURCES[source]].names[0].metric for source in sources)
    signals = NEEDS.get(Detector(name), ())
    return tuple(dict.fromkeys((*(name_in(signal, None) for signal in signals), *TRIGGER_WORDS[name].needs)))


def _query(case: Case, words: TriggerWords) -> str:
    """PromQL over the operator's own metrics: what the signal reached on each pool's worst instance, 1 % of the time left
    out. A signal that falls when things go wrong is looked at from below."""
    if not words.signal:
        return ""
    quantile = 0.01 if words.signal == "cache_hit_percent" else 0.99
    fold = "min" if words.signal == "cache_hit_percent" else "max"
    series = f'kintsugi_instance_signal{{fleet="{case.full_name}",signal="{words.signal}"}}'
    return f"{fold} by (pool) (quantile_over_time({quantile}, {series}[{TRUST_WINDOW}]))"


def _record(case: Case, name: str) -> Json:
    """How attempts for this trigger ended, as far as the status and the Remediations that were read remember them."""
    ended: dict[str, str | None] = {}
    for entry in case.status.remediations.recent:
        if entry.trigger == name:
            ended[entry.id] = entry.outcome
    for record in case.remediations:
        if record.spec.trigger == name and record.status.outcome is not None:
            ended[record.spec.attempt_id] = record.status.outcome
    counted = Counter(outcome or "unknown" for outcome in ended.values())
    return {
        "attempts": len(ended),
        "cured": counted["Cured"],
        "notCured": counted["NotCured"],
        "cancelled": counted["Cancelled"],
        "other": len(ended) - counted["Cured"] - counted["NotCured"] - counted["Cancelled"],
    }
