"""Two targets under the same load: the order of runs, the arithmetic, and what a person sees."""

import json
import stat
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from kintsugi.cli.bench import bench
from kintsugi.cli.bench_load import Target, target_of
from kintsugi.core.bench import compared, interval, order

TOOL = """#!{python}
import json, sys
said = dict(zip(sys.argv[1:], sys.argv[2:]))
open({calls!r}, "a").write(" ".join(sys.argv[1:]) + "\\n")
if "broken" in said["--base-url"]:
    sys.exit("connection refused")
speed = 200.0 if "fast" in said["--base-url"] else 100.0 + int(said["--seed"])
result = {{"completed": 0 if "mute" in said["--base-url"] else 5, "errors": ["", "no such model"]}}
result |= {{"output_throughput": speed, "request_throughput": speed / 10, "p50_ttft_ms": 1e4 / speed, "itls": [1]}}
open(said["--result-dir"] + "/result.json", "w").write(json.dumps(result))
"""


@pytest.fixture
def tool(tmp_path: Path) -> Path:
    """Stands in for `vllm`: a server with `fast` in its name is twice as fast."""
    path = tmp_path / "vllm"
    path.write_text(TOOL.format(python=sys.executable, calls=str(tmp_path / "calls")))
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_targets_take_turns_at_going_first() -> None:
    assert order(3) == [(0, 0), (0, 1), (1, 1), (1, 0), (2, 0), (2, 1)]


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("http://a:8000/v1/", Target("http://a:8000/v1/", "http://a:8000")),
        ("native=https://b", Target("native", "https://b")),
        ("llm/chat/short", Target("llm/chat/short", "http://chat-short.llm:8000")),
        ("http://a:1/x?y=z", Target("http://a:1/x?y=z", "http://a:1/x?y=z")),
        ("chat", None),
        ("a=b", None),
    ],
)
def test_a_target_is_a_url_or_a_pool(text: str, target: Target | None) -> None:
    assert target_of(text) == target


def test_changes_are_told_by_pair_so_that_a_drift_of_both_is_no_change() -> None:
    first = [{"output_throughput": speed} for speed in (100.0, 200.0, 400.0)]
    second = [{"output_throughput": speed} for speed in (110.0, 220.0, 440.0)]
    (one,) = compared(first, second)
    assert one.percent == pytest.approx(10)
    assert one.interval == pytest.approx((10, 10))
    assert (one.first, one.second) == (200.0, 220.0)


def test_a_figure_that_a_run_lacks_or_that_is_no_number_is_left_out() -> None:
    assert compared([{"p50_itl_ms": 1.0}], [{}]) == []
    assert compared([{"p50_itl_ms": float("nan")}], [{"p50_itl_ms": 1.0}]) == []


def test_two_pairs_say_nothing_of_certainty_and_more_hold_the_median() -> None:
    assert interval([1.0, 2.0]) is None
    low, high = interval([-1.0, 0.0, 1.0, 2.0, 9.0]) or (0.0, 0.0)
    assert -1 <= low <= 1 <= high <= 9


def test_both_get_the_same_prompts_and_the_results_are_told_and_written(tool: Path, tmp_path: Path) -> None:
    written, plot = tmp_path / "out.json", tmp_path / "out.svg"
    words = ["plain=http://slow:1", "new=http://fast:1", "--model", "m", "--pairs", "3", "--tool", str(tool)]
    done = CliRunner().invoke(bench, [*words, "--json", str(written), "--plot", str(plot)])
    assert done.exit_code == 0, done.output
    assert "throughput" in done.output
    told = json.loads(written.read_text())
    assert told["compared"]["output_throughput"]["second"] == 200
    assert told["compared"]["output_throughput"]["changePercent"] == pytest.approx(98.02, abs=0.01)
    assert "itls" not in told["runs"][0][0], "the list of every gap"
    assert plot.read_text().startswith("<?xml")
    calls = (tmp_path / "calls").read_text().splitlines()
    seeds = [(line.split("--base-url ")[1].split()[0], line.split("--seed ")[1].split()[0]) for line in calls]
    assert [seed for url, seed in seeds if "slow" in url] == [seed for url, seed in seeds if "fast" in url]


@pytest.mark.parametrize(
    ("second", "said"),
    [
        ("http://broken:1", "http://broken:1: the load tool failed:\nconnection refused"),
        ("http://mute:1", "none of 100 requests was answered: no such model"),
    ],
)
def test_a_run_that_fails_is_said_with_the_tools_words(tool: Path, second: str, said: str) -> None:
    done = CliRunner().invoke(bench, ["http://slow:1", second, "--model", "m", "--tool", str(tool)])
    assert done.exit_code == 1
    assert said in done.output


def test_a_missing_tool_and_a_target_that_is_none_are_said() -> None:
    done = CliRunner().invoke(bench, ["http://a:1", "http://b:1", "--model", "m", "--tool", "no-such-tool"])
    assert (done.exit_code, "no-such-tool is not installed here" in done.output) == (1, True)
    done = CliRunner().invoke(bench, ["http://a:1", "chat", "--model", "m"])
    assert (done.exit_code, "is neither a URL" in done.output) == (2, True)
