"""An operator that is newer than the CRDs of its cluster (S30): it says so, and does not loop."""

import copy
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from kintsugi.core.names import DEPLOYMENT_PLURAL, GROUP
from tests.integration.fleet import NAME, PATIENCE, Fleet
from tests.integration.installed import CRDS, Release

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

CRD = f"{DEPLOYMENT_PLURAL}.{GROUP}"


@pytest.fixture
def older_crd(installed: Release) -> Iterator[None]:
    """CRDs that do not know the status field `rehearsal` yet; ours again afterwards, with an operator that looks anew."""
    ours = yaml.safe_load((CRDS / f"{GROUP}_{DEPLOYMENT_PLURAL}.yaml").read_text(encoding="utf-8"))
    older = copy.deepcopy(ours)
    installed.wait_until_no_fleets()
    for version in older["spec"]["versions"]:
        del version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]["rehearsal"]
    _replace(installed, older)
    yield
    installed.wait_until_no_fleets()
    _replace(installed, ours)
    installed.replace()


def _replace(installed: Release, crd: dict[str, Any]) -> None:
    patch = json.dumps([{"op": "replace", "path": "/spec/versions", "value": crd["spec"]["versions"]}])
    installed.cluster.kubectl("patch", "crd", CRD, "--type=json", "--patch-file=/dev/stdin", input=patch)
    time.sleep(2.0)  # until the API server serves the new schema


@pytest.mark.usefixtures("older_crd")
def test_a_crd_without_a_field_of_the_status_is_reported_once_and_nothing_is_done(
    installed: Release, fleet: Fleet
) -> None:
    fleet.apply({"short": 1})
    fleet.sight.wait("CRDOutdated", lambda: "CRDOutdated" in fleet.events(), PATIENCE)
    changes = len(fleet.sight.seen("deepseekv4deployments"))
    time.sleep(10.0)
    assert len(fleet.sight.seen("deepseekv4deployments")) == changes, "no loop"
    assert fleet.pods() == []
    reports = [line for line in installed.said() if line["message"] == "CRDOutdated"]
    assert [line["fleet"] for line in reports].count(f"{fleet.namespace}/{NAME}") == 1
    (event,) = [one for one in fleet.sight.now("events").values() if one["reason"] == "CRDOutdated"]
    assert "status.rehearsal" in event["message"]
