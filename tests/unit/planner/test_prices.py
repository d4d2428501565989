import re
from datetime import date
from typing import Any

import pytest

from kintsugi.core.catalog.load import builtin
from kintsugi.core.planner.cost import per_million_tokens
from kintsugi.core.planner.figure import exact
from kintsugi.core.planner.options import Options
from kintsugi.core.planner.plan import plan
from kintsugi.core.planner.prices import PricesInvalid, builtin_prices, read_prices
from tests.unit.planner.subjects import FLASH, message, planned, rules, spec_of


def test_the_shipped_prices_are_dated_sourced_and_of_known_gpus() -> None:
    prices = builtin_prices()
    assert date.fromisoformat(prices.date) <= date(2030, 1, 1)
    for name, figure in prices.per_gpu_hour.items():
        assert builtin().gpu(name) is not None, f"{name} is not in the catalog"
        assert re.search(r"https://", figure.source), name
        assert 0 < figure.low <= figure.value <= figure.high < 100


def test_the_users_prices_take_their_place() -> None:
    prices = read_prices({"date": "2026-11-01", "currency": "EUR", "gpus": {"NVIDIA-H200": 3}})
    made = plan(spec_of(FLASH, pools=[{"name": "p", "replicas": 2}]), prices=prices)[0]
    assert made.cost is not None
    assert (made.cost.currency, made.cost.instance_hour.value, made.cost.pool_hour.value) == ("EUR", 12, 24)
    assert made.cost.instance_hour.basis == "measured"


def test_a_gpu_without_a_price_costs_nothing_known() -> None:
    prices = read_prices({"gpus": {"B200": 5}})
    made = plan(spec_of(FLASH), prices=prices)[0]
    assert made.cost is None
    assert "--prices" in message(made, "PriceUnknown")
    assert made.fits is True


@pytest.mark.parametrize(
    ("raw", "named"),
    [
        (None, "gpus"),
        ([], "gpus"),
        ({"gpus": []}, "gpus"),
        ({"gpus": {"H200": "three"}}, "gpus.H200.price"),
        ({"gpus": {"H200": -1}}, "gpus.H200.price"),
        ({"gpus": {"H200": True}}, "gpus.H200.price"),
        ({"gpus": {"H200": float("nan")}}, "gpus.H200.price"),
        ({"gpus": {"H200": {"price": 1, "cost": 2}}}, "gpus.H200.cost"),
        ({"gpus": {"H200": {"price": 1, "low": 2}}}, "gpus.H200"),
        ({"gpus": {"H200": {}}}, "gpus.H200.price"),
    ],
)
def test_a_price_file_that_cannot_be_used_is_refused_by_path(raw: Any, named: str) -> None:
    with pytest.raises(PricesInvalid, match=re.escape(named)):
        read_prices(raw)


def test_tokens_per_second_given_make_the_cost_per_million_tokens() -> None:
    made = planned(FLASH, "H200", 4, options=Options(tokens_per_second=2000.0))
    assert made.cost is not None
    assert made.cost.tokens_per_second.basis == "measured"
    hour = made.cost.instance_hour.value
    assert made.cost.per_million_tokens.value == pytest.approx(hour / (2000 * 3600) * 1e6)


def test_the_band_of_a_cost_is_cheapest_and_fastest_to_dearest_and_slowest() -> None:
    made = planned(FLASH, "H200", 4)
    assert made.cost is not None
    cost = made.cost.per_million_tokens
    assert cost.low < cost.value < cost.high
    assert cost.basis == "assumed"
    assert per_million_tokens(exact(36, ""), exact(10_000, "")).value == pytest.approx(1.0)
    assert "PriceUnknown" not in rules(made)
