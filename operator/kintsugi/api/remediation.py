"""`Remediation`: the record of one attempt to cure one instance, which answers "why was my pod killed"."""

import json
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from kintsugi.api.model import Atomic, Clipped, Keyed, Model, Opaque, Timestamp

Remedy = Literal["Compact", "Recreate", "RecreateElsewhere", "GiveUp"]
RemediationPath = Literal["Surge", "DeleteFirst", "InPlace"]
Phase = Literal["AwaitingApproval", "Quarantined", "Draining", "Replacing", "Warming", "Probation", "Done"]
Outcome = Literal["Cured", "NotCured", "Cancelled", "Ambiguous", "Exhausted"]

Name = Annotated[str, Field(max_length=253)]
Uid = Annotated[str, Field(max_length=63)]
Word = Annotated[str, Field(max_length=63)]
Message = Annotated[str, Clipped(1024)]
Remark = Annotated[str, Clipped(256)]

MAX_LOG_LINES: Final = 100
MAX_LOG_LINE: Final = 240
MAX_PAGES: Final = 3
MAX_PAGE: Final = 2560
MAX_EVENTS: Final = 20
MAX_EVENT: Final = 256
MAX_RECORDS: Final = 17
"""A block pool and sixteen workers."""
MAX_RECORD: Final = 512
MAX_CONTAINERS: Final = 16
MAX_CONTAINER_BYTES: Final = 6144
"""All container statuses of a black box together, as JSON."""


class Victim(Model):
    """The instance as it was when the attempt was decided."""

    name: Name
    """Name of the pod."""
    uid: Uid
    """UID of the pod."""
    node: Name = ""
    """Node on which it ran."""
    started_at: Timestamp | None = None
    """Start of the engine's container: a later start is another process, which the evidence is not about."""


class RemediationSpec(Model):
    """What was decided. Written once."""

    deployment: Name
    """Name of the deployment."""
    instance: Victim
    """Which instance."""
    pool: Word
    """Pool of the instance."""
    revision: Word
    """Revision of the instance."""
    trigger: Word
    """What was found: a key under `healing.triggers`."""
    remedy: Remedy
    """What is done about it."""
    attempt_id: Annotated[str, Field(max_length=253)]
    """Identity of this attempt; every action carries it."""
    attempt: Annotated[int, Field(ge=1)] = 1
    """Which attempt in this lineage, from 1."""
    lineage: Uid
    """UID of the first pod in the line of replacements to which the instance belongs."""


class Timeline(Model):
    """When each step was seen to have happened."""

    detected: Timestamp | None = None
    """The evidence began."""
    decided: Timestamp | None = None
    """The attempt was committed."""
    approved: Timestamp | None = None
    """A person approved it, where the trigger's mode asks for that."""
    withdrawn: Timestamp | None = None
    """The instance was taken out of traffic."""
    released: Timestamp | None = None
    """The instance was let go so that its replacement could start."""
    drained: Timestamp | None = None
    """Its last stream ended, or the time for that was over."""
    deleted: Timestamp | None = None
    """Its pod was evicted."""
    replaced: Timestamp | None = None
    """The replacement's pod was seen."""
    ready: Timestamp | None = None
    """The replacement became ready."""
    verified: Timestamp | None = None
    """The replacement passed its probation, or failed it."""
    finished: Timestamp | None = None
    """The attempt ended."""


class Evidence(Model):
    """One value that convinced."""

    signal: Annotated[str, Field(max_length=128)]
    """Name of the signal."""
    value: float
    """Its value."""
    unit: Word = ""
    """Unit of the value."""
    samples: Annotated[int, Field(ge=0)] = 0
    """Readings behind the value."""
    message: Remark = ""
    """What it means."""


class GateAnswer(Model):
    """One gate that was asked before acting."""

    name: Word
    """Name of the gate."""
    open: bool
    """Whether it let the attempt pass."""
    message: Remark = ""
    """Why."""


class Replacement(Model):
    """The pod that took the instance's place."""

    name: Name
    """Name of the pod."""
    uid: Uid
    """UID of the pod."""


def _clip(text: str, size: int) -> str:
    """`text` in at most `size` bytes of UTF-8, its end kept."""
    raw = text.encode("utf-8", errors="replace")
    return text if len(raw) <= size else raw[-size:].decode("utf-8", errors="ignore")


def _fitting(objects: tuple[dict[str, Any], ...], size: int) -> tuple[dict[str, Any], ...]:
    """The first of `objects` that fit together into `size` bytes of JSON."""
    kept: list[dict[str, Any]] = []
    for one in objects:
        size -= len(json.dumps(one))
        if size < 0:
            break
        kept.append(one)
    return tuple(kept)


class BlackBox(Model):
    """What the instance left behind, taken before it was removed."""

    pages: Annotated[
        tuple[Annotated[str, Field(max_length=MAX_PAGE)], ...], Atomic, Field(max_length=MAX_PAGES)
    ] = ()
    """Named series of the engine's metrics, as text, at most three readings."""
    record: Annotated[
        tuple[Annotated[str, Field(max_length=MAX_RECORD)], ...], Atomic, Field(max_length=MAX_RECORDS)
    ] = ()
    """What each rank of the engine measured last by its own telemetry, and how long before. Absent: it keeps no such record."""
    logs: Annotated[
        tuple[Annotated[str, Field(max_length=MAX_LOG_LINE)], ...], Atomic, Field(max_length=MAX_LOG_LINES)
    ] = ()
    """The engine's last log lines, at most 100."""
    container_statuses: Annotated[tuple[Opaque, ...], Atomic, Field(max_length=MAX_CONTAINERS)] = ()
    """The pod's container statuses."""
    events: Annotated[tuple[Remark, ...], Atomic, Field(max_length=MAX_EVENTS)] = ()
    """Kubernetes events of the pod, newest last."""
    devices: Annotated[tuple[Remark, ...], Atomic, Field(max_length=MAX_CONTAINERS)] = ()
    """Its GPUs and their health, as far as Kubernetes names them."""
    missing: Annotated[tuple[Remark, ...], Atomic, Field(max_length=8)] = ()
    """What could not be taken in time, and why."""
    taken_at: Timestamp | None = None
    """When it was taken."""

    @classmethod
    def clipped(
        cls,
        *,
        pages: tuple[str, ...] = (),
        record: tuple[str, ...] = (),
        logs: tuple[str, ...] = (),
        container_statuses: tuple[dict[str, Any], ...] = (),
        events: tuple[str, ...] = (),
        devices: tuple[str, ...] = (),
        missing: tuple[str, ...] = (),
    ) -> "BlackBox":
        """A black box within the bounds: the newest items, each cut to its size in bytes, are kept.

        Of the container statuses the first are kept that fit together, so put the engine's first.
        """
        return cls(
            pages=tuple(_clip(page, MAX_PAGE) for page in pages[-MAX_PAGES:]),
            record=record[:MAX_RECORDS],
            logs=tuple(_clip(line, MAX_LOG_LINE) for line in logs[-MAX_LOG_LINES:]),
            container_statuses=_fitting(container_statuses[:MAX_CONTAINERS], MAX_CONTAINER_BYTES),
            events=tuple(_clip(event, MAX_EVENT) for event in events[-MAX_EVENTS:]),
            devices=tuple(_clip(device, MAX_EVENT) for device in devices[:MAX_CONTAINERS]),
            missing=tuple(_clip(remark, MAX_EVENT) for remark in missing[:8]),
        )


class RemediationStatus(Model):
    """How it went."""

    phase: Phase | None = None
    """The step that the attempt is in."""
    outcome: Outcome | None = None
    """How it ended. Absent: it has not."""
    path: RemediationPath | None = None
    """Whether the replacement starts before or after the instance goes, or nothing is replaced."""
    why: Message = ""
    """What was wrong with the instance, in a sentence with the figures that convinced: why the pod was killed."""
    message: Message = ""
    """What the attempt does or waits for now; once it has ended: how."""
    timeline: Timeline = Timeline()
    """When each step happened."""
    evidence: Annotated[tuple[Evidence, ...], Atomic, Field(max_length=16)] = ()
    """The values that convinced."""
    gates: Annotated[tuple[GateAnswer, ...], Keyed("name", max_items=32)] = ()
    """The gates that were asked."""
    replacement: Replacement | None = None
    """The pod that took the instance's place."""
    black_box: BlackBox | None = None
    """What the instance left behind."""
    approved_by: Word = ""
    """Who approved it, where the trigger's mode asks for that."""
    streams_cut: Annotated[int, Field(ge=0)] | None = None
    """Streams that were still running when the instance went."""
