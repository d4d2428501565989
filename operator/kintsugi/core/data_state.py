"""Whether what the judge needs can be read, and what is missing: the material of the condition DataFresh."""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from kintsugi.api.healing import ADVICE_ONLY
from kintsugi.core.finding import Detector, InstanceVerdict, Verdict
from kintsugi.core.snapshot import Instance

NEVER_ACT: Final = ADVICE_ONLY | {Detector.LOAD.value, Detector.DIVERGING.value}
"""Triggers that act nowhere, so that none of them is held back."""
RENAMED: Final = (
    "does the engine run with --disable-log-stats, or does something rename its series? "
    "spec.monitoring.prometheus.metricPrefix names a prefix"
)


class DataState(NamedTuple):
    """`fresh` is False where an instance that is up can't be read; `reason` is one CamelCase word."""

    fresh: bool
    reason: str
    message: str


def data_state(
    verdicts: Iterable[InstanceVerdict], instances: Sequence[Instance], unmeasured: str = ""
) -> DataState:
    """Fresh where every instance that was Ready can be read. Missing series leave it fresh, and are named, as is why a
    Prometheus server says nothing (`unmeasured`), and which triggers only observe for it."""
    up = {i.uid for i in instances if not i.deleting}
    watched = [v for v in verdicts if v.uid in up and v.verdict is not Verdict.STARTING]
    if not watched:
        return DataState(True, "NothingToRead", "no instance is up yet")
    blind = [v for v in watched if not v.fresh]
    if blind:
        named = ", ".join(f"{v.name} ({v.reason}: {v.message})"[:120] for v in blind[:3])
        more = f" and {len(blind) - 3} more" if len(blind) > 3 else ""
        reason = "Watching" if all(v.reason == "Watching" for v in blind) else "MetricsUnavailable"
        return DataState(False, reason, f"{len(blind)} of {len(watched)}: {named}{more}")
    missing = sorted({series for v in watched for series in v.missing})
    said = [f"not exported, so not judged: {', '.join(missing)}"] if missing else []
    said += [unmeasured] if unmeasured else []
    if not said:
        return DataState(True, "AllRead", "")
    held = sorted({detector.value for v in watched for detector in v.lacking} - NEVER_ACT)
    said += [f"only observed for it: {', '.join(held)}"] if held else []
    said += [RENAMED] if any(name.startswith("vllm:") for name in missing) else []
    return DataState(True, "SeriesMissing", "; ".join(said))
