"""`kintsugi advise` as people call it: on files, and on a cluster that answers over HTTP."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from kintsugi.__main__ import main
from kintsugi.core.advisor.saved import saved_head
from kintsugi.testing.engine import EngineShape
from tests.unit.advisor.stage import Load, Stage, fixed

MANIFEST = {
    "apiVersion": "kintsugi.dev/v1alpha1",
    "kind": "DeepSeekV4Deployment",
    "metadata": {"name": "chat"},
    "spec": {
        "model": {"id": "deepseek-ai/DeepSeek-V4-Flash-0731"},
        "hardware": {"gpu": "H200"},
        "pools": [{"name": "main", "engine": {"args": {"maxNumSeqs": 64}}}],
    },
}


def run(*words: str) -> Result:
    return CliRunner().invoke(main, ["advise", *words], catch_exceptions=False)


def saved(stage: Stage, pool: str = "main") -> str:
    return "".join(
        saved_head(pool, f"{pool}-{n}", page.mono) + page.text
        for n in range(stage.engines)
        for page in stage.pages(n)
    )


@pytest.fixture(scope="module")
def overflowing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pages")
    stage = Stage(Load(3, fixed(4000, 800)), EngineShape(num_gpu_blocks=400))
    (folder / "a.txt").write_text(saved(stage), encoding="utf-8")
    (folder / "fleet.yaml").write_text(yaml.safe_dump(MANIFEST), encoding="utf-8")
    return folder


def only(result: Result) -> dict[str, Any]:
    assert result.exit_code == 0, result.output
    (found,) = json.loads(result.stdout)["deployments"]
    assert isinstance(found, dict)
    return found


def test_saved_pages_and_a_manifest_give_advice_as_json(overflowing: Path) -> None:
    found = only(
        run("--from", str(overflowing / "a.txt"), "-f", str(overflowing / "fleet.yaml"), "-o", "json")
    )
    assert found["deployment"] == "chat"
    paths = {each["path"]: each for each in found["suggestions"]}
    advice = paths["spec.pools[0].engine.args.maxNumSeqs"]
    assert advice["current"] == 64
    assert advice["suggested"] < 25
    assert advice["samples"] == 25
    assert found["pools"]["main"]["preemptions"] > 3


def test_a_folder_is_read_whole_and_without_a_manifest_the_settings_are_unknown(
    overflowing: Path, tmp_path: Path
) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "pages").write_text(
        (overflowing / "a.txt").read_text(encoding="utf-8"), encoding="utf-8"
    )
    found = only(run("--from", str(tmp_path), "-o", "json"))
    (advice,) = [each for each in found["suggestions"] if each["path"].endswith("maxNumSeqs")]
    assert advice["path"] == "spec.pools[name=main].engine.args.maxNumSeqs"
    assert advice["current"] is None


def test_the_table_names_field_and_reason_and_says_that_nothing_was_changed(overflowing: Path) -> None:
    result = run("--from", str(overflowing / "a.txt"), "-f", str(overflowing / "fleet.yaml"))
    assert result.exit_code == 0
    plain = "".join(result.output.split())
    assert "maxNumSeqs" in plain
    assert "Nothingwaschanged." in plain


def test_a_window_takes_only_the_newest_pages(overflowing: Path) -> None:
    found = only(run("--from", str(overflowing / "a.txt"), "--window", "30", "-o", "json"))
    assert found["suggestions"] == []
    assert "the window is 30 s" in found["missing"][0]["why"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "there is no page in it"),
        ("vllm:num_requests_running 1\n", "without a line that says whose it is"),
    ],
)
def test_files_without_pages_are_refused_with_the_cure(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "pages").write_text(text, encoding="utf-8")
    result = run("--from", str(tmp_path / "pages"))
    assert result.exit_code == 2
    assert words in result.output


def test_a_binary_file_is_refused_without_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "pages").write_bytes(b"\xff\xfe\x00")
    assert run("--from", str(tmp_path / "pages")).exit_code == 2


@pytest.mark.parametrize("text", ["kind: DeepSeekV4Deployment\nspec: 3\n", "{", "a: 1\n", "[]\n"])
def test_a_manifest_that_is_none_is_refused_without_a_traceback(
    overflowing: Path, tmp_path: Path, text: str
) -> None:
    (tmp_path / "fleet.yaml").write_text(text, encoding="utf-8")
    result = run("--from", str(overflowing / "a.txt"), "-f", str(tmp_path / "fleet.yaml"))
    assert result.exit_code == 2
    assert "fleet.yaml" in result.output


def test_pages_of_a_pool_that_the_manifest_does_not_have_are_named(overflowing: Path, tmp_path: Path) -> None:
    text = (overflowing / "a.txt").read_text(encoding="utf-8").replace("pool=main", "pool=other")
    (tmp_path / "pages").write_text(text, encoding="utf-8")
    result = run("--from", str(tmp_path / "pages"), "-f", str(overflowing / "fleet.yaml"))
    assert result.exit_code == 2
    assert "pool other" in result.output


def test_pages_that_name_no_pool_belong_to_the_only_one(overflowing: Path, tmp_path: Path) -> None:
    text = (overflowing / "a.txt").read_text(encoding="utf-8").replace("pool=main ", "")
    (tmp_path / "pages").write_text(text, encoding="utf-8")
    found = only(run("--from", str(tmp_path / "pages"), "-f", str(overflowing / "fleet.yaml"), "-o", "json"))
    assert found["suggestions"]


def test_a_manifest_without_saved_pages_is_a_misunderstanding(overflowing: Path) -> None:
    result = run("-f", str(overflowing / "fleet.yaml"))
    assert result.exit_code == 2
    assert "--from" in result.output


def test_saved_pages_are_not_saved_again(overflowing: Path, tmp_path: Path) -> None:
    result = run("--from", str(overflowing / "a.txt"), "--save", str(tmp_path / "more"))
    assert result.exit_code == 2
    assert "--save" in result.output


def test_no_cluster_says_so(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("apiVersion: v1\nkind: Config\n", encoding="utf-8")
    result = run("--kubeconfig", str(tmp_path / "config"))
    assert result.exit_code == 2
    assert "no cluster to read" in result.output
