"""What a Prometheus server's answer means, whoever wrote it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kintsugi.core.measured import measured_of, query
from kintsugi.core.snapshot import Measured

PODS = {"chat-main-1", "chat-main-2"}
GIB = 2.0**30


def series(name: str, value: str, **labels: str) -> dict[str, Any]:
    return {"metric": {"__name__": name, **labels}, "value": [1790000000.0, value]}


def test_memory_and_gpus_are_put_to_their_pods() -> None:
    result = [
        series("container_memory_rss", "2147483648", pod="chat-main-1", namespace="llm", container="engine"),
        series("container_memory_working_set_bytes", "4294967296", pod="chat-main-1"),
        series("DCGM_FI_DEV_GPU_UTIL", "81", pod="chat-main-1", UUID="GPU-b"),
        series("DCGM_FI_DEV_GPU_UTIL", "79", pod="chat-main-1", UUID="GPU-a"),
        series("DCGM_FI_DEV_XID_ERRORS", "79", pod="chat-main-1", UUID="GPU-a"),
        series("DCGM_FI_DEV_XID_ERRORS", "0", pod="chat-main-1", UUID="GPU-b"),
    ]
    assert measured_of(result, PODS, 7.0) == {
        "chat-main-1": Measured(
            7.0, 2 * GIB, 4 * GIB, (79.0, 81.0), (("GPU-a", "DCGM_FI_DEV_XID_ERRORS", 79.0),)
        )
    }


def test_the_pod_of_an_exporter_scraped_without_honor_labels_is_the_exported_one() -> None:
    result = [
        series(
            "DCGM_FI_DEV_GPU_UTIL",
            "50",
            pod="dcgm-exporter-x",
            exported_pod="chat-main-2",
            exported_namespace="llm",
            gpu="3",
        )
    ]
    assert measured_of(result, PODS, 0.0)["chat-main-2"].gpu_use == (50.0,)


def test_the_ratio_of_newer_exporters_is_the_percent_of_older_ones() -> None:
    result = [series("DCGM_FI_DEV_GPU_UTIL_RATIO", "0.5", pod="chat-main-1", UUID="a")]
    assert measured_of(result, PODS, 0.0)["chat-main-1"].gpu_use == (50.0,)


def test_two_jobs_that_scrape_one_kubelet_are_one() -> None:
    result = [
        series("container_memory_rss", "5", pod="chat-main-1", job="a"),
        series("container_memory_rss", "6", pod="chat-main-1", job="b"),
    ]
    assert measured_of(result, PODS, 0.0)["chat-main-1"].memory_rss == 6.0


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf", "-1", "", "x"])
def test_what_is_no_amount_is_absent_and_never_zero(value: str) -> None:
    assert measured_of([series("container_memory_rss", value, pod="chat-main-1")], PODS, 0.0) == {}


def test_pods_of_others_are_left_out() -> None:
    result = [series("container_memory_rss", "5", pod="chat-main-9"), series("container_memory_rss", "5")]
    assert measured_of(result, PODS, 0.0) == {}


def test_names_may_have_the_prefix_of_relabelling() -> None:
    result = [series("site_container_memory_rss", "5", pod="chat-main-1")]
    assert measured_of(result, PODS, 0.0, "site_")["chat-main-1"].memory_rss == 5.0
    assert "site_container_memory_rss" in query("llm", "chat", "site_")


def test_the_query_asks_for_this_deployments_engines_alone() -> None:
    said = query("llm", "chat.v4")
    assert said.count('namespace="llm"') == 3, "exported_namespace among them"
    assert 'pod=~"chat\\\\.v4-.+"' in said
    assert 'container="engine"' in said


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(st.dictionaries(st.sampled_from(["metric", "value", "x"]), JSON, max_size=3), max_size=4))
def test_no_answer_raises_whatever_it_holds(result: list[dict[str, Any]]) -> None:
    assert set(measured_of(result, PODS, 0.0)) <= PODS
