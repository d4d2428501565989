"""What is explained: one deployment as it was read, however odd, with the records that lie beside it.

Reading is forgiving, since an object in a cluster may come from a newer operator: what can't be read is left out and
named, and the rest is explained.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from pydantic import ValidationError

from kintsugi.api.model import Model
from kintsugi.api.objects import Remediation, json_path
from kintsugi.api.spec import DeploymentSpec
from kintsugi.api.status import DeploymentStatus

M = TypeVar("M", bound=Model)

MOST_FAULTS: Final = 200
"""Parts left out of one object beyond which it is called unreadable."""


@dataclass(frozen=True, slots=True)
class Told:
    """One Kubernetes Event. `at` as the API server writes it, '' where it does not say."""

    at: str
    kind: str
    reason: str
    about: str
    message: str
    count: int = 1


@dataclass(frozen=True, slots=True)
class Case:
    """One deployment and its records. `troubles` name what could not be read."""

    name: str
    namespace: str
    generation: int | None
    spec: DeploymentSpec | None
    """None where the spec can't be read: then nothing is said about triggers and their modes."""
    status: DeploymentStatus
    has_status: bool
    remediations: tuple[Remediation, ...] = ()
    """Newest first."""
    events: tuple[Told, ...] = ()
    """Newest first."""
    troubles: tuple[str, ...] = ()

    @property
    def full_name(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


def case_of(
    raw: Mapping[str, Any],
    remediations: Iterable[Any] = (),
    events: Iterable[Any] = (),
    troubles: Iterable[str] = (),
) -> Case:
    """The case that `raw` (a DeepSeekV4Deployment as JSON) and the raw records make. Never raises, whatever they hold."""
    metadata = _object(raw.get("metadata"))
    said = list(troubles)
    spec, faults = forgiving(DeploymentSpec, _object(raw.get("spec")), "spec")
    said += faults
    status, faults = forgiving(DeploymentStatus, _object(raw.get("status")), "status")
    said += faults
    records = []
    for each in remediations:
        entry = _object(each)
        found, faults = forgiving(
            Remediation, entry, f"Remediation {_text(_object(entry.get('metadata')).get('name'))}"
        )
        said += faults
        records += [found] if found is not None else []
    generation = metadata.get("generation")
    return Case(
        name=_text(metadata.get("name")),
        namespace=_text(metadata.get("namespace")),
        generation=generation if isinstance(generation, int) else None,
        spec=spec,
        status=status or DeploymentStatus(),
        has_status=bool(raw.get("status")),
        remediations=tuple(sorted(records, key=_when, reverse=True)),
        events=tuple(sorted((told(each) for each in events), key=lambda one: one.at, reverse=True)),
        troubles=tuple(said),
    )


def forgiving(model: type[M], raw: Mapping[str, Any], where: str) -> tuple[M | None, list[str]]:
    """`raw` as a `model`, without the parts that do not fit, and a sentence on each of those.

    None where what is left can't be read either. `raw` is not changed.
    """
    try:
        plain = json.loads(
            json.dumps(raw, default=str), object_hook=_without_nulls, parse_constant=_no_number
        )
    except (ValueError, RecursionError, TypeError) as error:
        return None, [f"{where}: can't be read: {error}"]
    faults: list[str] = []
    for _ in range(MOST_FAULTS):
        try:
            return model.model_validate_json(json.dumps(plain), strict=True), faults
        except ValidationError as error:
            progress = False
            dropped: set[tuple[int | str, ...]] = set()
            found = error.errors(include_url=False, include_context=False, include_input=False)
            # The last item of a list goes first, so that the places of the others stay true.
            for each in reversed(found):
                place = _place(plain, each["loc"], missing=each["type"] == "missing")
                gone = any(place[:size] in dropped for size in range(1, len(place) + 1))
                if place and not gone and _drop(plain, place):
                    progress = True
                    dropped.add(place)
                    faults.append(f"{where}.{json_path(place)}: left out: {each['msg'][:200]}")
            if not progress:
                said = "; ".join(f"{json_path(each['loc'])}: {each['msg']}" for each in found)
                return None, [*faults, f"{where}: can't be read: {said[:300]}"]
    return None, [*faults[:5], f"{where}: can't be read: more than {MOST_FAULTS} of its parts do not fit"]


def _without_nulls(found: dict[str, Any]) -> dict[str, Any]:
    """An absent field may be written as null."""
    return {key: value for key, value in found.items() if value is not None}


def _no_number(_: str) -> None:
    """NaN and infinity, which YAML can say and JSON can't, are no values."""


def _place(node: Any, location: tuple[int | str, ...], missing: bool) -> tuple[int | str, ...]:
    """The deepest part of `location` that stands in `node`; of a missing field, the object that lacks it."""
    place: tuple[int | str, ...] = ()
    for step in location[:-1] if missing else location:
        in_list = isinstance(node, list) and isinstance(step, int) and step < len(node)
        if in_list or (isinstance(node, dict) and step in node):
            node = node[step]
        else:
            break
        place = (*place, step)
    return place


def _drop(node: Any, place: tuple[int | str, ...]) -> bool:
    """Take the part at `place` out; False where it stands there no more."""
    if _place(node, place, missing=False) != place:
        return False
    for step in place[:-1]:
        node = node[step]
    del node[place[-1]]
    return True


def told(raw: Any) -> Told:
    """One Event of core/v1 or events.k8s.io, read without an error."""
    event = _object(raw)
    about = _object(event.get("involvedObject") or event.get("regarding"))
    series = _object(event.get("series"))
    times = (
        series.get("lastObservedTime"),
        event.get("lastTimestamp"),
        event.get("deprecatedLastTimestamp"),
        event.get("eventTime"),
        event.get("firstTimestamp"),
        _object(event.get("metadata")).get("creationTimestamp"),
    )
    count = series.get("count") or event.get("count") or event.get("deprecatedCount")
    return Told(
        at=next((_text(time) for time in times if time), ""),
        kind=_text(event.get("type")),
        reason=_text(event.get("reason")),
        about=_text(about.get("name")),
        message=_text(event.get("message") or event.get("note"))[:512],
        count=count if isinstance(count, int) else 1,
    )


def _when(record: Remediation) -> tuple[float, str]:
    timeline = record.status.timeline
    began = record.metadata.creation_timestamp or timeline.decided or timeline.detected
    return (began.timestamp() if began else 0.0, record.metadata.name)


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _text(value: Any) -> str:
    """A value as a text that can be written anywhere."""
    return "" if value is None else str(value).encode("utf-8", "replace").decode()
