"""A quiet fleet costs no writes: the audit log of the API server is the witness."""

import json
import time

import pytest

from kintsugi.core.names import PAUSE_ANNOTATION_PREFIX
from tests.cluster.audit import Write
from tests.integration.fleet import NAME, PATIENCE, Fleet
from tests.integration.installed import SERVICE_ACCOUNT, Release

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(600)]

QUIET_SECONDS = 120.0
SETTLED_SECONDS = 20.0
"""A status that has not changed for this long has been said."""


def told(writes: list[Write]) -> list[str]:
    return [f"{write.verb} {write.resource} {write.namespace}/{write.name}" for write in writes]


def test_for_two_minutes_an_idle_fleet_causes_no_write_but_the_renewal_of_the_lease(
    audited: Release, fleet: Fleet
) -> None:
    audited.wait_until_no_fleets()  # the operator looks after a fleet until its end, and would write
    fleet.apply({"short": 2, "long": 1}, {"rehearsal": None})
    fleet.wait_until_ready()
    _let_it_settle(fleet)

    before = len(audited.cluster.writes(SERVICE_ACCOUNT))
    time.sleep(QUIET_SECONDS)
    writes = audited.cluster.writes(SERVICE_ACCOUNT)[before:]
    assert any(write.resource == "leases" for write in writes), "the log saw nothing at all"
    wrote = told([write for write in writes if write.resource != "leases"])
    assert wrote == [], _last_two_statuses(fleet)

    fleet.kubectl("annotate", "dsv4", NAME, f"{PAUSE_ANNOTATION_PREFIX}test=yes")
    fleet.sight.wait("Paused", lambda: fleet.condition("HealingAllowed").get("reason") == "Paused", PATIENCE)
    time.sleep(1.0)
    seen = told(audited.cluster.writes(SERVICE_ACCOUNT)[before:])
    assert f"update deepseekv4deployments/status {fleet.namespace}/{NAME}" in seen, "it sees writes"


def _let_it_settle(fleet: Fleet) -> None:
    def all_idle() -> bool:
        verdicts = [one["verdict"] for one in fleet.status.get("instances", ())]
        return len(verdicts) == fleet.size and set(verdicts) == {"Idle"}

    def settled() -> bool:
        return time.time() - fleet.sight.seen("deepseekv4deployments")[-1].at > SETTLED_SECONDS

    # A first question of the operator's has proved each; a minute without a request of a user makes it idle.
    fleet.sight.wait("nobody has anything to do", all_idle, 2 * PATIENCE)
    fleet.sight.wait("the status has settled", settled, 3 * PATIENCE)


def _last_two_statuses(fleet: Fleet) -> str:
    """What a write changed, for whoever must find out why."""
    seen = fleet.sight.seen("deepseekv4deployments")[-2:]
    return "\n".join(json.dumps(each.object.get("status"), sort_keys=True) for each in seen)
