"""Models take their cache by two names, depending on the release of transformers."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import pytest

from kintsugi_engine.native.cache_name import cache_name


def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
    """As transformers' own decorators are."""

    @wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


class Newer:
    @decorated
    def forward(self, input_ids: Any, cache: Any = None, **_: Any) -> Any:
        return cache


class Older:
    @decorated
    def forward(self, input_ids: Any, past_key_values: Any = None, **_: Any) -> Any:
        return past_key_values


@pytest.mark.parametrize(("model", "name"), [(Newer(), "cache"), (Older(), "past_key_values")])
def test_the_cache_is_handed_in_by_the_name_that_reaches_the_layers(model: Any, name: str) -> None:
    assert cache_name(model) == name
    assert model.forward(0, **{cache_name(model): "rows"}) == "rows"
