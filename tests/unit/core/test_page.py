"""The fast page reader: same numbers as a full parser, whatever the layout; nothing invented from what is broken."""

import math
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from kintsugi.core.page import PageReader, PageValues
from kintsugi.core.series import LONG_GAP_SECONDS, TABLE, Signal

PAGES = Path(__file__).parent / "pages"
NAMES = {name.metric: signal for signal, row in TABLE.items() for name in row.names}

Series = tuple[str, tuple[tuple[str, str], ...]]


def by_full_parser(text: str) -> dict[Series, float]:
    """Every series of the table as prometheus_client reads it; of twins with different numbers none."""
    found: dict[Series, float] = {}
    torn: set[Series] = set()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            # The parser gives every counter the suffix `_total`; names of the table stand as on the page.
            if sample.name not in NAMES or not _is_read(sample.name, sample.labels):
                continue
            key = (sample.name, tuple(sorted(sample.labels.items())))
            value = float(sample.value)
            if key in found and not same(found[key], value):
                torn.add(key)
            found.setdefault(key, value)
    return {key: value for key, value in found.items() if key not in torn}


def _is_read(name: str, labels: dict[str, str]) -> bool:
    if NAMES[name] is not Signal.ITL_BUCKET:
        return True
    try:
        return float(labels.get("le", "")) >= LONG_GAP_SECONDS
    except ValueError:
        return False


def by_us(values: PageValues) -> dict[Series, float]:
    """Our numbers, keyed alike."""
    return {
        (TABLE[t.signal].names[t.age].metric, tuple(sorted(t.labels.items()))): v
        for t, v in values.numbers.items()
    }


def same(one: float, other: float) -> bool:
    return one == other or (math.isnan(one) and math.isnan(other))


def assert_same(ours: dict[Series, float], theirs: dict[Series, float]) -> None:
    assert set(ours) == set(theirs)
    assert all(same(ours[key], theirs[key]) for key in ours)


@pytest.mark.parametrize("path", sorted(PAGES.glob("*.txt")), ids=lambda p: p.stem)
def test_pages_of_a_real_engine_give_the_same_numbers(path: Path) -> None:
    text, reader = path.read_text(), PageReader()

    first, second = reader.read(text), reader.read(text)

    assert_same(by_us(first), by_full_parser(text))
    assert_same(by_us(second), by_us(first))
    assert first.garbage == 0


LABEL_VALUES = st.text(alphabet=st.sampled_from('ab09 /{}=,"\\\n#é'), max_size=8)
NUMBERS = st.one_of(
    st.floats().map(repr),
    st.integers(-(10**12), 10**12).map(str),
    st.sampled_from(["NaN", "+Inf", "-Inf", "1e5", "0", "3.", ".5", "1.797e+09"]),
)
LABEL_NAMES = ("engine", "model_name", "le", "reason", "rank", "status", "finished_reason")


def escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


@st.composite
def sample_lines(draw: st.DrawFn) -> str:
    """One well-formed line of the classic text format, in any legal layout."""
    name = draw(st.sampled_from([*sorted(NAMES), "vllm:other_total", "python_info", "a"]))
    labels = draw(st.dictionaries(st.sampled_from(LABEL_NAMES), LABEL_VALUES, max_size=3))
    space = draw(st.sampled_from(["", " ", "  "]))
    pairs = f",{space}".join(f'{key}="{escaped(value)}"' for key, value in labels.items())
    comma = "," if pairs and draw(st.booleans()) else ""
    empty_braces = draw(st.booleans())
    braces = f"{{{space}{pairs}{comma}{space}}}" if labels or empty_braces else ""
    stamp = draw(st.sampled_from(["", " 1790000000000"]))
    indent = draw(st.sampled_from(["", " "]))
    return f"{indent}{name}{braces} {draw(NUMBERS)}{stamp}"


COMMENTS = st.sampled_from(["", "# a comment 5", "# EOF", "#x"])
WELL_FORMED = st.lists(st.one_of(sample_lines(), COMMENTS), max_size=25)


@settings(max_examples=100, deadline=None)
@given(lines=WELL_FORMED, end=st.sampled_from(["\n", "\r\n"]))
def test_any_well_formed_page_gives_the_full_parsers_numbers(lines: list[str], end: str) -> None:
    text = "".join(line + end for line in lines)
    reader = PageReader()

    first, second = reader.read(text), reader.read(text)

    assert_same(by_us(first), by_full_parser(text))
    assert_same(by_us(second), by_us(first))


@settings(max_examples=100, deadline=None)
@given(
    text=st.one_of(
        st.text(max_size=400),
        st.lists(st.one_of(sample_lines(), st.text(max_size=40)), max_size=12).map("\n".join),
    )
)
@example(text='vllm:num_requests_running{engine="0"} 1_000\n')
@example(text="vllm:num_requests_running \uff15\n")
@example(text='vllm:num_requests_running{engine="0} 5\n')
@example(text='vllm:num_requests_running{engine="0"} \n')
def test_no_text_makes_it_fail_and_no_number_comes_from_nowhere(text: str) -> None:
    values = PageReader().read(text)

    for number in values.numbers.values():
        assert math.isnan(number) or any(_reads_as(word, number) for word in text.split())


def _reads_as(word: str, number: float) -> bool:
    for start in range(len(word)):
        try:
            if float(word[start:]) == number:
                return True
        except ValueError:
            continue
    return False


def one(text: str, signal: Signal) -> float | None:
    """The only number of `signal` on a page, None where there is none."""
    found = [v for t, v in PageReader().read(text).numbers.items() if t.signal is signal]
    assert len(found) <= 1
    return found[0] if found else None


@pytest.mark.parametrize(
    "line",
    [
        'vllm:num_requests_running{engine="0"} 7',
        'vllm:num_requests_running{engine="0"} 7.0 1790000000000',
        'vllm:num_requests_running{engine="0",} 7',
        'vllm:num_requests_running{ engine = "0" , model_name="a b}\\"c" }  7',
        'vllm:num_requests_running{engine="0"}\t7',
        'vllm:num_requests_running{engine="0"} 7 # {trace_id="x y"} 0.5 1.0',
        'vllm:num_requests_running{engine="0"}7',
        "vllm:num_requests_running 7",
        "vllm:num_requests_running\t7\t",
    ],
)
def test_odd_but_legal_layouts_are_read(line: str) -> None:
    assert one(f"{line}\n", Signal.RUNNING) == 7


@pytest.mark.parametrize(
    "line",
    [
        'vllm:num_requests_running{engine="0" 7',
        "vllm:num_requests_running{engine=0} 7",
        'vllm:num_requests_running{engine="0"}',
        'vllm:num_requests_running{engine="0"} 0x7',
        'vllm:num_requests_running{engine="0"} 7 8 9',
        'vllm:num_requests_running{engine="0"} seven',
        'vllm:num_requests_running {engine="0"} 7 }',
        "vllm:num_requests_running_7",
    ],
)
def test_broken_lines_give_nothing_and_are_counted(line: str) -> None:
    values = PageReader().read(f"{line}\n")

    assert not values.numbers
    assert values.garbage == 1


def test_a_number_that_may_be_cut_is_not_read() -> None:
    values = PageReader().read("vllm:generation_tokens_total 12\nvllm:iteration_tokens_total_count 551234")

    assert values.cut_short
    assert [t.signal for t in values.numbers] == [Signal.GENERATION_TOKENS]


def test_the_same_series_with_two_numbers_is_left_out() -> None:
    twice = 'vllm:num_requests_running{engine="0"} 1\nvllm:num_requests_running{engine="0"} 2\n'
    equal = 'vllm:num_requests_running{engine="0"} 1\nvllm:num_requests_running{engine="0"} 1\n'

    assert one(twice, Signal.RUNNING) is None
    assert one(equal, Signal.RUNNING) == 1


def test_a_hostile_line_costs_no_more_than_its_length() -> None:
    label = 'vllm:x{a="b"' + " " * 60_000 + "!\n"
    name = "vllm:x" + " " * 60_000 + "{\n"
    quotes = 'vllm:x{a="' + '\\"' * 30_000 + "\n"

    values = PageReader().read(label + name + quotes)  # quadratic work would run into the test's time limit

    assert not values.numbers
    assert values.garbage == 3


def test_the_cache_is_bounded_and_forgetting_changes_nothing() -> None:
    reader = PageReader(bound=50)
    text = "".join(f'vllm:num_requests_running{{engine="{n}"}} {n}\n' for n in range(200))

    readings = [by_us(reader.read(text)) for _ in range(3)]

    assert readings[0] == readings[1] == readings[2]
    assert len(readings[0]) == 200
    assert len(reader._known) <= 250
