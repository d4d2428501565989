"""Whether what the judge needs can be read, and what is missing: the material of the condition DataFresh."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kintsugi.core.finding import InstanceVerdict, Verdict
from kintsugi.core.snapshot import Instance


@dataclass(frozen=True, slots=True)
class DataState:
    """`fresh` is False where an instance that is up can't be read; `reason` is one CamelCase word."""

    fresh: bool
    reason: str
    message: str


def data_state(verdicts: Iterable[InstanceVerdict], instances: Sequence[Instance]) -> DataState:
    """Fresh where every instance that was Ready can be read. Missing series leave it fresh, and are named."""
    up = {i.uid for i in instances if not i.deleting}
    watched = [v for v in verdicts if v.uid in up and v.verdict is not Verdict.STARTING]
    if not watched:
        return DataState(True, "NothingToRead", "no instance is up yet")
    blind = [v for v in watched if not v.fresh]
    if blind:
        named = ", ".join(f"{v.name} ({v.reason}: {v.message})"[:120] for v in blind[:3])
        more = f" and {len(blind) - 3} more" if len(blind) > 3 else ""
        reason = blind[0].reason if len({v.reason for v in blind}) == 1 else "MetricsUnavailable"
        return DataState(
            False, reason or "MetricsUnavailable", f"{len(blind)} of {len(watched)}: {named}{more}"
        )
    missing = sorted({series for v in watched for series in v.missing})
    if missing:
        return DataState(True, "SeriesMissing", f"not exported, so not judged: {', '.join(missing)}")
    return DataState(True, "AllRead", "")
