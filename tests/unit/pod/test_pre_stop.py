"""`preStop`: an engine that has our package waits for its streams, whoever ends the pod."""

import os
import stat
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.unit.pod.pods import container, group, pod, valid

IMAGE = "registry.corp/kintsugi/operator:1"
SLEEP = {"sleep": {"seconds": 5}}


def hook(template: dict[str, Any]) -> Any:
    return container(template)["lifecycle"]["preStop"]


def script(template: dict[str, Any]) -> str:
    """The shell's words."""
    shell, flag, words = hook(template)["exec"]["command"]
    assert (shell, flag) == ("/bin/sh", "-c")
    return str(words)


@pytest.mark.parametrize(
    ("spec", "image", "program"),
    [
        ({}, IMAGE, "python3 -m kintsugi_engine.cli drain"),
        ({"engine": {"telemetry": "Image"}}, "", "kintsugi-engine drain"),
        ({"engine": {"runtime": "Native", "image": "registry.corp/native:1"}}, "", "kintsugi-engine drain"),
    ],
    ids=["laid on", "in the image", "native"],
)
def test_with_the_package_there_the_hook_waits_for_the_streams(
    spec: dict[str, Any], image: str, program: str
) -> None:
    made = pod(spec | {"healing": {"drain": {"timeoutSeconds": 120}}}, operator_image=image)
    valid(made)
    assert script(made).startswith(f"{program} --least=5 --deadline=120 || ")
    assert made["spec"]["terminationGracePeriodSeconds"] >= 120 + 5


@pytest.mark.parametrize(
    "engine",
    [
        {"telemetry": "Disabled"},
        {"image": "vllm/vllm-openai:nightly"},
        {"command": ["kintsugi", "simulate-engine"]},
    ],
    ids=str,
)
def test_without_the_package_the_hook_only_waits_for_the_endpoints(engine: dict[str, Any]) -> None:
    assert hook(pod({"engine": engine}, operator_image=IMAGE)) == SLEEP


def test_a_hook_of_the_users_takes_its_place() -> None:
    own = {"httpGet": {"path": "/bye", "port": 8000}}
    template = {"spec": {"containers": [{"name": "engine", "lifecycle": {"preStop": own}}]}}
    assert hook(pod({"podTemplate": template}, operator_image=IMAGE)) == own


def test_nodes_of_a_group_that_answer_no_requests_wait_for_no_streams() -> None:
    made = group({"hardware": {"gpu": "H200", "gpusPerInstance": 8, "nodesPerInstance": 2}}, 0, IMAGE)
    assert "drain" in script(made["leaderTemplate"])
    assert hook(made["workerTemplate"]) == SLEEP


def test_the_endpoints_are_waited_for_where_no_stream_is() -> None:
    made = pod({"engine": {"telemetry": "Image"}, "healing": {"drain": {"timeoutSeconds": 0}}})
    assert "--least=5 --deadline=5 " in script(made)


@pytest.mark.parametrize(
    "program", [None, "exit 1", "kill -9 $$"], ids=["missing", "it fails", "it is killed"]
)
def test_where_the_program_can_not_run_the_hook_sleeps_instead(tmp_path: Path, program: str | None) -> None:
    words = script(pod({"engine": {"telemetry": "Image"}}))
    if program is not None:
        own = tmp_path / "kintsugi-engine"
        own.write_text(f"#!/bin/sh\n{program}\n")
        own.chmod(own.stat().st_mode | stat.S_IXUSR)
    (tmp_path / "sleep").symlink_to("/bin/sleep")
    began = time.monotonic()
    done = subprocess.run(
        ["/bin/sh", "-c", words], env=os.environ | {"PATH": str(tmp_path)}, check=False, capture_output=True
    )
    assert done.returncode == 0
    assert 4.9 < time.monotonic() - began < 15
