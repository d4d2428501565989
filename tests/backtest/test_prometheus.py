"""The same hour out of a real Prometheus server: what is found does not depend on who kept the history."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from kintsugi.__main__ import main
from kintsugi.adapters.prometheus import PrometheusHistory
from kintsugi.api.model import format_timestamp
from kintsugi.core.advisor.saved import saved_looks
from kintsugi.core.backtest.observation import observed
from kintsugi.core.moment import moment
from kintsugi.ports.errors import Invalid
from tests.backtest.promserver import open_metrics, served
from tests.backtest.recorded import HOUR, change, fleet, names_of, policy_manifest, record

EVERY = 15.0
FAULT_AT = 1500.0
PREFIX = "site_"


class History:
    """One recorded hour, and the server that has it."""

    def __init__(self, url: str, text: str, victim: str) -> None:
        self.url, self.text, self.victim = url, text, victim
        self.pages = [each for each in saved_looks(text.splitlines(keepends=True), "record")]
        self.first, self.last = self.pages[0].time, self.pages[-1].time


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Iterator[History]:
    async def hour() -> tuple[str, str]:
        scene = await fleet()
        victim = names_of(scene)[1]
        return await record(scene, [(FAULT_AT, change(victim, hung=True))], HOUR, EVERY), victim

    text, victim = asyncio.run(hour())
    looks = [observed(page) for page in saved_looks(text.splitlines(keepends=True), "record")]
    plain, renamed = open_metrics(looks), open_metrics(looks, PREFIX, namespace="renamed")
    # Two namespaces in one server: one as it is, one whose names were relabelled.
    both = plain.removesuffix("# EOF\n") + renamed
    with served(both, tmp_path_factory.mktemp("prometheus")) as url:
        yield History(url, text, victim)


def run(history: History, tmp_path: Path, *more: str, prefix: str = "", **healing: Any) -> dict[str, Any]:
    manifest = policy_manifest(**healing)
    manifest["spec"]["monitoring"] = {"prometheus": {"url": history.url, "metricPrefix": prefix}}
    (tmp_path / "policy.yaml").write_text(yaml.safe_dump(manifest))
    until = format_timestamp(moment(history.last + 60))
    words = ["backtest", "-f", str(tmp_path / "policy.yaml"), "--since", "75m", "--until", until, *more]
    result = CliRunner().invoke(main, [*words, "-o", "json"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_an_injected_hang_is_named_and_nothing_else_is(history: History, tmp_path: Path) -> None:
    picture = tmp_path / "timeline.svg"
    found = run(history, tmp_path, "--plot", str(picture))
    assert [(i["instance"], i["detector"]) for i in found["incidents"]] == [(history.victim, "stall")]
    assert [(a["action"], a["instance"]) for a in found["actions"]] == [
        (what, history.victim) for what in ("withdraw", "release", "evict")
    ]
    assert found["everySeconds"] == EVERY
    assert found["pages"] == 3 * HOUR / EVERY
    assert found["falsePositiveCandidates"] == []
    assert found["incidents"][0]["evidence"][0]["value"] >= 60
    assert any("pods' own states" in said for said in found["notReplayed"])
    assert history.victim in picture.read_text()


def test_relabelled_names_are_found_by_their_prefix(history: History, tmp_path: Path) -> None:
    found = run(history, tmp_path, "-n", "renamed", prefix=PREFIX)
    assert [(i["instance"], i["detector"]) for i in found["incidents"]] == [(history.victim, "stall")]


def test_pages_come_back_as_they_were_scraped(history: History) -> None:
    """Not a repeated, interpolated or looked-back sample among them."""
    wanted = {(page.instance, round(page.time, 3)): numbers(page.text) for page in history.pages}
    until = history.first + 600
    read = PrometheusHistory(history.url).looks(history.first - 1, until, "llm", 'pod=~"chat-.*"', 250.0)
    found = {(page.instance, round(page.time, 3)): numbers(page.text) for page in read}
    assert found == {key: value for key, value in wanted.items() if key[1] <= until}


def numbers(text: str) -> dict[str, float]:
    """Every series that a page holds, with its labels in order."""
    found = {}
    for line in text.splitlines():
        series, _, number = line.rpartition(" ")
        name, _, labels = series.rstrip("}").partition("{")
        ordered = ",".join(sorted(labels.split(","))) if labels else ""
        # The server is not asked for buckets below a second, nor for what nobody judges by.
        if name not in ("kintsugi_kv_orphaned_blocks",):
            found[f"{name}{{{ordered}}}"] = float(number)
    return found


def test_a_step_that_is_too_wide_is_refused_with_its_cure(history: History, tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(yaml.safe_dump(policy_manifest()))
    until = format_timestamp(moment(history.last))
    words = ["backtest", "-f", str(tmp_path / "policy.yaml"), "--prometheus", history.url, "--until", until]
    result = CliRunner().invoke(main, [*words, "--step", "60s"])
    assert result.exit_code == 2
    assert "every 15 s or more often" in result.output


def test_an_empty_history_says_what_to_look_at(history: History, tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(yaml.safe_dump(policy_manifest()))
    words = ["backtest", "-f", str(tmp_path / "policy.yaml"), "--prometheus", history.url]
    result = CliRunner().invoke(main, [*words, "--until", "2020-01-01T00:00:00Z"])
    assert result.exit_code == 2
    assert "--selector" in result.output


def test_the_server_s_refusal_is_told_in_its_words(history: History) -> None:
    with pytest.raises(Invalid, match="refuses the query"):
        list(PrometheusHistory(history.url).looks(0.0, 10.0, "llm", "pod=~"))
