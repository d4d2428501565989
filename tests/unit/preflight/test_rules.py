"""Every rule on its own examples, and what every rule must have."""

import re

import pytest

from kintsugi.core.preflight.check import check
from kintsugi.core.preflight.paths import locate
from kintsugi.core.preflight.registry import FIXED, RULES, STRUCTURAL
from kintsugi.core.preflight.rule import Example, Rule

GOOD = [pytest.param(r, e, id=f"{r.name}-{i}") for r in RULES for i, e in enumerate(r.good)]
BAD = [pytest.param(r, e, id=f"{r.name}-{i}") for r in RULES for i, e in enumerate(r.bad)]


@pytest.mark.parametrize(("rule", "example"), GOOD)
def test_a_good_example_is_let_pass_and_has_no_error(rule: Rule, example: Example) -> None:
    found = check(example.as_object(), example.facts)
    assert [finding for finding in found if finding.rule == rule.name or finding.severity == "Error"] == []


@pytest.mark.parametrize(("rule", "example"), BAD)
def test_a_bad_example_is_found_with_a_path_that_exists_and_a_cure(rule: Rule, example: Example) -> None:
    raw = example.as_object()
    mine = [finding for finding in check(raw, example.facts) if finding.rule == rule.name]
    assert mine
    for finding in mine:
        assert locate(raw, finding.path)[1], finding.path
        assert finding.message.startswith(finding.path)
        assert finding.cure
        assert len(finding.message) < 700


@pytest.mark.parametrize(("rule", "example"), BAD)
def test_what_is_allowed_is_no_error_any_more(rule: Rule, example: Example) -> None:
    raw = example.as_object()
    before = {f.path: f.severity for f in check(raw, example.facts) if f.rule == rule.name}
    raw["spec"]["validation"] = {"allow": [rule.name]}
    after = {f.path: f.severity for f in check(raw, example.facts) if f.rule == rule.name}
    if rule.name in FIXED:
        assert after == before
    else:
        assert after == {path: "Warning" for path, severity in before.items() if severity == "Error"}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_says_what_it_is_why_and_by_which_source(rule: Rule) -> None:
    assert re.fullmatch(r"[A-Z][A-Za-z0-9]{2,62}", rule.name)
    assert rule.summary.endswith(".")
    assert rule.why.endswith((".", ")"))
    assert rule.good
    assert rule.bad
    assert rule.sources
    assert all(source.startswith("https://") for source in rule.sources)
    assert all(re.fullmatch(r"A([1-9]|1\d|2[0-4])", claim) for claim in rule.claims)


def test_no_two_rules_share_a_name() -> None:
    everything = [rule.name for rule in RULES] + list(STRUCTURAL)
    assert len(set(everything)) == len(everything)
