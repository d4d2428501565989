"""Conditions, the contract of every status: set them so that they change only when something did."""

from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from kintsugi.api.model import Clipped, Model, Timestamp

ConditionStatus = Literal["True", "False", "Unknown"]


class Condition(Model):
    """One statement on the object, with its reason."""

    type: Annotated[str, Field(min_length=1, max_length=316)]
    """What the statement is about."""
    status: ConditionStatus
    """Whether it holds."""
    reason: Annotated[str, Field(pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$", max_length=1024)]
    """One CamelCase word for programs."""
    message: Annotated[str, Clipped(2048)] = ""
    """A sentence for people."""
    observed_generation: Annotated[int, Field(ge=0)] | None = None
    """Generation of the spec that the statement is about."""
    last_transition_time: Timestamp | None = None
    """When `status` changed last."""


def set_condition(conditions: Iterable[Condition], new: Condition, now: datetime) -> tuple[Condition, ...]:
    """`conditions` with `new` in the place of its type, sorted by type.

    `lastTransitionTime` becomes `now` (whole seconds) when the status differs from before or nothing was there,
    and stays as it was otherwise, so that a quiet object causes no write.
    """
    kept = {condition.type: condition for condition in conditions}
    old = kept.get(new.type)
    same = old is not None and old.status == new.status and old.last_transition_time is not None
    since = old.last_transition_time if old is not None and same else now.replace(microsecond=0)
    kept[new.type] = new.model_copy(update={"last_transition_time": since})
    return tuple(kept[name] for name in sorted(kept))


def find_condition(conditions: Iterable[Condition], name: str) -> Condition | None:
    """The condition of type `name`, or None."""
    return next((condition for condition in conditions if condition.type == name), None)
