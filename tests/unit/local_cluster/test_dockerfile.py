"""An image is built again when, and only when, something that it is made of has changed."""

from pathlib import Path

import pytest

from tests.cluster.dockerfile import content_key, context_files, copied


@pytest.mark.parametrize(
    ("instruction", "sources"),
    [
        ("COPY a b /dst/", ["a", "b"]),
        ("copy a b", ["a"]),
        ("ADD --chown=1:1 a /dst", ["a"]),
        ("COPY --from=build /x /y", []),
        ('COPY ["a b", "c", "/dst"]', ["a b", "c"]),
        ("COPY a \\\n  b \\\n  /dst", ["a", "b"]),
        ("RUN echo COPY a b", []),
        ("RUN --mount=type=bind,source=a,target=/a true", ["."]),
        ("RUN --mount=type=bind,from=build,target=/a true", []),
        ("RUN --mount=type=cache,target=/a true", []),
        ("# COPY a b", []),
    ],
)
def test_the_files_that_an_instruction_takes_from_the_context_are_known(
    instruction: str, sources: list[str]
) -> None:
    assert copied(f"FROM x\n{instruction}\n") == sources


@pytest.fixture
def context(tmp_path: Path) -> Path:
    for name in (
        "src/a.py",
        "src/deep/b.py",
        "src/__pycache__/a.pyc",
        "src/c.pyc",
        ".git/x",
        ".venv/y",
        "other",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    return tmp_path


def test_compiled_files_and_the_tools_own_folders_are_no_part_of_a_context(context: Path) -> None:
    assert [str(file) for file in context_files(context, ["."])] == ["other", "src/a.py", "src/deep/b.py"]


def test_patterns_and_folders_are_followed(context: Path) -> None:
    assert [str(file) for file in context_files(context, ["src/*.py", "oth*", "src/deep"])] == [
        "other",
        "src/a.py",
        "src/deep/b.py",
    ]


def test_a_source_that_is_not_there_is_named(context: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nothing"):
        context_files(context, ["nothing"])


def test_the_key_follows_the_content_and_nothing_else(context: Path) -> None:
    files = context_files(context, ["src"])

    def key(text: str = "FROM x", arguments: dict[str, str] | None = None, base: str = "b") -> str:
        return content_key(text, context, files, arguments or {}, base)

    first = key()
    (context / "other").write_text("changed")
    assert key() == first
    assert len({first, key(text="FROM y"), key(arguments={"A": "1"}), key(base="c")}) == 4
    (context / "src/a.py").chmod(0o755)
    second = key()
    (context / "src/a.py").write_text("changed")
    assert len({first, second, key()}) == 3
