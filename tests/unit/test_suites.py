"""CI's runner stands outside the packages; it is loaded from its file."""

import importlib.util
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

CI = Path(__file__).parents[2] / ".ci"


@pytest.fixture(scope="module")
def suites() -> ModuleType:
    spec = importlib.util.spec_from_file_location("kintsugi_ci_suites", CI / "suites.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def document() -> dict[str, Any]:
    return tomllib.loads((CI / "suites.toml").read_text(encoding="utf-8"))


def test_the_shares_fit_into_the_budget(suites: ModuleType) -> None:
    assert [suite.name for suite in suites.read_suites(document())][:2] == ["setup", "binaries"]


def test_shares_beyond_the_budget_are_refused(suites: ModuleType) -> None:
    greedy = document()
    greedy["suite"][0]["minutes"] = 80
    with pytest.raises(ValueError, match="add up to"):
        suites.read_suites(greedy)


def test_the_command_of_the_readme_is_among_the_suites(suites: ModuleType) -> None:
    readme = (CI.parent / "README.md").read_text(encoding="utf-8")
    commands = {suite.command for suite in suites.read_suites(document())}
    assert {"make test", "make demo"} <= commands
    assert "make demo" in readme
    assert "make test" in readme


def test_every_suite_runs_though_one_fails_and_the_failure_shows(
    suites: ModuleType, capfd: pytest.CaptureFixture[str]
) -> None:
    results = suites.run([suites.Suite("bad", "exit 3", 10.0), suites.Suite("good", "echo done", 10.0)])
    assert [result.verdict for result in results] == ["FAILED (3)", "ok"]
    assert "done" in capfd.readouterr().out


def test_a_suite_is_interrupted_at_twice_its_share_and_may_clean_up(
    suites: ModuleType, capfd: pytest.CaptureFixture[str]
) -> None:
    (result,) = suites.run([suites.Suite("slow", "trap 'echo cleaned; exit 0' INT; sleep 60 & wait", 0.2)])
    assert result.verdict == "TOO SLOW"
    assert result.seconds < 10
    assert "cleaned" in capfd.readouterr().out


def test_a_suite_in_the_background_is_over_before_the_one_it_stands_beside(
    suites: ModuleType, capfd: pytest.CaptureFixture[str]
) -> None:
    results = suites.run(
        [
            suites.Suite("build", "sleep 0.5; echo built", 10.0, "use"),
            suites.Suite("lint", "echo linted", 10.0),
            suites.Suite("use", "echo used", 10.0),
        ]
    )
    said = capfd.readouterr().out
    assert said.index("\nlinted") < said.index("\nbuilt") < said.index("\nused")
    assert [result.suite.name for result in results] == ["lint", "build", "use"]


def test_the_table_names_time_share_and_verdict(suites: ModuleType) -> None:
    suite = suites.Suite("test", "make test", 720.0)
    text = suites.table([suites.Result(suite, 0, 360.0), suites.Result(suite, 0, 1500.0)])
    assert "360 s" in text
    assert "50%" in text
    assert text.splitlines()[2].endswith("TOO SLOW")


def test_what_failed_is_said_once_more_at_the_end_with_its_reasons(
    suites: ModuleType, capfd: pytest.CaptureFixture[str]
) -> None:
    says = "echo 'E   AssertionError: 3 pods'; echo calm; echo FAILED tests/x.py::test_y; exit 2"
    results = suites.run([suites.Suite("bad", says, 10.0), suites.Suite("good", "echo FAILED", 10.0)])
    assert "calm" in capfd.readouterr().out
    assert suites.reasons(results).split("\n") == [
        "",
        "--- bad: FAILED (2)",
        "E   AssertionError: 3 pods",
        "FAILED tests/x.py::test_y",
        "",
    ]


def test_what_a_suite_left_running_is_not_waited_for_long(
    suites: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suites, "LAST_WORDS", 0.2)
    (result,) = suites.run([suites.Suite("leaves", "sleep 2 & exit 0", 10.0)])
    assert (result.verdict, result.seconds < 1.5) == ("ok", True)
