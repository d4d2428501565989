"""Reading one entry of a catalog file, field by field: what is wrong is said with its path and its cure."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

from kintsugi.core.catalog.amount import bytes_of
from kintsugi.core.catalog.version import EngineVersion, parse_version

T = TypeVar("T")

REQUIRED: Final[Any] = object()
"""Stands for "there is no default"."""

_UPPER: Final = re.compile(r"[A-Z]|\d+")
_LARGEST: Final = 10**18


class CatalogInvalid(Exception):
    """A catalog file that can't be used: where, why, and what to write instead."""

    def __init__(self, path: str, problem: str, cure: str) -> None:
        super().__init__(f"{path} {problem}: {cure}")
        self.path = path
        self.problem = problem
        self.cure = cure


class Entry:
    """A mapping of the file. A field that is absent comes from `base` (an entry that this one changes or is like);
    `null` takes a field of the base back."""

    def __init__(self, raw: object, path: str, base: object = None) -> None:
        if not isinstance(raw, Mapping):
            raise CatalogInvalid(
                path, f"is {_kind(raw)}, not a mapping", "write `field: value` lines under it"
            )
        self._raw: Mapping[Any, Any] = raw
        self._base = base
        self._asked: set[str] = set()
        self.path = path

    def text(self, name: str, default: Any = REQUIRED) -> Any:
        """A string that is not empty; whatever `default` is where it is absent."""
        return self._field(name, default, _text, "write a text that is not empty")

    def choice(self, name: str, allowed: Sequence[str], default: Any = REQUIRED) -> Any:
        """One of a few words."""
        return self._field(
            name, default, lambda v: v if v in allowed else None, f"write one of {', '.join(allowed)}"
        )

    def number(self, name: str, default: Any = REQUIRED) -> Any:
        """A finite number above 0."""
        return self._field(name, default, _number, "write a number above 0")

    def integer(self, name: str, default: Any = REQUIRED, least: int = 1) -> Any:
        """A whole number, `least` or more."""
        return self._field(
            name, default, lambda v: _integer(v, least), f"write a whole number, {least} or more"
        )

    def flag(self, name: str, default: Any = REQUIRED) -> Any:
        """True or false."""
        return self._field(name, default, lambda v: v if isinstance(v, bool) else None, "write true or false")

    def amount(self, name: str, default: Any = REQUIRED) -> Any:
        """Bytes."""
        return self._field(name, default, bytes_of, "write bytes, or a size such as 80GiB or 160GB")

    def version(self, name: str, default: Any = REQUIRED) -> Any:
        """A release of the engine."""
        return self._field(name, default, _version, 'write a release in quotes, such as "0.25.0"')

    def texts(self, name: str, default: Any = REQUIRED) -> Any:
        """A list of strings."""
        return self._field(name, default, lambda v: _list(v, _text), "write a list of texts")

    def integers(self, name: str, default: Any = REQUIRED) -> Any:
        """A list of whole numbers above 0."""
        return self._field(
            name, default, lambda v: _list(v, lambda i: _integer(i, 1)), "write a list of whole numbers"
        )

    def pair(self, name: str, default: Any = REQUIRED) -> Any:
        """Two whole numbers."""
        return self._field(name, default, _pair, "write two whole numbers in brackets, such as [22, 26]")

    def capability(self, name: str, default: Any = REQUIRED) -> Any:
        """A compute capability, `9.0` in quotes, as (9, 0)."""
        return self._field(name, default, _capability, 'write it in quotes, such as "9.0"')

    def arguments(self, name: str, default: Any = REQUIRED) -> Any:
        """Flags with their value, `null` for a switch, in the order written."""
        cure = 'write a mapping such as {"--block-size": "256", "--trust-remote-code": null}'
        return self._field(name, default, _arguments, cure)

    def variables(self, name: str, default: Any = REQUIRED) -> Any:
        """Environment variables, in the order written."""
        return self._field(name, default, _variables, 'write a mapping such as {NAME: "value"}')

    def options(self, name: str, default: Any = REQUIRED) -> Any:
        """Texts and truths by name, in the order written."""
        return self._field(
            name, default, _options, "write a mapping such as {draft_sample_method: probabilistic}"
        )

    def amounts(self, name: str, default: Any = REQUIRED) -> Any:
        """Sizes by name, in the order written."""
        return self._field(name, default, _amounts, "write a mapping such as {fp8: 1002240}")

    def entry(self, name: str, base: object) -> "Entry | None":
        """A mapping inside this one; None where it is absent or null."""
        self._asked.add(name)
        raw = self._raw.get(name)
        return None if raw is None else Entry(raw, f"{self.path}.{name}", base)

    def says(self, name: str) -> bool:
        """Whether the entry itself has the field, be it null."""
        return name in self._raw

    def finish(self) -> None:
        """Refuses fields that nobody asked for: a misspelt field must not be passed over in silence."""
        for name in self._raw:
            if name not in self._asked:
                known = ", ".join(sorted(self._asked))
                raise CatalogInvalid(
                    f"{self.path}.{name}", "is not a field of the catalog", f"known fields are {known}"
                )

    def _field(self, name: str, default: Any, read: Callable[[Any], T | None], cure: str) -> Any:
        self._asked.add(name)
        if name not in self._raw:
            return self._absent(name, default)
        raw = self._raw[name]
        if raw is None and default is not REQUIRED:
            return default
        value = read(raw)
        if value is None:
            raise CatalogInvalid(f"{self.path}.{name}", f"is {shown(raw)}", cure)
        return value

    def _absent(self, name: str, default: Any) -> Any:
        if self._base is not None:
            return getattr(self._base, _UPPER.sub(lambda found: "_" + found[0].lower(), name))
        if default is REQUIRED:
            raise CatalogInvalid(
                f"{self.path}.{name}", "is missing", "add it, or name an entry to start from in `like`"
            )
        return default


def entries(raw: object, path: str) -> Iterator[tuple[object, str]]:
    """The items of a list with their paths; nothing where it is absent."""
    if raw is None:
        return
    if not isinstance(raw, Sequence) or isinstance(raw, str | bytes):
        raise CatalogInvalid(path, f"is {_kind(raw)}, not a list", "begin each entry with `- `")
    for index, item in enumerate(raw):
        yield item, f"{path}[{index}]"


def _kind(raw: object) -> str:
    kinds = ((bool, "true or false"), (int | float, "a number"), (str, "a text"), (Mapping, "a mapping"))
    if raw is None:
        return "empty"
    return next((said for kind, said in kinds if isinstance(raw, kind)), "a list")


def shown(raw: object) -> str:
    """A value in a few letters: a word as it is, another text in quotes."""
    if isinstance(raw, str) and re.fullmatch(r"[\w.:/-]{1,60}", raw):
        return raw
    text = repr(raw) if isinstance(raw, str | int | float | bool) else _kind(raw)
    return text if len(text) <= 60 else text[:57] + "..."


def _text(raw: object) -> str | None:
    return raw.strip() or None if isinstance(raw, str) else None


def _number(raw: object) -> float | None:
    number = isinstance(raw, int | float) and not isinstance(raw, bool)
    return float(raw) if number and 0 < raw < _LARGEST else None  # type: ignore[operator, arg-type]


def _integer(raw: object, least: int) -> int | None:
    return raw if isinstance(raw, int) and not isinstance(raw, bool) and least <= raw < _LARGEST else None


def _version(raw: object) -> EngineVersion | None:
    return parse_version(raw) if isinstance(raw, str) else None


def _list(raw: object, read: Callable[[Any], T | None]) -> tuple[T, ...] | None:
    if not isinstance(raw, list | tuple):
        return None
    values = [read(item) for item in raw]
    return None if any(value is None for value in values) else tuple(v for v in values if v is not None)


def _pair(raw: object) -> tuple[int, int] | None:
    numbers = _list(raw, lambda item: _integer(item, 0))
    return (numbers[0], numbers[1]) if numbers and len(numbers) == 2 and numbers[0] <= numbers[1] else None


def _capability(raw: object) -> tuple[int, int] | None:
    found = re.fullmatch(r"([1-9]\d?)\.(\d)", raw) if isinstance(raw, str) else None
    return (int(found[1]), int(found[2])) if found else None


def _arguments(raw: object) -> tuple[tuple[str, str | None], ...] | None:
    if not isinstance(raw, Mapping) or not all(isinstance(f, str) and f.startswith("--") for f in raw):
        return None
    if not all(value is None or isinstance(value, str) for value in raw.values()):
        return None
    return tuple(raw.items())


def _variables(raw: object) -> tuple[tuple[str, str], ...] | None:
    if not isinstance(raw, Mapping) or not all(
        isinstance(k, str) and isinstance(v, str) for k, v in raw.items()
    ):
        return None
    return tuple(raw.items())


def _options(raw: object) -> tuple[tuple[str, str | bool], ...] | None:
    if not isinstance(raw, Mapping) or not all(
        isinstance(k, str) and isinstance(v, str | bool) for k, v in raw.items()
    ):
        return None
    return tuple(raw.items())


def _amounts(raw: object) -> tuple[tuple[str, int], ...] | None:
    if not isinstance(raw, Mapping) or not all(isinstance(name, str) for name in raw):
        return None
    sizes = {name: bytes_of(value) for name, value in raw.items()}
    return tuple((n, s) for n, s in sizes.items() if s) if sizes and all(sizes.values()) else None
