import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from kintsugi.__main__ import COMMANDS, main


def test_help_names_every_command_and_imports_none() -> None:
    code = (
        "import sys; from kintsugi.__main__ import main; main(['--help'], standalone_mode=False);"
        "print(sorted(m for m in sys.modules if m.startswith(('kintsugi.', 'kopf', 'kubernetes', 'pydantic'))))"
    )
    answer = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert answer.stdout.splitlines()[-1] == "['kintsugi.__main__']"
    assert all(name in answer.stdout for name in COMMANDS)


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_exists_and_explains_itself(name: str) -> None:
    command = main.get_command(click.Context(main), name)
    assert isinstance(command, click.Command)
    answer = CliRunner().invoke(main, [name, "--help"])
    assert answer.exit_code == 0, answer.output
    assert command.help, f"{name} has no docstring to show"


def test_an_unknown_command_is_refused_by_name() -> None:
    answer = CliRunner().invoke(main, ["mend"])
    assert answer.exit_code == 2
    assert "mend" in answer.output
