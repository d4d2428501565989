"""One look at one instance in the past, and how its pod's facts stand on the line before a saved page.

The facts of `kintsugi record` are the pod's own, as the API server gave them. A page without facts (of
`kintsugi advise --save`, or out of Prometheus) still tells its process's start; what it can't tell is assumed in the
direction that delays a verdict, and said (`Observed.assumed`).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, unquote

from kintsugi.core.advisor.saved import LATEST, SavedInvalid, SavedPage
from kintsugi.core.snapshot import (
    LONGEST_PROMPT,
    Device,
    Failed,
    Failure,
    Instance,
    Page,
    Scrape,
    Termination,
)

GONE: Final = "gone"
"""What `failed` says of a pod that is not there any more."""

UNKNOWN_DEVICES: Final = "unknown"


@dataclass(frozen=True, slots=True)
class Observed:
    """One look. `time` in epoch seconds; in the past, epoch and monotonic seconds are the same."""

    time: float
    instance: Instance
    gone: bool = False
    """The pod is not there any more: nothing but its name counts."""
    assumed: bool = False
    """Nothing of the pod is known but what its page says."""


def facts_of(instance: Instance) -> dict[str, str]:
    """The facts of a pod, and why it gave no page where it gave none; values hold no blanks."""
    end = instance.last_termination
    written = {
        "uid": instance.uid,
        "revision": instance.revision,
        "node": instance.node,
        "phase": instance.phase,
        "created": _time(instance.created_at),
        "scheduled": _time(instance.scheduled_at),
        "started": _time(instance.started_at),
        "ready": "1" if instance.ready else "0",
        "since": _time(instance.ready_since),
        "rotation": "in" if instance.in_rotation else "out",
        "member": "1" if instance.member else "0",
        "deleting": "1" if instance.deleting else "",
        "restarts": str(instance.restarts) if instance.restarts else "",
        "reason": quote(instance.phase_reason, safe=""),
        "waiting": quote(instance.waiting_reason, safe=""),
        "exit": "" if end is None else str(end.exit_code),
        "why": "" if end is None else quote(end.reason, safe=""),
        "ended": "" if end is None else _time(end.finished_at),
        "seqs": "" if instance.max_num_seqs is None else str(instance.max_num_seqs),
        "chunked": "" if instance.chunked_prefill else "0",
        "longest": "" if instance.longest_prompt == LONGEST_PROMPT else str(instance.longest_prompt),
        "served": "1" if instance.served_before else "",
        "devices": _devices(instance.devices),
        "image": quote(instance.image, safe="/:@."),
    }
    if isinstance(instance.scrape, Failed):
        written["failed"] = instance.scrape.failure.value
        written["said"] = quote(instance.scrape.why[:300], safe="")
    return {key: value for key, value in written.items() if value}


def observed(page: SavedPage) -> Observed:
    """A saved look as the judge may see it. Raises SavedInvalid where a fact can't be read."""
    said = page.facts
    scrape: Scrape = Page(page.text, page.time)
    if "failed" in said:
        known = {failure.value: failure for failure in Failure}
        failure = known.get(said["failed"], Failure.PENDING)
        scrape = Failed(failure, unquote(said.get("said", "")), page.time)
    return Observed(
        time=page.time,
        instance=_instance(page, said, scrape),
        gone=said.get("failed") == GONE,
        assumed="uid" not in said,
    )


def _instance(page: SavedPage, said: Mapping[str, str], scrape: Scrape) -> Instance:
    return Instance(
        name=page.instance,
        uid=said.get("uid", page.instance),
        pool=page.pool,
        revision=said.get("revision", ""),
        node=said.get("node", ""),
        created_at=_number(page, "created") or 0.0,
        phase=said.get("phase", "Running"),
        phase_reason=unquote(said.get("reason", "")),
        started_at=_number(page, "started"),
        ready=said.get("ready") == "1",
        ready_since=_number(page, "since"),
        in_rotation=said.get("rotation", "in") == "in",
        member=said.get("member", "1") == "1",
        deleting=said.get("deleting") == "1",
        restarts=int(_number(page, "restarts") or 0),
        waiting_reason=unquote(said.get("waiting", "")),
        waiting_message="",
        last_termination=_termination(page, said),
        pod_ip="",
        annotations={},
        scrape=scrape,
        scheduled_at=_number(page, "scheduled"),
        max_num_seqs=None if (seqs := _number(page, "seqs")) is None else int(seqs),
        chunked_prefill=said.get("chunked", "1") == "1",
        longest_prompt=int(_number(page, "longest") or LONGEST_PROMPT),
        served_before=said.get("served") == "1",
        devices=_told_devices(said.get("devices")) if "uid" in said else None,
        image=unquote(said.get("image", "")),
    )


def _devices(devices: tuple[Device, ...] | None) -> str:
    """One word for all of them: `resource|id|health,…`; `unknown` where Kubernetes says nothing of them."""
    if devices is None:
        return UNKNOWN_DEVICES
    return ",".join("|".join(quote(part, safe="") for part in (d.resource, d.id, d.health)) for d in devices)


def _told_devices(word: str | None) -> tuple[Device, ...] | None:
    if word is None:
        return ()
    parts = [[unquote(part) for part in each.split("|")] for each in word.split(",")]
    found = tuple(Device(*each) for each in parts if len(each) == 3)
    return found if len(found) == len(parts) else None


def _termination(page: SavedPage, said: Mapping[str, str]) -> Termination | None:
    if "ended" not in said:
        return None
    code = int(_number(page, "exit") or 0)
    return Termination(code, unquote(said.get("why", "")), "", _number(page, "ended") or 0.0)


def _time(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds:.3f}"


def _number(page: SavedPage, key: str) -> float | None:
    text = page.facts.get(key)
    if text is None:
        return None
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if abs(number) <= LATEST:
        return number
    where = f"the page of {page.instance} at {page.time:.0f}"
    raise SavedInvalid(
        f"{where}: {key}={text[:40]} is no number that it can be: record it anew, or remove the word"
    )
