"""What can't be served is refused at the start, by name and with the cure."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.engine.native.served import START_SECONDS, command, environment, free_port


@pytest.fixture(scope="module")
def said(
    engine_python: Path, package: Path, tiny_llama: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    """Each case's refusal."""
    script = Path(__file__).with_name("refusals.py")
    done = subprocess.run(
        [str(engine_python), str(script), str(tiny_llama), str(tmp_path_factory.mktemp("refused"))],
        capture_output=True, text=True, timeout=START_SECONDS, check=False, env=os.environ | environment(package),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, str] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("slots", ("100000000 slots of 8192 tokens need", "are free", "Say --max-num-seqs")),
        ("length", ("--max-model-len 9000: the model was made for 8192 tokens",)),
        ("empty", ("there is no config.json in this folder",)),
        ("unreadable", ("its config.json can't be read",)),
        ("mamba", ("mamba", "Serve it with runtime VLLM")),
        ("encoder", ("t5 is an encoder with a decoder",)),
        ("incomplete", ("lacks 9 weights of llama, such as model.layers.2.",)),
        ("forgetful", ("llama: with slots its logits lie", "off those without a cache")),
    ],
)
def test_each_is_refused_by_what_is_wrong(said: dict[str, str], case: str, words: tuple[str, ...]) -> None:
    for word in words:
        assert word in said[case]


def test_a_whole_model_is_not_refused(said: dict[str, str]) -> None:
    assert said["whole"] == ""


def test_a_refusal_ends_the_server_with_one_line_and_code_1(
    engine_python: Path, package: Path, tmp_path: Path
) -> None:
    done = subprocess.run(
        command(engine_python, tmp_path, free_port()), env=environment(package), capture_output=True, text=True,
        timeout=START_SECONDS, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert done.stderr.strip().splitlines()[-1].startswith("kintsugi-engine native: --model ")
