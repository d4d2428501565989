"""By which name a model's own code takes its cache: transformers calls it `cache` from 5.24 on, and before that
`past_key_values`, which newer releases still take from callers but no longer hand on to the layers."""

import inspect
from typing import Any, Final

NEW: Final = "cache"
OLD: Final = "past_key_values"


def cache_name(model: Any) -> str:
    """The name of that argument of the model's `forward`."""
    return NEW if NEW in inspect.signature(type(model).forward).parameters else OLD
