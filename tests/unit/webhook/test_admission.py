"""What is refused, what is only said, and what is let through unseen."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kintsugi.core import admission
from kintsugi.core.admission import Answer, Verdict, answer
from kintsugi.core.preflight.finding import Finding

Json = dict[str, Any]

LONGEST = 1_048_576


def fleet(**spec: Any) -> Json:
    return {
        "metadata": {"namespace": "llm", "name": "chat", "resourceVersion": "1"},
        "spec": {"model": {"id": "m"}, "pools": [{"name": "short"}], **spec},
    }


def pool(name: str, length: int | None = None, **more: Any) -> Json:
    engine = {} if length is None else {"engine": {"args": {"maxModelLen": length}}}
    return {"name": name, **engine, **more}


def check(raw: Mapping[str, Any]) -> tuple[Finding, ...]:
    """Two rules: a length that the model does not have is wrong, the word `odd` in a model's id is odd."""
    found = []
    for place, each in enumerate(raw["spec"].get("pools", ())):
        length = each.get("engine", {}).get("args", {}).get("maxModelLen", 0)
        if length > LONGEST:
            path = f"spec.pools[{place}].engine.args.maxModelLen"
            replicas = each.get("replicas", 1)
            message = f"{path}: {length} is more than the model's {LONGEST}, {replicas} times"
            found.append(Finding("Error", "MaxModelLen", path, message, f"set it to {LONGEST} or less"))
    if "odd" in raw["spec"]["model"]["id"]:
        found.append(Finding("Warning", "OddModel", "spec.model.id", "spec.model.id is odd", "take another"))
    return tuple(found)


def never(raw: Mapping[str, Any]) -> tuple[Finding, ...]:
    raise AssertionError("nothing should be checked here")


def updated(old: Json, new: Json) -> Answer:
    return answer("UPDATE", new, old, check)


def test_a_good_object_is_allowed_without_a_word() -> None:
    assert answer("CREATE", fleet(), None, check) == Answer(Verdict.ALLOWED)


def test_a_wrong_object_is_refused_with_field_cure_and_rule() -> None:
    said = answer("CREATE", fleet(pools=[pool("long", 2_000_000)]), None, check)
    assert not said.allowed
    assert said.message == (
        "spec.pools[0].engine.args.maxModelLen: 2000000 is more than the model's 1048576, 1 times "
        "(set it to 1048576 or less) [MaxModelLen]"
    )


def test_all_errors_are_told_at_once() -> None:
    said = answer("CREATE", fleet(pools=[pool("a", 2_000_000), pool("b", 3_000_000)]), None, check)
    first, second, third = said.message.splitlines()
    assert first == "2 errors"
    assert second.startswith("- spec.pools[0].engine.args.maxModelLen: 2000000 ")
    assert third.startswith("- spec.pools[1].engine.args.maxModelLen: 3000000 ")


def test_a_refusal_is_bounded_and_counts_what_it_leaves_out() -> None:
    said = answer("CREATE", fleet(pools=[pool(f"p{n}", 2_000_000) for n in range(100)]), None, check)
    assert len(said.causes) == admission.MOST_CAUSES
    assert said.message.startswith("100 errors\n")
    assert said.message.endswith("- and 80 more: `kintsugi lint` lists all")
    assert len(said.message) < admission.MOST_CAUSES * (admission.LONGEST_CAUSE + 100)


def test_a_warning_is_said_and_the_object_allowed() -> None:
    said = answer("CREATE", fleet(model={"id": "odd"}), None, check)
    assert said == Answer(Verdict.WARNED, ("spec.model.id: is odd (take another) [OddModel]",))


def test_a_sentence_about_two_fields_is_kept_whole() -> None:
    text = "spec.replicas and spec.pools[0].replicas are both set"
    both = (Finding("Error", "R", "spec", text, "remove one"),)
    (cause,) = answer("CREATE", fleet(), None, lambda raw: both).causes
    assert (cause.path, cause.text) == ("spec", f"{text} (remove one) [R]")


def test_a_refusal_says_the_warnings_too() -> None:
    said = answer("CREATE", fleet(model={"id": "odd"}, pools=[pool("long", 2_000_000)]), None, check)
    assert (said.verdict, len(said.warnings)) == (Verdict.DENIED, 1)


def test_deletions_and_the_dying_are_not_looked_at() -> None:
    wrong = fleet(pools=[pool("long", 2_000_000)])
    dying = {**wrong, "metadata": {**wrong["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    assert answer("DELETE", None, wrong, never).verdict is Verdict.SKIPPED
    assert answer("DELETE", wrong, wrong, never).verdict is Verdict.SKIPPED
    assert answer("CONNECT", wrong, None, never).verdict is Verdict.SKIPPED
    assert answer("UPDATE", dying, fleet(), never).verdict is Verdict.SKIPPED


def test_who_changes_only_metadata_is_not_asked_about_the_spec() -> None:
    wrong = fleet(pools=[pool("long", 2_000_000)])
    noted = {**wrong, "metadata": {**wrong["metadata"], "annotations": {"kintsugi.dev/pause.night": "true"}}}
    assert answer("UPDATE", noted, wrong, never).verdict is Verdict.SKIPPED


@pytest.mark.parametrize(
    "change",
    [
        {"replicas": 5},
        {"pools": [pool("long", 2_000_000, replicas=4)]},
        {"healing": {"pauseRequests": ["night"]}},
        {"healing": {"mode": "Observe"}},
        {"healing": {"triggers": {"stall": {"mode": "Observe"}}}},
    ],
    ids=["replicas", "replicas of a pool", "pause", "mode", "mode of a trigger"],
)
def test_an_object_of_yesterdays_rules_can_be_operated(change: Json) -> None:
    wrong = {"pools": [pool("long", 2_000_000, replicas=2)]}
    said = updated(fleet(**wrong), fleet(**{**wrong, **change}))
    assert said.verdict is Verdict.TOLERATED
    (warning,) = said.warnings
    assert "spec.pools[0].engine.args.maxModelLen" in warning


def test_another_field_of_it_can_be_changed_while_the_error_stays_word_for_word() -> None:
    wrong = {"pools": [pool("long", 2_000_000)]}
    assert updated(fleet(**wrong), fleet(**wrong, model={"id": "n"})).verdict is Verdict.TOLERATED


def test_a_wrong_value_changed_to_another_wrong_one_is_refused() -> None:
    said = updated(fleet(pools=[pool("long", 2_000_000)]), fleet(pools=[pool("long", 3_000_000)]))
    assert not said.allowed
    assert "3000000" in said.message


def test_only_the_error_that_was_added_is_the_reason_of_a_refusal() -> None:
    old = fleet(pools=[pool("long", 2_000_000), pool("short")])
    said = updated(old, fleet(pools=[pool("long", 2_000_000), pool("short", 3_000_000)]))
    assert [cause.path for cause in said.causes] == ["spec.pools[1].engine.args.maxModelLen"]


def test_a_pool_keeps_its_error_when_another_goes_and_it_moves_up() -> None:
    old = fleet(pools=[pool("short"), pool("long", 2_000_000)])
    assert updated(old, fleet(pools=[pool("long", 2_000_000)])).verdict is Verdict.TOLERATED
    assert not updated(old, fleet(pools=[pool("other", 2_000_000)])).allowed


def test_an_error_cured_is_allowed_without_a_word() -> None:
    assert updated(fleet(pools=[pool("long", 2_000_000)]), fleet(pools=[pool("long", 5)])) == Answer(
        Verdict.ALLOWED
    )


def test_scaling_can_still_break_what_was_right() -> None:
    def none_above_three(raw: Mapping[str, Any]) -> tuple[Finding, ...]:
        wrong = raw["spec"].get("replicas", 0) > 3
        return (Finding("Error", "R", "spec.replicas", "spec.replicas: too many", "3"),) if wrong else ()

    assert not answer("UPDATE", fleet(replicas=4), fleet(replicas=3), none_above_three).allowed
    assert answer("UPDATE", fleet(replicas=5), fleet(replicas=4), none_above_three).allowed


def test_warnings_are_short_single_lines_and_not_too_many() -> None:
    def many(raw: Mapping[str, Any]) -> list[Finding]:
        return [
            Finding("Warning", "R", f"spec.x{n}", f"spec.x{n}: a\nb\x00\ud800 {'y' * 400}", "c")
            for n in range(30)
        ]

    said = answer("CREATE", fleet(), None, many).warnings
    assert len(said) == admission.MOST_WARNINGS
    assert all(len(each) <= admission.LONGEST_WARNING and each.isprintable() for each in said)
    assert sum(map(len, said)) < 4096, "what the API server passes on of all together"
    assert said[-1] == "and 19 more: `kintsugi lint` lists all"


def test_a_failed_check_allows_and_says_so() -> None:
    said = admission.unchecked("internal fault")
    assert said.allowed
    assert said.warnings[0].startswith("not checked: internal fault.")


json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)
lists = st.lists(json, max_size=3)
specs = json | st.fixed_dictionaries(
    {},
    optional={"replicas": json, "pools": json | lists, "healing": json, "model": json},
)


@given(specs, specs, st.sampled_from(["CREATE", "UPDATE", "DELETE", ""]))
def test_whatever_the_objects_are_an_answer_is_given(new: Any, old: Any, operation: str) -> None:
    path = "spec.pools[0].x"

    def always(raw: Mapping[str, Any]) -> tuple[Finding, ...]:
        return (Finding("Error", "R", path, f"{path}: wrong", "cure"),)

    said = answer(operation, {"spec": new}, {"spec": old}, always)
    assert said.allowed == (said.message == "")
    if operation == "UPDATE":
        assert said.allowed or new != old
