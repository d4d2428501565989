"""Output that can't be written is told in one line; a reader that has gone is no trouble at all."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.unit.explain.fleets import healthy

FULL = Path("/dev/full")


def run(*words: str, into: int) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "kintsugi", *words]
    return subprocess.run(command, stdout=into, stderr=subprocess.PIPE, text=True, check=False)


@pytest.fixture
def fleet(tmp_path: Path) -> str:
    path = tmp_path / "fleet.yaml"
    path.write_text(yaml.safe_dump(healthy()), encoding="utf-8")
    return str(path)


@pytest.mark.skipif(not FULL.exists(), reason="needs /dev/full")
@pytest.mark.parametrize(
    "words", [["--help"], ["explain", "-f", "FLEET"], ["explain", "-f", "FLEET", "-o", "json"]]
)
def test_a_full_disk_is_told_in_one_line(words: list[str], fleet: str) -> None:
    with FULL.open("wb") as full:
        answer = run(*(fleet if word == "FLEET" else word for word in words), into=full.fileno())
    assert answer.returncode == 1
    assert answer.stderr == "Error: No space left on device\n"


def test_a_closed_pipe_stays_quiet(fleet: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        answer = run("explain", "-f", fleet, into=writing)
    finally:
        os.close(writing)
    assert (answer.returncode, answer.stderr) == (1, "")
