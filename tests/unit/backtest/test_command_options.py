"""What `kintsugi backtest` says of options and policies that would be read otherwise than they were meant."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from kintsugi.__main__ import main
from kintsugi.api.objects import parse_deployment
from kintsugi.cli.backtest_source import pods_of
from tests.backtest.recorded import policy_manifest

PAGES = "".join(
    f"# kintsugi-page time={1000 + 5 * n} pool=short instance={{name}}\nvllm:num_requests_running 1\n"
    for n in range(9)
)


class Folder:
    """A policy and a record of one pod."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.write(yaml.safe_dump(policy_manifest()))
        self.record("chat-short-abc-x")

    def write(self, policy: str) -> None:
        (self.path / "policy.yaml").write_text(policy)

    def record(self, name: str) -> None:
        (self.path / "pages.txt").write_text(PAGES.format(name=name))

    def run(self, *words: str) -> Result:
        said = ["backtest", "-f", str(self.path / "policy.yaml"), *words]
        return CliRunner(env={"COLUMNS": "200"}).invoke(main, said, catch_exceptions=False)

    def replay(self, *words: str) -> Result:
        return self.run("--from", str(self.path / "pages.txt"), "-o", "json", *words)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--since", "1h"),
        ("--until", "2026-11-29T12:00:00Z"),
        ("--namespace", "llm"),
        ("--selector", "a=1"),
        ("--token-file", "policy.yaml"),
    ],
)
def test_an_option_of_prometheus_is_refused_beside_files(folder: Folder, option: str, value: str) -> None:
    result = folder.replay(option, str(folder.path / value) if option == "--token-file" else value)
    assert result.exit_code == 2
    assert f"{option} is for --prometheus" in result.output


@pytest.mark.parametrize("since", ["1000w", "99999999999d", "9" * 400, "9" * 400 + "w"])
def test_more_than_ten_years_are_refused(folder: Folder, since: str) -> None:
    result = folder.run("--prometheus", "http://127.0.0.1:9", "--since", since)
    assert result.exit_code == 2
    assert "is more than ten years" in result.output
    assert len(result.output) < 400


def test_a_policy_without_a_name_is_refused(folder: Folder) -> None:
    manifest = policy_manifest()
    manifest["metadata"]["name"] = ""
    folder.write(yaml.safe_dump(manifest))
    result = folder.replay()
    assert result.exit_code == 2
    assert "metadata.name" in result.output


def test_a_key_that_stands_twice_is_warned_of(folder: Folder) -> None:
    folder.write(yaml.safe_dump(policy_manifest()) + "kind: DeepSeekV4Deployment\n")
    result = folder.replay()
    assert result.exit_code == 0
    assert re.search(r"Warning: .*policy.yaml:\d+: kind stands there twice", result.stderr)


def test_pods_of_another_name_are_noted(folder: Folder) -> None:
    assert json.loads(folder.replay().stdout)["notes"] == []
    folder.record("other-short-abc-x")
    (note,) = json.loads(folder.replay().stdout)["notes"]
    assert note == "pods that are not named after chat were replayed as its own (other-short-abc-x)"


@pytest.mark.parametrize(
    ("pools", "pod", "taken"),
    [
        (["short", "long"], "chat-short-7f9c4abc-x2x8p", True),
        (["short", "long"], "chat-long-7f9c4abc-x2x8p", True),
        (["short", "long"], "chat-beta-short-7f9c4abc-x2x8p", False),
        (["short"], "chat-short-two-short-7f9c4abc-x2x8p", False),
        ([], "chat-main-7f9c4abc-x2x8p", True),
        ([], "chat-beta-main-7f9c4abc-x2x8p", False),
        ([], "chatter-main-7f9c4abc-x2x8p", False),
    ],
)
def test_prometheus_is_asked_for_the_pods_of_the_policys_pools(
    pools: list[str], pod: str, taken: bool
) -> None:
    manifest: dict[str, Any] = policy_manifest()
    manifest["spec"].pop("pools", None)
    if pools:
        manifest["spec"]["pools"] = [{"name": name} for name in pools]
    found = re.fullmatch(r'pod=~"(.*)"', pods_of(parse_deployment(manifest)))
    assert found is not None
    assert (re.fullmatch(found[1].replace("\\\\", "\\"), pod) is not None) is taken
