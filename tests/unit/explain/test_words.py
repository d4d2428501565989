"""Nothing that the judge and the gates can say may be without words for people."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from kintsugi.api.healing import Trigger
from kintsugi.api.remediation import Outcome, Phase
from kintsugi.core import classify, detect
from kintsugi.core.classify.kinds import KIND_NAMES
from kintsugi.core.explain.findings import FINDING_WORDS, REASON_WORDS
from kintsugi.core.explain.gates import GATE_WORDS
from kintsugi.core.explain.phases import NEXT, OUTCOMES
from kintsugi.core.explain.watched import TRIGGER_WORDS
from kintsugi.core.finding import Detector

CORE = Path(str(classify.__file__)).parents[1]
DETECT = Path(str(detect.__file__)).parent
CAMEL = re.compile(r"(?:[A-Z][a-z]+)+")
NO_REASONS = {
    *("Failed", "Succeeded", "Running", "Pending", "ContainerCreating", "PodInitializing"),
    "ContainerStatusUnknown",
    *("Allocator", "OrphanedBlocks", "BlockWaste"),
    *("CostModel", "Healthy", "Unhealthy"),
}
"""CamelCase words in the detectors that are the names of something else."""


def texts(node: ast.AST) -> Iterator[str]:
    """Every literal text in `node`, but docstrings."""
    for each in ast.walk(node):
        if isinstance(each, ast.Constant) and isinstance(each.value, str):
            yield each.value


def reasons() -> set[str]:
    return {
        text
        for file in DETECT.glob("*.py")
        for text in texts(ast.parse(file.read_text(encoding="utf-8")))
        if CAMEL.fullmatch(text)
    } - NO_REASONS


def gates() -> set[str]:
    """The first argument of every `Answer` that the core makes, where it is written out."""
    found = set()
    for file in CORE.glob("*.py"):
        for call in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            named = (
                isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "Answer"
            )
            if named and call.args and isinstance(call.args[0], ast.Constant):  # type: ignore[attr-defined]
                found.add(str(call.args[0].value))  # type: ignore[attr-defined]
    return found


def verdict_reasons() -> set[str]:
    tree = ast.parse((CORE / "verdict.py").read_text(encoding="utf-8"))
    found = set(texts(tree))
    return {text for text in found if CAMEL.fullmatch(text)}


def test_the_search_finds_what_is_known_to_be_there() -> None:
    assert {"Stalled", "Fragmented", "Slow", "Erroring", "PodEnded", "Saturated"} <= reasons()
    assert {"storm", "hold", "noReservation", "unknownPhase", "eviction", "poolOfOne"} <= gates()


def test_every_finding_has_words() -> None:
    missing = sorted(reasons() - set(FINDING_WORDS))
    assert not missing, (
        f"core/explain/findings.py lacks a line for {missing} (or NO_REASONS of this test does)"
    )


def test_every_verdicts_own_reason_has_words() -> None:
    missing = sorted(verdict_reasons() - set(FINDING_WORDS) - set(REASON_WORDS))
    assert not missing, f"core/explain/findings.py: REASON_WORDS lacks {missing}"


def test_every_gate_has_words() -> None:
    missing = sorted(gates() - set(GATE_WORDS))
    assert not missing, f"core/explain/gates.py lacks a line for {missing}"


@pytest.mark.parametrize("kind", sorted(KIND_NAMES))
def test_every_failed_start_has_words_as_a_finding_and_as_a_gate(kind: str) -> None:
    for words in (FINDING_WORDS[kind].then, GATE_WORDS[kind].opens):
        assert len(words) > 10
        assert "{" not in words


def test_every_trigger_has_words_and_every_detector_belongs_to_one() -> None:
    assert set(TRIGGER_WORDS) == set(get_args(Trigger))
    assert {detector.value for detector in Detector} - {"data", "load"} <= set(TRIGGER_WORDS)


def test_every_phase_and_outcome_has_words() -> None:
    assert set(NEXT) == set(get_args(Phase))
    assert set(OUTCOMES) == set(get_args(Outcome))
