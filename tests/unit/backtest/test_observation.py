"""What a record says of a pod is what was known of it."""

from dataclasses import replace
from typing import Any

import pytest

from kintsugi.core.advisor.saved import SavedInvalid, SavedPage, saved_head, saved_looks, saved_pages
from kintsugi.core.backtest.observation import facts_of, observed
from kintsugi.core.snapshot import Device, Failed, Failure, Instance, Page, Termination
from tests.unit.core.staging import instance

PAGE = "vllm:num_requests_running 1.0\n"


def kept(one: Instance) -> Instance:
    """`one`, written and read again."""
    text = saved_head(one.pool, one.name, 1000.0, facts_of(one))
    text += one.scrape.text if isinstance(one.scrape, Page) else ""
    (page,) = saved_looks(text.splitlines(keepends=True), "record")
    return observed(page).instance


CASES: dict[str, dict[str, Any]] = {
    "serving": {},
    "pending": {"phase": "Pending", "started_at": None, "ready": False, "ready_since": None, "node": ""},
    "withdrawn": {"in_rotation": False},
    "released": {"member": False},
    "going": {"deleting": True},
    "evicted": {"phase": "Failed", "phase_reason": "Evicted"},
    "crashing": {
        "restarts": 3,
        "waiting_reason": "CrashLoopBackOff",
        "last_termination": Termination(137, "OOMKilled", "", 900.0),
    },
    "unchunked": {"chunked_prefill": False, "max_num_seqs": None},
    "scheduled": {"scheduled_at": 900.5},
    "served before": {"ready": False, "ready_since": None, "served_before": True},
    "gpus": {
        "devices": (
            Device("nvidia.com/gpu", "GPU-1 | a", "Healthy"),
            Device("nvidia.com/gpu", "2", "Unhealthy"),
        )
    },
    "gpus of which nothing is said": {"devices": None},
    "image": {"image": "vllm/vllm-openai:v0.33.0@sha256:abc"},
}


@pytest.mark.parametrize("facts", CASES.values(), ids=CASES)
def test_what_is_written_of_a_pod_is_read_again(facts: dict[str, Any]) -> None:
    one = instance(scrape=Page(PAGE, 1000.0), **facts)
    assert kept(one) == replace(one, pod_ip="")


def test_why_no_page_came_is_kept_in_its_words() -> None:
    one = instance(scrape=Failed(Failure.REFUSED, "dial tcp 10.0.0.1: connection refused\n100 %", 1000.0))
    assert kept(one) == replace(one, pod_ip="")


def test_a_reason_that_this_version_does_not_know_is_no_evidence() -> None:
    seen = observed(SavedPage("short", "e-0", 5.0, "", {"uid": "u", "failed": "sunspots"}))
    assert isinstance(seen.instance.scrape, Failed)
    assert seen.instance.scrape.failure is Failure.PENDING


def test_a_pod_that_went_is_gone() -> None:
    assert observed(SavedPage("short", "e-0", 5.0, "", {"uid": "u", "failed": "gone"})).gone


def test_a_page_without_facts_is_told_from_one_with_them() -> None:
    assert observed(SavedPage("short", "e-0", 5.0, PAGE)).assumed
    assert not observed(SavedPage("short", "e-0", 5.0, PAGE, {"uid": "u"})).assumed


def test_the_advisor_reads_the_same_files_and_skips_looks_without_a_page() -> None:
    text = (
        saved_head("short", "e-0", 5, {"uid": "u", "failed": "refused"})
        + saved_head("short", "e-1", 5, {"uid": "v"})
        + PAGE
    )
    assert [page.instance for page in saved_pages(text.splitlines(keepends=True), "record")] == ["e-1"]


def test_a_fact_that_is_no_number_is_named_with_its_page() -> None:
    with pytest.raises(SavedInvalid, match=r"the page of e-0 at 5: started=noon is no number"):
        observed(SavedPage("short", "e-0", 5.0, PAGE, {"uid": "u", "started": "noon"}))


@pytest.mark.parametrize(
    "key", ["restarts", "seqs", "started", "since", "created", "ended", "exit", "scheduled"]
)
@pytest.mark.parametrize("value", ["inf", "nan", "-inf", "1e300"])
def test_a_fact_that_no_pod_can_have_is_named_with_its_page(key: str, value: str) -> None:
    facts = {"uid": "u", "ended": "5", key: value}
    with pytest.raises(SavedInvalid, match=f"the page of e-0 at 5: {key}={value} is no number"):
        observed(SavedPage("short", "e-0", 5.0, PAGE, facts))


@pytest.mark.parametrize("time", ["inf", "nan", "1e15", "1767226900000"])
def test_a_page_of_no_time_that_can_be_is_refused(time: str) -> None:
    with pytest.raises(SavedInvalid, match=r"must be epoch seconds \(not milliseconds\)"):
        list(saved_pages([f"# kintsugi-page time={time} instance=e-0\n"], "record"))
