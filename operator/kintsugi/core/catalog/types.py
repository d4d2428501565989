"""The former name of `entities`, until nobody says it any more."""

from kintsugi.core.catalog.entities import (
    Addition,
    Confidence,
    Draft,
    EngineDefaults,
    FlagChange,
    Gpu,
    KvLayout,
    MetricChange,
    Model,
    Recipe,
)

__all__ = [
    "Addition",
    "Confidence",
    "Draft",
    "EngineDefaults",
    "FlagChange",
    "Gpu",
    "KvLayout",
    "MetricChange",
    "Model",
    "Recipe",
]
