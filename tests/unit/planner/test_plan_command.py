import json
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from kintsugi.__main__ import main
from tests.unit.planner.subjects import FLASH, PRO

KEYS = {"fits", "weightsBytes", "kvTokens", "concurrency", "maxContext", "costPerHour", "findings"}

BOMB = (
    b"a: &a [1,1,1,1,1,1,1,1,1,1]\n"
    + b"".join(
        f"{name}: &{name} [{','.join([f'*{before}'] * 10)}]\n".encode() for before, name in pairwise("abcdef")
    )
    + b"spec: *f\n"
)
"""A million items in a few lines."""


def run(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(main, ["plan", *arguments], input=stdin)


def document(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "kintsugi.dev/v1alpha1",
        "kind": "DeepSeekV4Deployment",
        "metadata": {"name": "chat", "namespace": "llm"},
        "spec": {"model": {"id": FLASH}, **spec},
    }


def written(folder: Path, *documents: Any) -> str:
    path = folder / "manifest.yaml"
    path.write_text(yaml.safe_dump_all(documents))
    return str(path)


def pools(result: Result) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(result.stdout)["pools"]
    return found


def test_json_has_the_promised_keys_for_each_pool(tmp_path: Path) -> None:
    two = [{"name": "short", "context": {"maxTokens": 8192}}, {"name": "long", "replicas": 2}]
    result = run("-o", "json", "-f", written(tmp_path, document(pools=two)))
    assert result.exit_code == 0, result.output
    found = pools(result)
    assert list(found) == ["short", "long"]
    for pool in found.values():
        assert set(pool) >= KEYS
        assert pool["fits"] is True
        assert all(isinstance(pool[key], int) for key in ("weightsBytes", "kvTokens", "maxContext"))
        assert set(pool["findings"][0]) == {"severity", "rule", "path", "message", "cure"}
    assert list(found["short"]["concurrency"]) == ["1024", "4096", "8192"]
    assert found["long"]["concurrency"]["1048576"] > 0


def test_a_pool_that_does_not_fit_exits_with_1(tmp_path: Path) -> None:
    manifest = document(model={"id": PRO}, hardware={"gpu": "H100", "gpusPerInstance": 8})
    result = run("-o", "json", "-f", written(tmp_path, manifest))
    assert result.exit_code == 1
    assert pools(result)["main"]["fits"] is False


@pytest.mark.parametrize(
    "content",
    [
        b"{{",
        b"\xff\xfe\x00",
        b"",
        b"- 1\n- 2\n",
        b"kind: Service\nspec: {}\n",
        b"kind: DeepSeekV4Deployment\nspec: 3\n",
        b"spec: {model: {id: 3}}\n",
        b"spec: {}\n",
        b"metadata: []\nspec: {model: {id: a}}\n",
        b"spec: {model: {id: a}, pools: [{name: x, replicas: many}]}\n",
        b"spec: {1: 2, model: {id: a}, ? [a, b] : c}\n",
        b"spec: !!python/object/apply:os.system [ls]\n",
        b"a: &a [*a]\nspec: *a\n",
        BOMB,
    ],
)
def test_a_file_that_cannot_be_read_exits_with_2_and_says_why(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bad.yaml"
    path.write_bytes(content)
    result = run("-o", "json", "-f", str(path))
    assert result.exit_code == 2, result.output
    assert "Error" in result.stderr
    assert "Traceback" not in result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)


def test_a_missing_file_and_a_folder_exit_with_2(tmp_path: Path) -> None:
    assert run("-f", str(tmp_path / "none.yaml")).exit_code == 2
    assert run("-f", str(tmp_path)).exit_code == 2


def test_every_deployment_of_a_file_is_planned_and_other_kinds_are_passed_over(tmp_path: Path) -> None:
    other = document()
    other["metadata"] = {"name": "other"}
    listed = {"kind": "List", "items": [other]}
    result = run("-o", "json", "-f", written(tmp_path, document(), {"kind": "Service", "spec": {}}, listed))
    assert list(pools(result)) == ["chat/main", "other/main"]


def test_deployments_of_one_name_are_told_apart(tmp_path: Path) -> None:
    twins = written(tmp_path, document(), document(), document())
    assert list(pools(run("-o", "json", "-f", twins))) == ["chat/main", "chat/main#2", "chat/main#3"]


def test_a_manifest_can_come_from_stdin() -> None:
    assert run("-o", "json", "-f", "-", stdin=yaml.safe_dump(document())).exit_code == 0


def test_unknown_fields_are_told_by_name(tmp_path: Path) -> None:
    result = run("-o", "json", "-f", written(tmp_path, document(hardware={"gpu": "H200", "gpusPerPod": 8})))
    found = pools(result)["main"]["findings"]
    assert any(f["rule"] == "UnknownField" and f["path"] == "spec.hardware.gpusPerPod" for f in found)


def test_flags_plan_without_a_file() -> None:
    result = run(
        *("--model", FLASH, "--gpu", "B200", "--gpus", "8", "--dp", "8", "--ep", "--context", "1M"),
        *("--replicas", "3", "--demand", "1M:1000", "--lengths", "8K,1M", "-o", "json"),
    )
    assert result.exit_code == 0, result.output
    main_pool = pools(result)["main"]
    assert main_pool["layout"] == "DP8 + EP"
    assert list(main_pool["concurrency"]) == ["8192", "1048576"]
    assert any(f["rule"] == "DemandQueues" for f in main_pool["findings"])
    assert main_pool["afterOneFailure"]["instances"] == 2


def test_the_tables_say_what_is_measured_and_what_assumed() -> None:
    result = run("--model", PRO, "--gpu", "H200", "--gpus", "8")
    assert result.exit_code == 0
    for words in (
        "fits",
        "weights",
        "runtime reserve",
        "KV cache",
        "assumed",
        "measured",
        "200000",
        "cost per hour",
    ):
        assert words in result.stdout


def test_a_file_and_flags_for_the_model_are_refused_together(tmp_path: Path) -> None:
    assert run("-f", written(tmp_path, document()), "--model", FLASH).exit_code == 2
    assert run().exit_code == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ("--demand", "x"),
        ("--demand", "8K:0"),
        ("--demand", "8K:"),
        ("--lengths", "8K,,x"),
        ("--lengths", ","),
        ("--context", "-1"),
        ("--tp", "0"),
        ("--offload", "much"),
        ("--engine-version", "latest"),
        ("--prices", "no-such-file.yaml"),
        ("--catalog", "no-such-file.yaml"),
    ],
)
def test_flags_that_mean_nothing_exit_with_2(arguments: tuple[str, ...]) -> None:
    result = run("--model", FLASH, *arguments)
    assert result.exit_code == 2, result.output
    assert result.stderr


def test_the_users_prices_and_catalog_are_laid_over_ours(tmp_path: Path) -> None:
    prices, catalog = tmp_path / "prices.yaml", tmp_path / "catalog.yaml"
    prices.write_text("date: 2026-11-01\ncurrency: EUR\ngpus: {X9: 2}\n")
    catalog.write_text("gpus: [{name: X9, like: H200}]\n")
    files = ("--prices", str(prices), "--catalog", str(catalog))
    result = run("--model", FLASH, "--gpu", "X9", "--gpus", "4", *files, "-o", "json")
    assert pools(result)["main"]["costPerHour"] == 8
    assert pools(result)["main"]["prices"] == {"currency": "EUR", "date": "2026-11-01"}


@pytest.mark.parametrize("option", ["--prices", "--catalog"])
def test_a_file_of_prices_or_of_gpus_that_makes_no_sense_exits_with_2(tmp_path: Path, option: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("gpus: 3\n")
    result = run("--model", FLASH, option, str(path))
    assert result.exit_code == 2
    assert "gpus" in result.stderr


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_a_plot_is_drawn_to_the_named_file(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"plan.{suffix}"
    result = run("--model", FLASH, "--plot", str(path), "-o", "json")
    assert result.exit_code == 0, result.output
    assert path.stat().st_size > 5_000


def test_a_plot_of_another_format_is_refused(tmp_path: Path) -> None:
    assert run("--model", FLASH, "--plot", str(tmp_path / "plan.txt")).exit_code == 2


def test_a_plot_without_matplotlib_names_the_cure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    result = run("--model", FLASH, "--plot", str(tmp_path / "plan.png"))
    assert result.exit_code != 0
    assert "kintsugi[plot]" in result.stderr


def test_on_a_narrow_screen_the_sources_stand_under_their_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kintsugi.cli.plantable.WIDTH", 80)
    lines = run("--model", FLASH, "--gpu", "H200", "--gpus", "4").output.splitlines()
    (row,) = (line for line in lines if line.startswith("memory per GPU"))
    assert row.rstrip().endswith("measured  (1)")
    assert "(1) catalog, H200" in [line.strip() for line in lines]
    table = lines[lines.index(row) : next(at for at, line in enumerate(lines) if line.startswith("tokens "))]
    assert max(map(len, table)) <= 80


@pytest.mark.parametrize("beside", [("--gpu", "B200"), ("--replicas", "1"), ("--no-ep",)])
def test_options_that_a_file_says_itself_are_refused_beside_one(
    tmp_path: Path, beside: tuple[str, ...]
) -> None:
    result = run("-f", written(tmp_path, document()), *beside)
    assert result.exit_code == 2
    assert "goes with --model" in result.stderr


def test_a_model_that_nobody_knows_is_not_said_to_be_too_large() -> None:
    result = run("--model", "acme/none", "--gpu", "H200", "--gpus", "8")
    assert result.exit_code == 1
    assert "cannot be planned" in result.output
    assert "does not fit" not in result.output
