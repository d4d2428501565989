"""Words of a command line are read as vLLM's parser reads them, and never lost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kintsugi.core.command.argument import Argument
from kintsugi.core.command.flags import ALIASES, canonical
from kintsugi.core.command.number import share, whole
from kintsugi.core.command.read import POSITIONAL, read_words


def read(*words: str) -> list[tuple[str, tuple[str, ...]]]:
    return [(a.flag, a.values) for a in read_words(words, str)]


@pytest.mark.parametrize(
    ("words", "flag", "values"),
    [
        (["--max-model-len", "8192"], "--max-model-len", ("8192",)),
        (["--max_model_len", "8192"], "--max-model-len", ("8192",)),
        (["--max_model-len=8192"], "--max-model-len", ("8192",)),
        (["-tp", "8"], "--tensor-parallel-size", ("8",)),
        (["-tp=8"], "--tensor-parallel-size", ("8",)),
        (["-dp", "2"], "--data-parallel-size", ("2",)),
        (["-pp", "2"], "--pipeline-parallel-size", ("2",)),
        (["-dpl", "2"], "--data-parallel-size-local", ("2",)),
        (["-q", "awq"], "--quantization", ("awq",)),
        (["-n2"], "--nnodes", ("2",)),
        (["-O3"], "--optimization-level", ("3",)),
        (["-O", "3"], "--optimization-level", ("3",)),
        (["-O=3"], "--optimization-level", ("3",)),
        (["-ep"], "--enable-expert-parallel", ()),
        (["--enable-expert-parallel"], "--enable-expert-parallel", ()),
        (["--no-enable-prefix-caching"], "--enable-prefix-caching", ("false",)),
        (["--no_enable_prefix_caching"], "--enable-prefix-caching", ("false",)),
        (["--enable-chunked-prefill", "False"], "--enable-chunked-prefill", ("False",)),
        (["--served-model-name", "a", "b"], "--served-model-name", ("a", "b")),
        (["--lora-modules", "a=/x", '{"name": "b", "path": "/y"}'], "--lora-modules", ("a=/x", '{"name": "b", "path": "/y"}')),
        (["--max-model-len", "-1"], "--max-model-len", ("-1",)),
        (["--chat-template", "-a b"], "--chat-template", ("-a b",)),
        (["--speculative-config", '{"a": "b=c", "d": -1}'], "--speculative-config", ('{"a": "b=c", "d": -1}',)),
        (["-sc", '{"method":"mtp"}'], "--speculative-config", ('{"method":"mtp"}',)),
        (["--attention_config.use_fp4_indexer_cache=True"], "--attention-config.use_fp4_indexer_cache", ("True",)),
        (["-cc.cudagraph_mode", "--odd"], "--compilation-config.cudagraph_mode", ("--odd",)),
        (["-O.mode", "3"], "--compilation-config.mode", ("3",)),
        (["--kv-transfer-config.connectors+=a,b"], "--kv-transfer-config.connectors", ("a,b",)),
        (["--unknown-flag", "value"], "--unknown-flag", ("value",)),
        (["--no-such-flag=a b"], "--no-such-flag", ("a b",)),
    ],
)  # fmt: skip
def test_every_spelling_of_a_flag_is_understood(words: list[str], flag: str, values: tuple[str, ...]) -> None:
    assert read(*words) == [(flag, values)]


def test_a_switch_takes_no_word_and_a_flag_takes_one() -> None:
    assert read("--enforce-eager", "stray", "--seed", "1", "2") == [
        ("--enforce-eager", ()),
        (POSITIONAL, ("stray",)),
        ("--seed", ("1",)),
        (POSITIONAL, ("2",)),
    ]


def test_a_flag_and_its_value_in_one_word_belong_to_no_flag() -> None:
    """argparse takes a word with a space for a value: the engine ends with "unrecognized arguments"."""
    assert read("--max-model-len 8192") == [(POSITIONAL, ("--max-model-len 8192",))]


def test_nothing_after_two_dashes_is_a_flag() -> None:
    assert read("-tp", "2", "--", "-tp", "4") == [
        ("--tensor-parallel-size", ("2",)),
        (POSITIONAL, ("--",)),
        (POSITIONAL, ("-tp",)),
        (POSITIONAL, ("4",)),
    ]


def test_a_flag_without_its_value_is_read_all_the_same() -> None:
    assert read("--max-model-len", "--seed") == [("--max-model-len", ()), ("--seed", ())]
    assert read("--attention-config.backend") == [("--attention-config.backend", ())]


def test_a_unique_beginning_stands_for_the_whole_flag_where_all_flags_are_known() -> None:
    known = {"--max-model-len", "--max-num-seqs", "--max-num-batched-tokens"}
    assert canonical("--max-mod", known) == "--max-model-len"
    assert canonical("--max-num", known) == "--max-num"
    assert canonical("--max-num-seqs", known) == "--max-num-seqs"
    (found,) = read_words(["--max_mod=5"], str, known)
    assert (found.flag, found.values) == ("--max-model-len", ("5",))


def test_the_origin_is_that_of_the_first_word() -> None:
    found = read_words(["--a", "1", "--b=2", "x"], lambda index: f"at {index}")
    assert [a.origin for a in found] == ["at 0", "at 2", "at 3"]


def test_no_short_form_stands_for_another_one() -> None:
    assert all(canonical(full) == full for full in ALIASES.values())
    assert len(set(ALIASES.values())) == len(ALIASES)


WORDS = st.one_of(
    st.text(max_size=12),
    st.sampled_from([*ALIASES, *ALIASES.values(), "--served-model-name", "--", "-", "", "=", "--=", "-O.", "--no-"]),
    st.builds(lambda a, b: f"--{a}={b}", st.text(max_size=8), st.text(max_size=8)),
    st.builds(lambda a, b: f"--{a}.{b}", st.text(max_size=8), st.text(max_size=8)),
)  # fmt: skip


@given(st.lists(WORDS, max_size=12))
def test_any_words_are_read_and_come_back_byte_for_byte(words: list[str]) -> None:
    found: tuple[Argument, ...] = read_words(words, str)
    assert [word for argument in found for word in argument.words] == words
    assert all(argument.words for argument in found)
    assert all(argument.flag == POSITIONAL or argument.flag.startswith("-") for argument in found)


@given(st.text(max_size=20))
def test_a_canonical_flag_is_its_own_canonical_form(text: str) -> None:
    once = canonical(text)
    if not once.startswith("--no-"):
        assert canonical(once) == once


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("8192", 8192),
        ("8k", 8000),
        ("8K", 8192),
        ("25.6k", 25600),
        ("1M", 2**20),
        ("-1", -1),
        (" 5 ", 5),
        ("1.5K", None),
        ("many", None),
        ("", None),
        (None, None),
        ("٣", None),
        ("9" * 5000, None),
    ],
)
def test_numbers_are_read_as_vllm_reads_them(text: str | None, number: int | None) -> None:
    assert whole(text) == number


@pytest.mark.parametrize(("text", "number"), [("0.9", 0.9), ("nan", None), ("inf", None), ("x", None), (None, None)])  # fmt: skip
def test_a_share_is_a_finite_number(text: str | None, number: float | None) -> None:
    assert share(text) == number


@given(st.text(max_size=40))
def test_no_text_breaks_the_numbers(text: str) -> None:
    assert whole(text) is None or isinstance(whole(text), int)
    assert share(text) is None or isinstance(share(text), float)
