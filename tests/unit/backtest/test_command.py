"""`kintsugi backtest` and `kintsugi record` as people call them."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from kintsugi.__main__ import main
from kintsugi.cli.recordfile import RecordWriter
from tests.backtest.recorded import change, fleet, names_of, policy_manifest, record


class Stage:
    """A folder with a policy and a record of 25 minutes in which one engine hangs for 100 seconds."""

    def __init__(self, folder: Path) -> None:
        self.policy, self.record = folder / "policy.yaml", folder / "hour.gz"
        self.policy.write_text(yaml.safe_dump(policy_manifest()))

        async def made() -> tuple[str, str]:
            scene = await fleet()
            victim = names_of(scene)[0]
            acts = [(600.0, change(victim, hung=True)), (700.0, change(victim, hung=False))]
            return await record(scene, acts, seconds=1500.0), victim

        text, self.victim = asyncio.run(made())
        with RecordWriter(self.record) as writer:
            writer.write(text)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    return Stage(tmp_path_factory.mktemp("backtest"))


def run(*words: str | Path) -> Result:
    wide = CliRunner(env={"COLUMNS": "200"})
    return wide.invoke(main, ["backtest", *map(str, words)], catch_exceptions=False)


def found(result: Result) -> dict[str, Any]:
    assert result.exit_code == 0, result.output
    document: dict[str, Any] = json.loads(result.stdout)
    return document


def test_the_document_says_what_when_and_why(stage: Stage) -> None:
    document = found(run("-f", stage.policy, "--from", stage.record, "-o", "json"))
    (incident,) = document["incidents"]
    assert (incident["instance"], incident["ended"]) == (stage.victim, "recovered")
    assert incident["restsOnUnsentCanaries"]
    assert incident["falsePositiveCandidate"]
    assert [each["action"] for each in incident["wouldHave"]] == ["withdraw", "putBack"]
    assert document["falsePositiveCandidates"][0]["instance"] == stage.victim
    assert document["actions"][0]["gates"]
    assert document["everySeconds"] == 10.0
    assert document["data"] == {"AllRead": document["passes"]}
    assert document["notes"] == []
    assert {each["name"] for each in document["instances"]} >= {stage.victim}


def test_people_are_told_the_same(stage: Stage) -> None:
    text = run("-f", stage.policy, "--from", stage.record).output
    for words in (
        f"{stage.victim} (short, ",
        "would have asked by canary",
        "withdraw from traffic",
        "put back in traffic",
        "false positive?",
        "not replayed: stall: history answers no canary",
        "assumed: a node has room",
    ):
        assert words in " ".join(text.split()), words


@pytest.mark.parametrize(("suffix", "begin"), [(".png", b"\x89PNG"), (".svg", b"<?xml")])
def test_the_timeline_is_drawn(stage: Stage, tmp_path: Path, suffix: str, begin: bytes) -> None:
    picture = tmp_path / f"timeline{suffix}"
    assert run("-f", stage.policy, "--from", stage.record, "--plot", picture).exit_code == 0
    assert picture.read_bytes().startswith(begin)


def test_a_picture_of_another_kind_is_refused(stage: Stage, tmp_path: Path) -> None:
    result = run("-f", stage.policy, "--from", stage.record, "--plot", tmp_path / "timeline.pdf")
    assert result.exit_code == 2
    assert "name a .png or .svg file" in result.output


def test_a_record_that_was_cut_is_replayed_and_said_to_be_cut(stage: Stage, tmp_path: Path) -> None:
    cut = tmp_path / "cut.gz"
    cut.write_bytes(stage.record.read_bytes()[:-2000])
    document = found(run("-f", stage.policy, "--from", cut, "-o", "json"))
    assert document["notes"] == [f"{cut} ends in the middle of a page, which is left out"]
    assert document["pages"] > 300


def test_a_folder_of_records_is_one_history(stage: Stage, tmp_path: Path) -> None:
    whole = found(run("-f", stage.policy, "--from", stage.record, "-o", "json"))
    (tmp_path / "a.gz").write_bytes(stage.record.read_bytes())
    again = found(run("-f", stage.policy, "--from", tmp_path, "-o", "json"))
    assert again["incidents"] == whole["incidents"]


def test_a_policy_without_a_gpu_to_spare_removes_first(stage: Stage) -> None:
    document = found(run("-f", stage.policy, "--from", stage.record, "--no-free-gpu", "-o", "json"))
    assert document["assumed"][0].startswith("no GPU is free")


def test_pages_that_advise_saved_are_a_history_too(stage: Stage, tmp_path: Path) -> None:
    lines = [
        "# kintsugi-page time={0} pool=short instance=e-0\nvllm:num_requests_running 1\n" for _ in range(9)
    ]
    text = "".join(line.format(1000 + 5 * n) for n, line in enumerate(lines))
    (tmp_path / "pages.txt").write_text(text)
    document = found(run("-f", stage.policy, "--from", tmp_path / "pages.txt", "-o", "json"))
    assert document["pages"] == 9
    assert any("pods' own states" in said for said in document["notReplayed"])
    assert document["actions"] == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--since", "soon"], "no duration, such as 90s"),
        (["--until", "yesterday"], "no time with its zone"),
        (["--until", "2026-01-01T00:00:00"], "no time with its zone"),
        ([], "say where the history is: --from FILE, or --prometheus URL"),
        (["--prometheus", "ftp://x"], "must begin with http:// or https://"),
    ],
)
def test_what_can_not_be_meant_is_said_with_its_cure(stage: Stage, words: list[str], said: str) -> None:
    result = run("-f", stage.policy, *words)
    assert result.exit_code == 2
    assert said in " ".join(result.output.split())


def test_one_history_at_a_time(stage: Stage) -> None:
    result = run("-f", stage.policy, "--from", stage.record, "--prometheus", "http://127.0.0.1:9")
    assert result.exit_code == 2
    assert "either --from or --prometheus" in result.output


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("kind: Pod\n", "holds 0 DeepSeekV4Deployments"),
        ("a: [\n", "policy.yaml: line"),
        ("kind: DeepSeekV4Deployment\nspec: {}\n", "policy.yaml: "),
        ("kind: DeepSeekV4Deployment\nspec: 5\n", "policy.yaml: "),
    ],
)
def test_a_policy_that_is_none_is_said_to_be_none(stage: Stage, tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "policy.yaml").write_text(text)
    result = run("-f", tmp_path / "policy.yaml", "--from", stage.record)
    assert result.exit_code == 2
    assert said in result.output


def test_pools_that_the_policy_does_not_know_are_named(stage: Stage, tmp_path: Path) -> None:
    manifest = policy_manifest()
    manifest["spec"]["pools"] = [{"name": "long"}, {"name": "other"}]
    (tmp_path / "policy.yaml").write_text(yaml.safe_dump(manifest))
    result = run("-f", tmp_path / "policy.yaml", "--from", stage.record)
    assert result.exit_code == 2
    assert "is of pool short, and the policy has long, other" in " ".join(result.output.split())


def test_looks_too_far_apart_are_refused_with_the_cure(stage: Stage) -> None:
    result = run("-f", stage.policy, "--from", stage.record, "--step", "60s")
    assert result.exit_code == 2
    assert "every 15 s or more often" in " ".join(result.output.split())


def test_an_empty_record_is_said_to_be_empty(stage: Stage, tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("")
    result = run("-f", stage.policy, "--from", tmp_path / "empty")
    assert result.exit_code == 2
    assert "no two pages of one engine" in " ".join(result.output.split())


def test_a_damaged_record_is_no_traceback(stage: Stage, tmp_path: Path) -> None:
    (tmp_path / "noise.gz").write_bytes(b"\x1f\x8b" + bytes(range(200)))
    result = run("-f", stage.policy, "--from", tmp_path / "noise.gz")
    assert result.exit_code == 2
    assert "is damaged" in result.output


def test_recording_without_a_cluster_says_how_to_name_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    result = CliRunner().invoke(main, ["record", "-o", str(tmp_path / "a.gz")])
    assert result.exit_code == 2
    assert "Name one with --kubeconfig" in result.output
    assert not (tmp_path / "a.gz").exists()


def held(stage: Stage, folder: Path, manifest: dict[str, Any]) -> dict[str, Any]:
    (folder / "policy.yaml").write_text(yaml.safe_dump(manifest))
    return found(run("-f", folder / "policy.yaml", "--from", stage.record, "-o", "json"))


def test_a_pause_holds_everything_back_and_is_named(stage: Stage, tmp_path: Path) -> None:
    manifest = policy_manifest()
    manifest["metadata"]["annotations"] = {"kintsugi.dev/pause.freeze": "until Monday"}
    document = held(stage, tmp_path, manifest)
    assert document["actions"] == []
    assert {(each["gate"], each["instance"]) for each in document["withheld"]} == {("paused", stage.victim)}
    assert document["incidents"][0]["withheld"] == document["withheld"]


def test_a_spec_that_the_operator_would_not_run_heals_nobody(stage: Stage, tmp_path: Path) -> None:
    manifest = policy_manifest()
    manifest["spec"]["hardware"]["nodesPerInstance"] = 2
    document = held(stage, tmp_path, manifest)
    assert any("nodesPerInstance" in said for said in document["refused"])
    assert document["actions"] == []
    assert {each["gate"] for each in document["withheld"]} == {"spec"}
    text = run("-f", tmp_path / "policy.yaml", "--from", stage.record).output
    assert "The operator would not run this spec, so it would do nothing" in text


def test_a_setting_that_nobody_reads_is_named(stage: Stage, tmp_path: Path) -> None:
    policy = policy_manifest()
    policy["spec"].setdefault("healing", {})["triggers"] = {"stall": {"detectSecond": 5}}
    path = tmp_path / "policy.yaml"
    path.write_text(yaml.safe_dump(policy))
    result = run("-f", path, "--from", stage.record, "-o", "json")
    assert result.exit_code == 0
    assert "spec.healing.triggers.stall.detectSecond" in result.stderr
    assert json.loads(result.stdout)["everySeconds"] == 10.0
