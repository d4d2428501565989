"""Values inside the engine's JSON arguments, wherever they are written: `--x '{"a": {"b": 1}}'` or `--x.a.b=1`."""

import json
from collections.abc import Iterable
from typing import Any

from kintsugi.core.command.argument import Argument
from kintsugi.core.command.number import whole


def object_of(arguments: Iterable[Argument], flag: str) -> dict[str, Any]:
    """The object that the engine makes of a JSON flag (canonical spelling).

    Dotted arguments are gathered into one object that replaces a JSON argument of the same flag, as in vLLM's
    parser. What is no JSON object is empty.
    """
    plain: dict[str, Any] = {}
    dotted: dict[str, Any] = {}
    for argument in arguments:
        if argument.flag == flag:
            plain = _object(argument.value)
        elif argument.flag.startswith(flag + "."):
            _set(dotted, argument.flag[len(flag) + 1 :].split("."), _value(argument.value))
    return dotted or plain


def source_of(arguments: Iterable[Argument], flag: str, *keys: str) -> Argument | None:
    """The argument that sets a key of a JSON flag, or None: for naming its path."""
    found: Argument | None = None
    dotted = False
    for argument in arguments:
        if argument.flag == flag and not dotted:
            found = argument if _has(_object(argument.value), keys) else found
        elif argument.flag.startswith(flag + "."):
            path = tuple(argument.flag[len(flag) + 1 :].split("."))
            found = found if dotted else None
            dotted = True
            if path == keys or (
                path == keys[: len(path)] and _has(_value(argument.value), keys[len(path) :])
            ):
                found = argument
    return found


def _object(text: str | None) -> dict[str, Any]:
    value = _value(text)
    return value if isinstance(value, dict) else {}


def _value(text: str | None) -> Any:
    """As vLLM reads the value of a dotted argument: JSON, else a number such as `80g`, else the text."""
    if text is None:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        number = whole(text)
        return text if number is None else number


def _set(target: dict[str, Any], path: list[str], value: Any) -> None:
    for key in path[:-1]:
        inner = target.get(key)
        target[key] = inner if isinstance(inner, dict) else {}
        target = target[key]
    target[path[-1]] = value


def _has(value: Any, keys: tuple[str, ...]) -> bool:
    for key in keys:
        if not isinstance(value, dict) or key not in value:
            return False
        value = value[key]
    return True
