import json
from pathlib import Path

import pytest

from tests.demo.acts import Chapter
from tests.demo.facts import Facts
from tests.demo.judgement import outcomes
from tests.demo.outcome import EXPECTED, HEALED, HELD_BACK, Outcome, faults_of, missing, write
from tests.demo.traffic import Sent, account, swallowed_by

LOG = [
    "not JSON",
    json.dumps({"time": 9.0, "event": "accepted", "request_id": "a"}),
    json.dumps({"time": 10.0, "event": "hung", "in_flight": ["a"]}),
    json.dumps({"time": 11.0, "event": "swallowed", "request_id": "b"}),
    json.dumps({"time": 11.5, "event": "swallowed", "request_id": "kintsugi-canary-1", "canary": True}),
    json.dumps({"time": 14.0, "event": "swallowed", "request_id": "late"}),
]


def test_lost_requests_are_those_that_the_engines_own_log_names_up_to_its_withdrawal() -> None:
    assert swallowed_by(LOG, until=12.0) == {"a", "b"}


def test_a_request_swallowed_after_the_withdrawal_has_failed() -> None:
    sent = [Sent("b", "long", 11.0, "reset"), Sent("late", "long", 14.0, "reset")]
    count = account(sent, ["long"], 0.0, 99.0, swallowed_by(LOG, until=12.0))
    assert (count.requests, count.failed, count.lost) == (2, 1, 1)
    assert count.errors == ("late: reset",)


def test_a_named_request_that_was_answered_after_all_is_neither_lost_nor_failed() -> None:
    count = account([Sent("b", "long", 11.0, "")], ["long"], 0.0, 99.0, {"b"})
    assert (count.failed, count.lost) == (0, 0)


@pytest.mark.parametrize(("started", "counted"), [(4.9, 0), (5.0, 1), (9.9, 1), (10.0, 0)])
def test_requests_count_for_the_scenario_in_whose_time_they_were_sent(started: float, counted: int) -> None:
    assert account([Sent("x", "short", started, "")], ["short"], 5.0, 10.0, set()).requests == counted


def test_requests_to_another_pool_do_not_count() -> None:
    assert account([Sent("x", "long", 5.0, "reset")], ["short"], 0.0, 10.0, set()).failed == 0


def right(name: str) -> Outcome:
    kind, gate = EXPECTED[name]
    return Outcome(
        name, kind, gate, 1 if kind == HEALED else 0, 100, 0, 3 if name == "hang" else 0, 1.0, 0.5, 0.2
    )


def test_the_right_outcome_of_each_scenario_has_no_faults() -> None:
    assert {name: faults_of(right(name)) for name in EXPECTED} == {name: [] for name in EXPECTED}


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("fragmentation", {"replaced": 2}, "2 pods replaced"),
        ("throughput", {"outcome": HELD_BACK}, "must be healed"),
        ("throughput", {"requests_lost": 1}, "though nothing hung"),
        ("hang", {"requests_failed": 1}, "1 requests failed"),
        ("hang", {"requests": 0}, "no requests"),
        ("storm", {"replaced": 1}, "must be 0"),
        ("storm", {"withheld_by": "noData"}, "must be storm"),
        ("metricsOutage", {"withheld_by": None}, "must be noData"),
    ],
)
def test_a_wrong_outcome_is_named(name: str, change: dict[str, object], said: str) -> None:
    good = right(name)
    values = {field: getattr(good, field) for field in Outcome.__dataclass_fields__}
    assert any(said in fault for fault in faults_of(Outcome(**{**values, **change})))


def test_a_scenario_without_an_outcome_is_missed() -> None:
    assert missing([right("hang")]) == ["fragmentation", "throughput", "storm", "metricsOutage"]


def test_the_file_has_the_promised_shape(tmp_path: Path) -> None:
    write([right("hang")], tmp_path / "build" / "demo.json")
    assert json.loads((tmp_path / "build" / "demo.json").read_text()) == {
        "scenarios": [
            {
                "name": "hang",
                "outcome": "healed",
                "withheldBy": None,
                "replaced": 1,
                "requests": 100,
                "requestsFailed": 0,
                "requestsLostToFault": 3,
                "detectSeconds": 1.0,
                "withdrawSeconds": 0.5,
                "replaceSeconds": 0.2,
            }
        ]
    }


def test_a_pod_that_was_ended_in_an_outage_makes_its_outcome_wrong() -> None:
    chapter = Chapter("storm", ("short", "long"), 0.0, end=10.0, ended=1, withheld_by="storm")
    (outcome,) = outcomes([chapter], Facts(), [Sent("x", "short", 5.0, "")])
    assert outcome.outcome == "wrong"
    assert faults_of(outcome) == ["wrong, must be heldBack", "1 pods replaced, must be 0"]
