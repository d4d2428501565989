"""The telemetry beside a stock vLLM: laid on by the operator's init container, on a real engine's pod."""

import time

import pytest

from kintsugi_engine import contract
from tests.engine.operated.conftest import NewFleet
from tests.engine.operated.test_operated import START_SECONDS

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(900)]


def test_a_stock_engine_gets_the_telemetry_laid_on_and_is_judged_by_it_and_ends_in_time(
    new_fleet: NewFleet,
) -> None:
    fleet = new_fleet()
    fleet.serve(1, "", "")
    (pod,) = fleet.wait_until_ready(START_SECONDS)
    (container,) = pod["spec"]["initContainers"]
    assert container["image"] == fleet.image
    told = [line for line in fleet.page(pod).splitlines() if line.startswith("kintsugi_")]
    (info,) = (line for line in told if line.startswith(contract.TELEMETRY_INFO))
    assert 'engine_version="0.32.0"' in info
    assert 'state="on"' in info
    assert any(line.startswith(contract.KV_BLOCKS) and 'state="empty_free"' in line for line in told), told
    fleet.sight.wait("it is read", lambda: fleet.condition("DataFresh").get("reason") != "NothingToRead", 60)
    fresh = fleet.condition("DataFresh")
    assert fresh["status"] == "True"
    assert contract.KV_BLOCKS not in fresh["message"], "what the telemetry measures is not missing"
    before = time.monotonic()
    fleet.kubectl("delete", "pod", pod["metadata"]["name"], "--wait=true")
    assert time.monotonic() - before < 60, "its preStop hook waits for streams, and there are none"
