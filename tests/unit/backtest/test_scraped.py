"""Samples out of Prometheus become the pages again that they were scraped from."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from kintsugi.core.backtest.observation import observed
from kintsugi.core.backtest.scraped import DOWN, Ambiguous, Scraped, query
from kintsugi.core.page import PageReader
from kintsugi.core.sample import Sample, read_sample
from kintsugi.core.snapshot import Failed, Page

TARGET = {"namespace": "llm", "pod": "chat-short-r-0", "instance": "10.0.0.1:8000", "job": "llm/chat"}
Values = Sequence[tuple[float, str]]


def series(name: str, values: Values, target: Mapping[str, str] = TARGET, **labels: str) -> dict[str, Any]:
    return {"metric": {"__name__": name, **target, **labels}, "values": [list(value) for value in values]}


def looks(
    result: list[dict[str, Any]], after: float = 0.0, until: float = 1e9, prefix: str = ""
) -> list[Any]:
    return list(Scraped(prefix).looks(result, after, until))


def test_samples_of_one_scrape_make_one_page() -> None:
    result = [
        series("vllm:num_requests_running", [(10.0, "1"), (25.0, "2")], engine="0", model_name="m"),
        series(
            "vllm:iteration_tokens_total_count", [(10.0, "100"), (25.0, "130")], engine="0", model_name="m"
        ),
        series("vllm:num_requests_running", [(10.0, "3"), (25.0, "4")], engine="1", model_name="m"),
        series("up", [(10.0, "1"), (25.0, "1")]),
    ]
    first, second = looks(result)
    assert (first.instance, first.time, second.time) == ("chat-short-r-0", 10.0, 25.0)
    sample = read_sample(PageReader(), Page(second.text, second.time))
    assert isinstance(sample, Sample)
    assert [(rank.running, rank.steps) for rank in sample.ranks] == [(2.0, 130.0), (4.0, None)]


def test_a_scrape_that_failed_is_a_look_without_a_page() -> None:
    result = [series("vllm:num_requests_running", [(10.0, "1")]), series("up", [(10.0, "1"), (25.0, "0")])]
    _, second = looks(result)
    scrape = observed(second).instance.scrape
    assert isinstance(scrape, Failed)
    assert scrape.why == DOWN


def test_targets_that_are_no_engines_are_left_alone() -> None:
    other = {**TARGET, "pod": "chat-router-0", "instance": "10.0.0.2:9000"}
    result = [
        series("vllm:num_requests_running", [(10.0, "1")]),
        series("process_start_time_seconds", [(10.0, "5")], other),
        series("up", [(10.0, "0")], other),
    ]
    assert [page.instance for page in looks(result)] == ["chat-short-r-0"]


def test_another_container_of_the_pod_lends_its_page_nothing() -> None:
    sidecar = {**TARGET, "instance": "10.0.0.1:9100"}
    result = [
        series("vllm:num_requests_running", [(10.0, "1")]),
        series("process_start_time_seconds", [(10.0, "77")]),
        series("process_start_time_seconds", [(10.0, "99")], sidecar),
    ]
    (page,) = looks(result)
    assert "process_start_time_seconds 77\n" in page.text
    assert "99" not in page.text


def test_labels_of_the_target_are_known_by_its_up() -> None:
    target = {**TARGET, "team": "search"}
    result = [
        series("vllm:num_requests_running", [(10.0, "1")], target, engine="0"),
        series("up", [(10.0, "1")], target),
    ]
    (page,) = looks(result)
    assert page.text == 'vllm:num_requests_running{engine="0"} 1\n'


def test_two_servers_that_scrape_the_same_engine_are_not_mixed() -> None:
    twin = {**TARGET, "prometheus_replica": "b"}
    result = [
        series("vllm:num_requests_running", [(10.0, "1")]),
        series("vllm:num_requests_running", [(11.0, "2")], twin),
    ]
    assert [page.time for page in looks(result)] == [10.0, 11.0]


def test_samples_at_the_edges_are_used_once() -> None:
    result = [series("vllm:num_requests_running", [(10.0, "1"), (20.0, "2"), (30.0, "3")])]
    assert [page.time for page in looks(result, after=10.0, until=20.0)] == [20.0]


def test_a_prefix_is_taken_off() -> None:
    result = [series("site_vllm:num_requests_running", [(10.0, "1")])]
    (page,) = looks(result, prefix="site_")
    assert page.text == "vllm:num_requests_running 1\n"


def test_pool_and_revision_come_from_the_pod_monitor_s_labels() -> None:
    target = {**TARGET, "kintsugi_dev_pool": "short", "kintsugi_dev_revision": "abc"}
    (page,) = looks([series("vllm:num_requests_running", [(10.0, "1")], target)])
    seen = observed(page)
    assert (seen.instance.pool, seen.instance.revision, seen.assumed) == ("short", "abc", True)


def test_engines_of_two_namespaces_are_asked_about() -> None:
    result = [
        series("vllm:num_requests_running", [(10.0, "1")]),
        series("vllm:num_requests_running", [(10.0, "1")], {**TARGET, "namespace": "other"}),
    ]
    with pytest.raises(Ambiguous, match=r"llm, other.*--namespace"):
        looks(result)


def test_the_query_names_what_the_judge_reads() -> None:
    asked = query('l"lm', 'app="vllm"', "site_")
    assert "vllm:num_requests_running" in asked
    assert "site_vllm:num_requests_running" in asked
    assert asked.endswith(',namespace="l\\"lm",app="vllm"}')
    assert "namespace" not in query("", "", "")
