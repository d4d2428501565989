"""Numbers that can't be meant, on one engine's page or on all: they cost nobody, and all is well again after them.

Such pages are read as if they had come over HTTP, which `test_odd_pages_over_http` tries.
"""

import random
import re
from collections.abc import Callable
from itertools import count

import pytest

from tests.scenarios.served import without
from tests.scenarios.watched import nothing_happened, watched

Changed = Callable[[str], str]


def every_number(to: str) -> Changed:
    return lambda text: re.sub(r"^([^#\s].*) \S+$", rf"\g<1> {to}", text, flags=re.MULTILINE)


def cut(seed: int) -> Changed:
    """Cut at another place each time, also within a number."""
    chance = random.Random(seed)
    return lambda text: text[: chance.randrange(len(text))]


def gauges_alone(text: str) -> str:
    return without("_total", "_count", "_sum", "_bucket")(text)


def counters_alone(text: str) -> str:
    return without("num_requests", "cache_usage")(text)


def jumping(low: float, high: float, seed: int = 1) -> Changed:
    """Every number is another one each time: counters rise and fall."""
    chance = random.Random(seed)
    return lambda text: re.sub(
        r"^(vllm:\S.*) \S+$",
        lambda m: f"{m.group(1)} {chance.uniform(low, high)}",
        text,
        flags=re.MULTILINE,
    )


def flickering(*parts: str) -> Changed:
    """Some series are on every second page only."""
    turn = count()
    return lambda text: without(*parts)(text) if next(turn) % 2 else text


def renamed_each_time() -> Changed:
    names = count()
    return lambda text: text.replace('engine="0"', f'engine="r{next(names)}"')


def twice(text: str) -> str:
    """Every series twice, with two numbers."""
    return text + re.sub(r"^(vllm:\S.*) (\S+)$", r"\g<1> 7\g<2>", text, flags=re.MULTILINE)


ODD: dict[str, Changed] = {
    "all NaN": every_number("NaN"),
    "all +Inf": every_number("+Inf"),
    "all -Inf": every_number("-Inf"),
    "all zero": every_number("0"),
    "all minus one": every_number("-1"),
    "all 1e308": every_number("1e308"),
    "all words": every_number("nil"),
    "all hexadecimal": every_number("0x1F"),
    "all with a comma": every_number("1,5"),
    "cut anywhere": cut(3),
    "cut anywhere, too": cut(4),
    "gauges alone": gauges_alone,
    "counters alone": counters_alone,
    "numbers that jump": jumping(0.0, 1e6),
    "numbers that jump below zero": jumping(-1e6, 1e6),
    "steps on every second page": flickering("iteration_tokens"),
    "gauges on every second page": flickering("num_requests"),
    "tokens on every second page": flickering("generation_tokens", "iteration_tokens"),
    "all on every second page": flickering("vllm:"),
    "every series twice": twice,
    "ranks without end": lambda text: "".join(
        text.replace('engine="0"', f'engine="{n}"') for n in range(100)
    ),
    "another rank's name each time": renamed_each_time(),
    "shares in percent": lambda text: re.sub(
        r"^(\S*(?:ratio|perc)\{.*\}) (\S+)$",
        lambda m: f"{m.group(1)} {100 * float(m.group(2))}",
        text,
        flags=re.MULTILINE,
    ),
}


@pytest.mark.parametrize("everybody", [False, True], ids=["one", "all"])
@pytest.mark.parametrize("change", ODD.values(), ids=list(ODD))
async def test_numbers_that_can_not_be_meant_cost_nobody(change: Changed, everybody: bool) -> None:
    scene = await watched({"short": 3})
    odd = scene.names_of("short")[: 3 if everybody else 1]
    scene.engines.rewrite = dict.fromkeys(odd, change)
    await scene.run(1_800)
    assert not {said for name in odd for said, _ in scene.kept.seen[name]} & {"Sick"}
    scene.status_json()
    nothing_happened(scene)
    scene.engines.rewrite = {}
    await scene.run(900)
    assert scene.condition("DataFresh") == ("True", "AllRead")
    assert {scene.verdict(name).verdict.value for name in odd} == {"Healthy"}
    nothing_happened(scene)
