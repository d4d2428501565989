"""The telemetry beside a stock vLLM: laid on by the operator's init container, on a real engine's pod."""

import time

import pytest

from kintsugi_engine import contract
from tests.engine.operated.conftest import NewFleet
from tests.engine.operated.real_fleet import RealFleet
from tests.engine.operated.test_operated import START_SECONDS
from tests.integration.sight import Json

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(900)]


def test_a_stock_engine_gets_the_telemetry_laid_on_and_is_judged_by_it_and_ends_in_time(
    new_fleet: NewFleet,
) -> None:
    fleet = new_fleet()
    fleet.serve(1, "", "")
    (pod,) = fleet.wait_until_ready(START_SECONDS)
    (container,) = pod["spec"]["initContainers"]
    assert container["image"] == fleet.image
    told = fleet.sight.wait("it has measured its first steps", lambda: measured(fleet, pod), 120)
    (info,) = (line for line in told if line.startswith(contract.TELEMETRY_INFO))
    assert 'engine_version="0.32.0"' in info
    assert 'state="on"' in info
    fleet.sight.wait("what the telemetry measures is read, and not missing", lambda: read(fleet), 60)
    before = time.monotonic()
    fleet.kubectl("delete", "pod", pod["metadata"]["name"], "--wait=true")
    assert time.monotonic() - before < 60, "its preStop hook waits for streams, and there are none"


def measured(fleet: RealFleet, pod: Json) -> list[str]:
    """What the telemetry tells, once it counts free blocks: an engine that has just started has taken no step yet, and
    the first is the operator's canary; [] before."""
    told = [line for line in fleet.page(pod).splitlines() if line.startswith("kintsugi_")]
    counted = any(line.startswith(contract.KV_BLOCKS) and 'state="empty_free"' in line for line in told)
    return told if counted else []


def read(fleet: RealFleet) -> bool:
    """Whether the operator has fresh data, the telemetry's among it."""
    fresh = fleet.condition("DataFresh")
    known = fresh.get("status") == "True" and fresh["reason"] != "NothingToRead"
    return known and contract.KV_BLOCKS not in fresh["message"]
