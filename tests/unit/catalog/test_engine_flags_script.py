import importlib.util
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

from kintsugi.core.catalog.flaglists import flag_lists

ROOT = Path(__file__).parents[3]
ENGINE = """
class EngineArgs:
    @staticmethod
    def add_cli_args(parser):
        group = parser.add_argument_group("cache")
        group.add_argument("--block-size", type=int)
        group.add_argument("--quantization", "-q")
        if True:
            parser.add_argument("--old-name", "--new-name", deprecated=True)
"""
FRONTEND = """
class BaseFrontendArgs:
    lora_modules: list[str] | None = None
    @classmethod
    def add_cli_args(cls, parser):
        for key, value in kwargs.items():
            parser.add_argument(*flags, f"--{key}", **value)
class FrontendArgs(BaseFrontendArgs):
    port: int = 8000
def make_arg_parser(parser):
    parser.add_argument("model_tag", nargs="?")
    parser.add_argument("--headless", action="store_true")
"""


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("engine_flags", ROOT / ".ci" / "engine_flags.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def unpacked(folder: Path, version: str, engine: str = ENGINE, frontend: str = FRONTEND) -> str:
    for path, text in (
        ("vllm/engine/arg_utils.py", engine),
        ("vllm/entrypoints/openai/cli_args.py", frontend),
    ):
        file = folder / version / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")
    return str(folder / version)


def test_literal_names_and_the_fields_of_the_front_end_become_the_packed_lists(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    newer = unpacked(tmp_path, "0.10.0", ENGINE.replace("--block-size", "--page-size"))
    older = unpacked(tmp_path, "0.9.0")

    assert script.main([newer, older]) == 0

    both = frozenset({"--headless", "--lora-modules", "--new-name", "--old-name", "--port", "--quantization"})
    (old_version, old), (new_version, new) = flag_lists(capsys.readouterr().out)
    assert str(old_version) == "0.9.0"
    assert old == both | {"--block-size"}
    assert str(new_version) == "0.10.0"
    assert new == both | {"--page-size"}


def test_a_wheel_is_read_without_unpacking_it(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wheel = tmp_path / "vllm-0.9.0-cp38-abi3-manylinux1_x86_64.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("vllm/engine/arg_utils.py", ENGINE)
        archive.writestr("vllm/entrypoints/common/cli_args.py", FRONTEND)

    assert script.main([str(wheel)]) == 0

    assert "releases 0.9.0\n--block-size 0\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("engine", "frontend"),
    [
        (ENGINE + "parser.add_argument('--' + name)\n", FRONTEND),
        (ENGINE, FRONTEND.replace("class FrontendArgs", "class ServerArgs")),
    ],
)
def test_names_that_are_computed_in_an_unknown_way_end_it_with_an_error(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], engine: str, frontend: str
) -> None:
    place = unpacked(tmp_path, "0.9.0", engine, frontend)

    assert script.main([place]) == 1

    said = capsys.readouterr()
    assert said.out == ""
    assert place in said.err
