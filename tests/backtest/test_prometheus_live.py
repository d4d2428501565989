"""What cadvisor and DCGM measure, out of a real Prometheus server: its own query language, its own answers."""

import time
from collections.abc import Iterator

import pytest

from kintsugi.adapters.prometheus_live import PrometheusLive
from kintsugi.core.snapshot import Key, Measured
from kintsugi.ports.measurements import Source
from kintsugi.runtime.measuring import Measuring
from kintsugi.testing.clock import SimulatedClock
from tests.backtest.promserver import served
from tests.unit.core.staging import deployment, instance

GIB = 2**30
PODS = {"chat-main-a", "chat-main-b"}


def lines(at: float) -> list[str]:
    """Five minutes of what a cluster's Prometheus holds beside everything else, one sample a minute."""
    engine = 'container="engine",namespace="llm",job="kubelet",metrics_path="/metrics/cadvisor"'
    found = []
    for minute in range(5, 0, -1):
        stamp = f"{at - 30 * minute:.3f}"
        for pod, gib in (("chat-main-a", 20), ("chat-main-b", 40), ("other-main-c", 60)):
            found += [
                f'container_memory_rss{{{engine},pod="{pod}"}} {gib * GIB + 5 - minute} {stamp}',
                f'container_memory_working_set_bytes{{{engine},pod="{pod}"}} {2 * gib * GIB} {stamp}',
            ]
        found += [
            # the pause container and the pod's own cgroup carry the same names
            f'container_memory_rss{{container="",namespace="llm",pod="chat-main-a"}} {99 * GIB} {stamp}',
            f'container_memory_rss{{container="proxy",namespace="llm",pod="chat-main-a"}} {98 * GIB} {stamp}',
            f'container_memory_rss{{container="engine",namespace="else",pod="chat-main-a"}} {97 * GIB} {stamp}',
            f'DCGM_FI_DEV_GPU_UTIL{{exported_namespace="llm",exported_pod="chat-main-a",namespace="gpu",pod="dcgm-1",gpu="0",UUID="GPU-0"}} 88 {stamp}',
            f'DCGM_FI_DEV_GPU_UTIL{{exported_namespace="llm",exported_pod="chat-main-a",namespace="gpu",pod="dcgm-1",gpu="1",UUID="GPU-1"}} 92 {stamp}',
            f'DCGM_FI_DEV_GPU_UTIL_RATIO{{namespace="llm",pod="chat-main-b",gpu="0",UUID="GPU-2"}} 0.25 {stamp}',
            f'DCGM_FI_DEV_XID_ERRORS{{namespace="llm",pod="chat-main-b",gpu="0",UUID="GPU-2"}} 79 {stamp}',
            f'DCGM_FI_DEV_GPU_UTIL{{namespace="llm",pod="chat-main-gone",gpu="0",UUID="GPU-3"}} 5 {stamp}',
        ]
    return sorted(found, key=lambda line: line.rpartition(" ")[2])


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    text = "\n".join([*lines(time.time()), "# EOF"]) + "\n"
    with served(text, tmp_path_factory.mktemp("prometheus-live")) as address:
        yield address


async def test_a_real_servers_answer_is_put_to_the_pods_it_is_about(url: str) -> None:
    port = PrometheusLive(lambda: 42.0)
    found = await port.measure(Source(url), "llm", "chat", PODS)
    await port.close()
    assert found == {
        "chat-main-a": Measured(42.0, 20 * GIB + 4, 40 * GIB, (88.0, 92.0)),
        "chat-main-b": Measured(
            42.0, 40 * GIB + 4, 80 * GIB, (25.0,), (("GPU-2", "DCGM_FI_DEV_XID_ERRORS", 79.0),)
        ),
    }


async def test_a_deployment_that_nobody_measures_has_no_values_and_no_trouble(url: str) -> None:
    port = PrometheusLive()
    assert await port.measure(Source(url), "llm", "unknown", {"unknown-main-a"}) == {}
    await port.close()


async def test_a_pass_gets_the_values_of_a_real_server_beside_itself(url: str) -> None:
    clock, port = SimulatedClock(), PrometheusLive()
    measuring = Measuring(port, clock, own=url)
    key, pods = Key("llm", "chat"), [instance(name) for name in sorted(PODS)]
    spec = deployment().spec
    measuring.look(key, spec, pods)
    clock.move(60.0)
    assert not measuring.look(key, spec, pods).measured, "asked, and not waited for"
    task = measuring._asked[key].task
    assert task is not None
    await task
    seen = measuring.look(key, spec, pods)
    assert set(seen.measured) == PODS
    assert seen.trouble == ""
    await measuring.close()
