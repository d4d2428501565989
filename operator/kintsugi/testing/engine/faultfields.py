"""The grammar of faults: field kinds with bounds, reading from JSON and from a flag, errors that name the field."""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar


class FaultError(ValueError):
    """A fault is described wrongly; the message names the fault and the field."""


Check = Callable[[object], str]
"""Says what is expected when the value is wrong, else the empty string."""


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _bounded(least: float, most: float, whole: bool, optional: bool) -> Check:
    def check(value: object) -> str:
        if optional and value is None:
            return ""
        right_kind = isinstance(value, int) and not isinstance(value, bool) if whole else _is_number(value)
        if right_kind and least <= value <= most:  # type: ignore[operator]
            return ""
        kind = "a whole number" if whole else "a number"
        if most == math.inf:
            return f"{kind} of at least {least:g}" if least > -math.inf else kind
        return f"{kind} from {least:g} to {most:g}"

    return check


def number(default: float, *, least: float = -math.inf, most: float = math.inf) -> Any:
    return field(default=default, metadata={"check": _bounded(least, most, False, False)})


def optional_number(*, least: float = -math.inf) -> Any:
    return field(default=None, metadata={"check": _bounded(least, math.inf, False, True)})


def percent(default: float, *, most: float = 100.0) -> Any:
    return number(default, least=0.0, most=most)


def integer(default: int, *, least: float = -math.inf, most: float = math.inf) -> Any:
    return field(default=default, metadata={"check": _bounded(least, most, True, False)})


def optional_integer(*, least: float = -math.inf) -> Any:
    return field(default=None, metadata={"check": _bounded(least, math.inf, True, True)})


def flag(default: bool) -> Any:
    return field(
        default=default, metadata={"check": lambda v: "" if isinstance(v, bool) else "true or false"}
    )


def text(default: str) -> Any:
    def check(value: object) -> str:
        return "" if isinstance(value, str) and value else "a text that is not empty"

    return field(default=default, metadata={"check": check})


def texts(*default: str) -> Any:
    def check(value: object) -> str:
        good = isinstance(value, tuple) and all(isinstance(one, str) and one for one in value)
        return "" if good else "a list of texts that are not empty"

    return field(default=default, metadata={"check": check, "list": True})


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What every fault has: a name, and when it begins and ends after it was injected."""

    name: ClassVar[str] = ""
    primary: ClassVar[str] = ""
    """The field that `NAME=VALUE` sets."""
    after_seconds: float = number(0.0, least=0.0)
    for_seconds: float | None = optional_number(least=0.0)

    def __post_init__(self) -> None:
        _check(self)

    @property
    def lasts(self) -> float | None:
        """Seconds after which the fault ends by itself; None = never."""
        return self.for_seconds

    def document(self) -> dict[str, object]:
        """The fault as the JSON object that `parse_fault` reads."""
        values = {camel(f.name): getattr(self, f.name) for f in fields(self)}
        return {"fault": self.name} | {key: value for key, value in values.items() if value is not None}


def camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(word.capitalize() for word in rest)


def read_mapping(kind: type[Fault], values: Mapping[str, object]) -> Fault:
    """A fault of `kind` from its camelCase fields; FaultError names an unknown or wrong one."""
    known = {camel(one.name): one for one in fields(kind)}
    given: dict[str, Any] = {}
    for key, value in values.items():
        if key not in known:
            raise FaultError(f"fault '{kind.name}': no field '{key}'; it has {', '.join(sorted(known))}")
        if known[key].metadata.get("list") and isinstance(value, list):
            value = tuple(value)
        given[known[key].name] = value
    return kind(**given)


def read_text(argument: str, kind_of: Callable[[object], type[Fault]]) -> Fault:
    """A fault from `NAME`, `NAME=VALUE` or `NAME:field=value,field=value`; FaultError names what is wrong."""
    name, colon, rest = argument.partition(":")
    if colon and "=" not in name:
        kind = kind_of(name.strip())
        values: dict[str, object] = {}
        for pair in rest.split(","):
            key, equals, value = pair.partition("=")
            if not equals:
                raise FaultError(f"fault '{kind.name}': '{pair}' is not of the form field=value")
            values[key.strip()] = _value(value)
        return read_mapping(kind, _as_lists(kind, values))
    name, equals, value = argument.partition("=")
    kind = kind_of(name.strip())
    if not equals:
        return kind()
    if not kind.primary:
        raise FaultError(f"fault '{kind.name}' takes no value; write {kind.name}:field=value")
    return read_mapping(kind, _as_lists(kind, {camel(kind.primary): _value(value)}))


def _value(text: str) -> object:
    try:
        value: object = json.loads(text)
    except json.JSONDecodeError:
        return text.strip()
    return value


def _as_lists(kind: type[Fault], values: dict[str, object]) -> dict[str, object]:
    lists = {camel(one.name) for one in fields(kind) if one.metadata.get("list")}
    return {k: tuple(v.split("+")) if k in lists and isinstance(v, str) else v for k, v in values.items()}


def _check(fault: Fault) -> None:
    for one in fields(fault):
        value = getattr(fault, one.name)
        if expected := one.metadata["check"](value):
            raise FaultError(
                f"fault '{fault.name}': field '{camel(one.name)}' must be {expected}, not {value!r}"
            )
