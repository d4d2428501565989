"""The simulated engine takes every command that the operator renders, and means the same by it."""

import click
import pytest

from kintsugi.cli.simulate_engine import simulate_engine
from kintsugi.core.command.argument import Command
from kintsugi.core.command.effective import effective
from kintsugi.core.command.read import read_words
from tests.unit.command.cases import CASES, commands_of, versions_of

PAIRS = [(name, version) for name in CASES for version in versions_of(name)]


@pytest.mark.parametrize(("name", "version"), PAIRS)
def test_every_rendered_command_is_taken(name: str, version: str) -> None:
    for _, command in commands_of(name, version):
        context = simulate_engine.make_context("simulate-engine", command.words())
        got, taken = effective(command), context.params
        names = command.get("--served-model-name")
        assert names is not None
        assert taken["served_model_name"] == names.values
        assert taken["data_parallel_size"] == got.data_parallel
        assert taken["tensor_parallel_size"] == got.tensor_parallel
        assert taken["enable_prefix_caching"] == got.prefix_caching
        if command.get("--max-num-seqs"):
            assert taken["max_num_seqs"] == got.max_num_seqs
        if command.get("--max-model-len"):
            assert taken["max_model_len"] == got.max_model_len


@pytest.mark.parametrize(
    "words",
    [
        ["vllm", "serve", "org/x", "-tp", "2", "-dp=3", "--max_num_seqs", "5"],
        ["--model=org/x", "-tp=2", "--data_parallel_size", "3", "--max-num-seqs=5", "-O3", "-n2"],
        ["org/x", "--lora-modules", "a=/a", "b=/b", "-tp", "2", "-dp", "3", "--max-num-seqs", "5", "--no-x"],
    ],
)
def test_every_spelling_is_taken(words: list[str]) -> None:
    taken = simulate_engine.make_context("simulate-engine", words).params
    assert taken["model"] == "org/x"
    assert (taken["tensor_parallel_size"], taken["data_parallel_size"], taken["max_num_seqs"]) == (2, 3, 5)


def test_a_flag_without_its_value_is_refused() -> None:
    with pytest.raises(click.UsageError):
        simulate_engine.make_context("simulate-engine", ["--max-num-seqs"])


def test_what_the_simulation_ignores_is_kept_for_its_log() -> None:
    words = ["--model", "m", "--kv-offloading-size", "32", "--speculative-config", '{"method": "mtp"}']
    left = simulate_engine.make_context("simulate-engine", words).args
    assert Command(read_words(left, str)).words() == words[2:]
