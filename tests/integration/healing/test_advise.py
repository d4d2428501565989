"""`kintsugi advise` on a real cluster: engines are read through the API server's pod proxy, and nothing is written."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.fleet import NAME, Fleet

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

WINDOW = 10
ADMIN = "kintsugi-admin"
"""Whose kubeconfig the command is given: its writes would stand in the audit log under this name."""


def advise(fleet: Fleet, *words: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "kintsugi", "advise", "-n", fleet.namespace, NAME, "--every", "1"]
    options = ["--kubeconfig", str(fleet.cluster.kubeconfig), "--context", fleet.cluster.context]
    return subprocess.run(
        [*command, *options, *words], capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.usefixtures("audited")
def test_live_engines_are_read_from_outside_the_cluster_and_their_pages_can_be_kept(
    fleet: Fleet, tmp_path: Path
) -> None:
    fleet.apply({"short": 2, "long": 1})
    fleet.wait_until_ready()
    assert fleet.cluster.writes(ADMIN), "the log sees this user's writes"
    before = fleet.cluster.writes(ADMIN)
    saved = tmp_path / "pages"
    answer = advise(fleet, "--window", str(WINDOW), "--save", str(saved), "-o", "json")
    assert answer.returncode == 0, answer.stderr
    (found,) = json.loads(answer.stdout)["deployments"]
    assert found["deployment"] == f"{fleet.namespace}/{NAME}"
    assert {pool: seen["instances"] for pool, seen in found["pools"].items()} == {"short": 2, "long": 1}
    assert all(seen["samples"] >= 6 for seen in found["pools"].values())
    assert found["suggestions"] == []
    assert {each["why"].partition(" s,")[0][:13] for each in found["missing"]} == {"the window is"}
    assert saved.read_text(encoding="utf-8").count("# kintsugi-page ") >= 18
    assert fleet.cluster.writes(ADMIN) == before
