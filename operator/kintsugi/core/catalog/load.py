"""The catalog as shipped, and the catalog with a user's file laid over it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from importlib import resources
from typing import Any, Final, TypeVar

import yaml

from kintsugi.core.catalog.catalog import Catalog
from kintsugi.core.catalog.entities import Gpu, Model
from kintsugi.core.catalog.entry import CatalogInvalid, Entry, entries, shown
from kintsugi.core.catalog.flaglists import flag_lists
from kintsugi.core.catalog.records import (
    addition_of,
    defaults_of,
    flag_change_of,
    gpu_of,
    metric_change_of,
    model_of,
    recipe_of,
)

__all__ = ["CatalogInvalid", "adopt", "builtin", "extended", "in_force"]

R = TypeVar("R", Model, Gpu)

_FILES: Final = ("models.yaml", "gpus.yaml", "recipes.yaml", "engine.yaml")
_LISTS: Final = ("models", "gpus", "recipes", "additions", "flags", "metrics", "defaults")


@lru_cache(maxsize=1)
def builtin() -> Catalog:
    """What the package ships, read once."""
    folder = resources.files("kintsugi.core.catalog").joinpath("data")
    raw: dict[str, Any] = {}
    for name in _FILES:
        raw |= yaml.load(
            folder.joinpath(name).read_text("utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        )
    releases = flag_lists(folder.joinpath("flags.txt").read_text("utf-8"))
    nothing = Catalog((), (), (), (), (), (), (), releases, raw.pop("image"), raw.pop("rocmImage"))
    return extended(nothing, raw)


_ADOPTED: list[Catalog] = []


def adopt(catalog: Catalog) -> None:
    """Make `catalog` the one in force in this process. Called at most once, when the process starts."""
    _ADOPTED[:] = [catalog]


def in_force() -> Catalog:
    """What is asked where no catalog is named: the one adopted at the start, else `builtin`."""
    return _ADOPTED[0] if _ADOPTED else builtin()


def extended(base: Catalog, raw: Mapping[str, Any]) -> Catalog:
    """`base` with the entries of a user's file: a known id is changed field by field, a new one is added.

    Raises CatalogInvalid with the path of the first thing that is wrong.
    """
    if not isinstance(raw, Mapping):
        raise CatalogInvalid("the catalog file", "is not a mapping", f"write lists named {', '.join(_LISTS)}")
    for name in raw:
        if name not in _LISTS:
            raise CatalogInvalid(
                shown(name), "is not a list of the catalog", f"known lists are {', '.join(_LISTS)}"
            )
    told = {name: list(entries(raw.get(name), name)) for name in _LISTS}
    flags = tuple(flag_change_of(Entry(item, path)) for item, path in told["flags"])
    said = {change.flag for change in flags}
    return replace(
        base,
        models=_laid_over(base.models, told["models"], "id", model_of),
        gpus=_laid_over(base.gpus, told["gpus"], "name", lambda entry, _: gpu_of(entry)),
        recipes=tuple(recipe_of(Entry(item, path)) for item, path in told["recipes"]) + base.recipes,
        additions=base.additions + tuple(addition_of(Entry(item, path)) for item, path in told["additions"]),
        flags=flags + tuple(change for change in base.flags if change.flag not in said),
        metrics=base.metrics + tuple(metric_change_of(Entry(item, path)) for item, path in told["metrics"]),
        defaults=base.defaults + tuple(defaults_of(Entry(item, path)) for item, path in told["defaults"]),
    )


def _laid_over(
    known: Sequence[R], told: Iterable[tuple[object, str]], key: str, make: Callable[[Entry, R | None], R]
) -> tuple[R, ...]:
    """`known` with each entry told put in place of its namesake, or at the end."""
    records = {str(getattr(record, key)).lower(): record for record in known}
    for item, path in told:
        raw = dict(item) if isinstance(item, Mapping) else item
        like = raw.pop("like", None) if isinstance(raw, dict) else None
        name = str(raw.get(key, "")).strip().lower() if isinstance(raw, dict) else ""
        base = records.get(str(like).strip().lower()) if like is not None else records.get(name)
        if like is not None and base is None:
            cure = f"name one of {', '.join(str(getattr(record, key)) for record in records.values())}"
            raise CatalogInvalid(f"{path}.like", f"is {shown(like)}, which is not in the catalog", cure)
        record = make(Entry(raw, path, base), base)
        if like is not None and not name:
            raise CatalogInvalid(f"{path}.{key}", "is missing", f"give the new entry its own {key}")
        records[str(getattr(record, key)).lower()] = record
    return tuple(records.values())
