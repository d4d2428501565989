"""Prices of GPUs by the hour, as shipped or as the user gives them."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import Any, Final

import yaml

from kintsugi.core.catalog.catalog import Catalog
from kintsugi.core.catalog.entities import Gpu
from kintsugi.core.planner.figure import Figure

_FIELDS: Final = frozenset({"price", "low", "high", "source"})
_MOST: Final = 1e6


class PricesInvalid(ValueError):
    """The price file can't be used: the path in it, what is wrong, and the cure."""

    def __init__(self, path: str, problem: str, cure: str) -> None:
        super().__init__(f"{path} {problem}: {cure}")


@dataclass(frozen=True, slots=True)
class Prices:
    """By GPU name as written in the file; one unit of `currency` per GPU and hour."""

    currency: str
    date: str
    """When they were collected, YYYY-MM-DD."""
    per_gpu_hour: Mapping[str, Figure]

    def of(self, gpu: Gpu, catalog: Catalog) -> Figure | None:
        """The price of a kind of GPU, under whatever name the file has it; None where it has none."""
        exact = self.per_gpu_hour.get(gpu.name)
        if exact is not None:
            return exact
        return next(
            (
                figure
                for name, figure in self.per_gpu_hour.items()
                if (known := catalog.gpu(name)) is not None and known.name == gpu.name
            ),
            None,
        )


@lru_cache(maxsize=1)
def builtin_prices() -> Prices:
    """What the package ships, read once."""
    text = resources.files("kintsugi.core.planner").joinpath("data", "prices.yaml").read_text("utf-8")
    return read_prices(yaml.safe_load(text))


def read_prices(raw: object) -> Prices:
    """A price file's content. Raises PricesInvalid with the path of the first thing that is wrong."""
    if not isinstance(raw, Mapping) or not isinstance(raw.get("gpus"), Mapping):
        raise PricesInvalid(
            "gpus", "is missing", "write a mapping from GPU to its price per hour, `H200: 3.5`"
        )
    date = str(raw.get("date", "") or "undated")
    currency = str(raw.get("currency", "") or "USD")
    source = str(raw.get("source", "") or "user's price file")
    return Prices(
        currency=currency[:16],
        date=date[:32],
        per_gpu_hour={
            str(name)[:64]: _price(f"gpus.{name}", entry, f"{source}, {date}")
            for name, entry in raw["gpus"].items()
        },
    )


def _price(path: str, entry: object, source: str) -> Figure:
    told: Mapping[str, Any] = entry if isinstance(entry, Mapping) else {"price": entry}
    for key in told:
        if key not in _FIELDS:
            raise PricesInvalid(f"{path}.{key}", "is not known", f"fields are {', '.join(sorted(_FIELDS))}")
    price = _number(f"{path}.price", told.get("price"))
    low = _number(f"{path}.low", told.get("low", price))
    high = _number(f"{path}.high", told.get("high", price))
    if not low <= price <= high:
        raise PricesInvalid(path, "has a price outside its band", "give low <= price <= high")
    basis = "measured" if low == high else "assumed"
    return Figure(
        price, low, high, "measured" if basis == "measured" else "assumed", str(told.get("source") or source)
    )


def _number(path: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _MOST:
        raise PricesInvalid(path, f"is {str(value)[:40]!r}", "give a number of 0 or more")
    return float(value)
