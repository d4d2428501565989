"""A quiet fleet costs no writes: the audit log of the API server is the witness."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from kintsugi.core.names import PAUSE_ANNOTATION_PREFIX
from tests.cluster.kube import wait_for
from tests.integration.fleet import NAME, PATIENCE, Fleet
from tests.integration.installed import SERVICE_ACCOUNT, Release

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(600)]

QUIET_SECONDS = 120.0
SETTLED_SECONDS = 40.0
"""A status that has not changed for this long has been said."""


class AuditLog:
    """The writes that the operator asked for since the last look."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = path.stat().st_size

    def writes(self) -> list[dict[str, Any]]:
        """The operator's writes, each as the audit log has it."""
        with self._path.open("rb") as file:
            file.seek(self._offset)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._offset += len(whole)
        entries = (json.loads(line) for line in whole.splitlines())
        return [entry for entry in entries if entry["user"]["username"] == SERVICE_ACCOUNT]


def is_lease(write: dict[str, Any]) -> bool:
    return bool(write["objectRef"]["resource"] == "leases")


def told(writes: list[dict[str, Any]]) -> list[str]:
    refs = [(write["verb"], write["objectRef"]) for write in writes]
    return [
        f"{verb} {ref['resource']} {ref.get('namespace', '')}/{ref.get('name', '')}" for verb, ref in refs
    ]


def test_for_two_minutes_an_idle_fleet_causes_no_write_but_the_renewal_of_the_lease(
    installed: Release, fleet: Fleet
) -> None:
    if not installed.cluster.spec.audit:
        pytest.skip("this cluster was started without an audit log")
    _wait_until_alone(installed)
    fleet.apply({"short": 2, "long": 1}, {"rehearsal": None})
    fleet.wait_until_ready()
    _let_it_settle(fleet)

    log = AuditLog(installed.cluster.audit_log)
    time.sleep(QUIET_SECONDS)
    writes = log.writes()
    assert any(map(is_lease, writes)), "the log saw nothing at all"
    wrote = told([write for write in writes if not is_lease(write)])
    assert wrote == [], _last_two_statuses(fleet)

    fleet.kubectl("annotate", "dsv4", NAME, f"{PAUSE_ANNOTATION_PREFIX}test=yes")
    fleet.sight.wait("Paused", lambda: fleet.condition("HealingAllowed").get("reason") == "Paused", PATIENCE)
    time.sleep(1.0)
    assert f"update deepseekv4deployments {fleet.namespace}/{NAME}" in told(log.writes()), "it sees writes"


def _wait_until_alone(installed: Release) -> None:
    """Fleets of earlier tests are still taken apart for a while, and the operator looks after them until the end."""
    wait_for(
        "the fleets of other tests are gone",
        lambda: not installed.cluster.kubectl("get", "dsv4", "-A", "-o", "name").split(),
        2 * PATIENCE,
    )


def _let_it_settle(fleet: Fleet) -> None:
    def settled() -> bool:
        return time.time() - fleet.sight.seen("deepseekv4deployments")[-1].at > SETTLED_SECONDS

    fleet.sight.wait("the status has settled", settled, 3 * PATIENCE)


def _last_two_statuses(fleet: Fleet) -> str:
    """What a write changed, for whoever must find out why."""
    seen = fleet.sight.seen("deepseekv4deployments")[-2:]
    return "\n".join(json.dumps(each.object.get("status"), sort_keys=True) for each in seen)
