"""Chaos: for each case no more victims than allowed, no action twice, and in the end all is as it was (S21 to S33)."""

import pytest

from tests.chaos.cases import ALL
from tests.chaos.run import Run

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

LONGEST_SECONDS = 660.0
"""All of them together, side by side; what is not over then is not over in time."""


@pytest.mark.timeout(LONGEST_SECONDS + 240)
@pytest.mark.parametrize("name", [case.name for case in ALL])
def test_trouble_costs_no_more_than_it_may_and_ends_as_it_began(chaos: Run, name: str) -> None:
    tally = chaos.tallies[name].result(LONGEST_SECONDS)
    assert tally.converged, tally.remark
    assert tally.victims <= tally.allowed, tally.remark
    assert tally.double_actions == 0, tally.remark
