"""Slow tests are run by suites that name folders: one that stands anywhere else would never run."""

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
SUITES = ("integration", "chaos", "engine")
"""`make test-cluster` and `make remediations`, `make chaos`, `make test-engine`."""


def test_slow_tests_stand_where_a_suite_looks_for_them() -> None:
    slow = [path for path in TESTS.rglob("test_*.py") if re.search(r"pytest\.mark\.slow\b", path.read_text())]
    assert len(slow) > 5
    elsewhere = [path for path in slow if path.relative_to(TESTS).parts[0] not in SUITES]
    assert [str(path) for path in elsewhere if path != Path(__file__)] == []
