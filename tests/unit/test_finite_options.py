"""No option that takes a float takes `nan` or `inf`, which no bound stops."""

import click
import pytest

from kintsugi.__main__ import COMMANDS, main
from kintsugi.cli.ranges import FiniteRange

OPTIONS = [
    (name, option)
    for name in sorted(COMMANDS)
    if (command := main.get_command(click.Context(main), name)) is not None
    for option in command.params
    if isinstance(option.type, click.FloatRange)
]


@pytest.mark.parametrize(("name", "option"), OPTIONS, ids=lambda each: getattr(each, "name", each))
@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
def test_what_is_no_finite_number_is_refused(name: str, option: click.Parameter, value: str) -> None:
    assert isinstance(option.type, FiniteRange), f"{name} {option.opts[0]}: a bare FloatRange lets nan pass"
    with pytest.raises(click.BadParameter, match="finite"):
        option.type.convert(value, option, None)


def test_bounds_hold_as_before() -> None:
    assert FiniteRange(0, 1).convert("0.5", None, None) == 0.5
    with pytest.raises(click.BadParameter, match="0<=x<=1"):
        FiniteRange(0, 1).convert("2", None, None)
