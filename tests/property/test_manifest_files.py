"""Files through the commands: any text, any manifest; an exit code and a sentence, never a traceback."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kintsugi.__main__ import main
from tests.property.manifests import manifests

SOME = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
COMMANDS = [
    ["lint", "-o", "json"],
    ["lint", "-o", "sarif"],
    ["lint"],
    ["render", "-f"],
    ["plan", "-o", "json", "-f"],
    ["plan", "-f"],
]


def run(words: list[str], path: Path) -> Result:
    return CliRunner().invoke(main, [*words, str(path)])


def assert_answered(result: Result) -> None:
    """An exit code of its own and some words; an exception of ours would be neither."""
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code in (0, 1, 2)
    assert result.output.strip()
    assert "Traceback" not in result.output


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
@given(raw=manifests())
@SOME
def test_any_manifest_in_a_file_gets_an_answer(words: list[str], tmp_path: Path, raw: dict[str, Any]) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text(yaml.safe_dump(raw, allow_unicode=True), encoding="utf-8")
    assert_answered(run(words, path))


texts = st.one_of(
    st.text(max_size=80),
    st.lists(
        st.sampled_from(
            [
                "spec:",
                "\n",
                "  ",
                "- ",
                "model: ",
                "{",
                "}",
                "*a",
                "&a ",
                "!!python/object:x",
                "<<: ",
                "\t",
                "|",
                ": ",
            ]
        )
    ).map("".join),
)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
@given(text=texts)
@example(text="kind: DeepSeekV4Deployment\nspec: &a {model: *a}\n")
@example(text="? [a]\n: b\n")
@example(text="kind: DeepSeekV4Deployment\nmetadata: {name: 2026-01-01}\nspec: {model: {id: 2026-01-01}}\n")
@example(text="kind: List\nitems: [3, null, {kind: DeepSeekV4Deployment}]\n")
@example(text="---\n---\n...\n")
@example(text="kind: DeepSeekV4Deployment\nspec: {model: {id: gpt2}, podTemplate: {metadata: {a: .nan}}}\n")
@example(text="[\n" * 3000)  # a line each: on one line the parser takes a second
@SOME
def test_any_text_in_a_file_gets_an_answer(words: list[str], tmp_path: Path, text: str) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    assert_answered(run(words, path))


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("data", [b"", b"\xff\xfe\x00\x01", b"\x00", b"\xef\xbb\xbfkind: x\n"])
def test_bytes_that_are_no_text_get_an_answer(words: list[str], tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_bytes(data)
    assert_answered(run(words, path))
