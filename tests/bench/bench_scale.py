"""`make bench-scale`: 1,000 instances in 100 deployments, read over HTTP by the operator's own loop for five minutes.

Real: scheduler, reconciler, observation, judgement, decision, HTTP client, parsing of 60 KB pages. In memory: the API
server, which lives in the same process, so its share of CPU and memory counts as the operator's. The engines are one
process of their own. Writes `build/bench-scale.json`; exits 1 where a bar of the design is missed.
"""

import argparse
import asyncio
import json
import resource
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kintsugi.adapters.clock import SystemClock
from kintsugi.adapters.engines import HttpEngines
from kintsugi.core import names
from kintsugi.core.judged import Judged
from kintsugi.core.plan import Plan
from kintsugi.core.snapshot import Canary, CanaryResult, Key, Page, Scrape, Snapshot
from kintsugi.ports.engines import Address
from kintsugi.runtime.reconcile import Reconciler
from kintsugi.runtime.scheduler import Scheduler
from kintsugi.testing.clock import SimulatedClock
from kintsugi.testing.cluster import FakeCluster
from kintsugi.testing.fleet import FakeEngines
from kintsugi.testing.rehearsal import SilentRecorder
from tests.bench.page_server import address

REPORT = Path("build/bench-scale.json")
WARM_SECONDS = 900.0
"""Simulated, before the measured time: every engine is Ready and past its warm-up."""
SETTLE_SECONDS = 30.0
"""Real, at the beginning: first passes, first status. Not measured."""
LAG_SECONDS, CORES, RESIDENT_MIB = 5.0, 1.0, 500.0
"""Bars of design §11."""


class Loopback:
    """The real engines adapter, with every pod's address turned into one on the loopback."""

    def __init__(self, engines: HttpEngines, port: int) -> None:
        self._engines = engines
        self._port = port
        self._numbers: dict[str, int] = {}

    def _at(self, given: Address) -> Address:
        if not given.ip:
            return given
        number = self._numbers.setdefault(given.ip, len(self._numbers))
        return Address(address(number), self._port, given.api_key, given.model)

    async def scrape(self, addresses: Sequence[Address], timeout: float) -> list[Scrape]:
        """As the adapter does."""
        return await self._engines.scrape([self._at(one) for one in addresses], timeout)

    def send_canary(self, given: Address, canary: Canary, abandon_after: float) -> None:
        """As the adapter does."""
        self._engines.send_canary(self._at(given), canary, abandon_after)

    def canary_results(self) -> list[CanaryResult]:
        """As the adapter does."""
        return self._engines.canary_results()

    async def ask(self, given: Address, timeout: float) -> bool:
        """As the adapter does."""
        return await self._engines.ask(self._at(given), timeout)

    async def can_compact(self, given: Address, timeout: float) -> bool | None:
        return False

    async def compact(self, given: Address, timeout: float) -> bool:
        return False

    async def record(self, given: Address, timeout: float) -> tuple[Mapping[str, Any], ...] | None:
        """As the adapter does."""
        return await self._engines.record(self._at(given), timeout)

    async def models(self, given: Address, timeout: float) -> frozenset[str] | None:
        """As the adapter does."""
        return await self._engines.models(self._at(given), timeout)


class Measuring(SilentRecorder):
    """Notes how old each page was when there was a verdict on it, and how late the pass began."""

    def __init__(self) -> None:
        self.lags: list[float] = []
        self.verdicts: Counter[str] = Counter()
        self.unread = 0
        self.passes: Counter[str] = Counter()
        self.seconds: list[float] = []

    def note(self, snapshot: Snapshot, judged: Judged, plan: Plan) -> None:
        """One pass over one deployment."""
        now = time.monotonic()
        for instance in snapshot.instances:
            if isinstance(instance.scrape, Page):
                self.lags.append(now - instance.scrape.mono + snapshot.late_by)
            else:
                self.unread += 1
        self.verdicts.update(v.verdict.value for v in judged.verdicts.values())

    def passed(self, key: Key, result: str, seconds: float) -> None:
        """One pass ended."""
        self.passes[result] += 1
        self.seconds.append(seconds)

    def clear(self) -> None:
        """Measure from now on."""
        for each in (self.lags, self.verdicts, self.passes, self.seconds):
            each.clear()
        self.unread = 0


def manifest(number: int, instances: int) -> dict[str, Any]:
    """One deployment of one pool."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.DEPLOYMENT_KIND,
        "metadata": {"namespace": f"team-{number % 10}", "name": f"fleet-{number}"},
        "spec": {
            "model": {"id": "deepseek-ai/DeepSeek-V4-Flash"},
            "hardware": {"gpusPerInstance": 1},
            "pools": [{"name": "main", "replicas": instances}],
        },
    }


async def fleet(deployments: int, instances: int) -> tuple[FakeCluster, list[Key]]:
    """A cluster on which all are Ready and warm; its clock stands at the present."""
    cluster = FakeCluster(SimulatedClock(time.time() - WARM_SECONDS))
    for number in range(-(-deployments * instances // 8)):
        cluster.add_node(f"node{number}", gpus=8)
    keys = []
    for number in range(deployments):
        cluster.put(manifest(number, instances))
        keys.append(Key(f"team-{number % 10}", f"fleet-{number}"))
    operator = Reconciler(cluster, FakeEngines(cluster), cluster.clock, SilentRecorder())
    for wait in (1.0, 120.0, 5.0, 5.0, 5.0):
        cluster.clock.move(wait)
        for key in keys:
            await operator.run(key, 0.0)
    cluster.clock.move(max(0.0, time.time() - cluster.clock.now()))
    return cluster, keys


async def follow(cluster: FakeCluster) -> None:
    """Let the cluster's clock follow the real one."""
    while True:
        cluster.clock.move(max(0.0, time.time() - cluster.clock.now()))
        await asyncio.sleep(0.5)


async def measure(seconds: float, deployments: int, instances: int, port: int) -> dict[str, Any]:
    """Run the operator's loop for `seconds` and say what it took."""
    cluster, keys = await fleet(deployments, instances)
    clock, recorder = SystemClock(), Measuring()
    adapter = HttpEngines(clock.mono)
    operator = Reconciler(cluster, Loopback(adapter, port), clock, recorder)
    scheduler = Scheduler(operator.run, clock, recorder.passed)
    following = asyncio.create_task(follow(cluster))
    for key in keys:
        scheduler.touch(key)
    await asyncio.sleep(SETTLE_SECONDS)
    recorder.clear()
    writes, cpu, began = len(cluster.writes), time.process_time(), time.monotonic()
    await asyncio.sleep(seconds)
    cpu, took = time.process_time() - cpu, time.monotonic() - began
    following.cancel()
    await scheduler.close()
    await adapter.close()
    made = Counter(write.kind for write in cluster.writes[writes:])
    lags = sorted(recorder.lags)
    return {
        "instances": deployments * instances,
        "deployments": deployments,
        "seconds": round(took, 1),
        "verdicts": len(lags),
        "verdictLagP50": round(lags[len(lags) // 2], 3) if lags else None,
        "verdictLagP95": round(lags[int(0.95 * len(lags))], 3) if lags else None,
        "pagesNotRead": recorder.unread,
        "readingsPerInstancePerInterval": round(len(lags) / (deployments * instances * took / 5.0), 3),
        "cores": round(cpu / took, 3),
        "residentMiB": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "apiWrites": dict(made),
        "passes": dict(recorder.passes),
        "found": dict(recorder.verdicts),
    }


def missed(report: dict[str, Any]) -> list[str]:
    """The bars of design §11 that are missed, in words."""
    said = []
    if report["verdictLagP95"] is None or report["verdictLagP95"] > LAG_SECONDS:
        said.append(f"verdict lag p95 {report['verdictLagP95']} s, more than {LAG_SECONDS} s")
    if report["cores"] > CORES:
        said.append(f"{report['cores']} cores, more than {CORES}")
    if report["residentMiB"] > RESIDENT_MIB:
        said.append(f"{report['residentMiB']} MiB, more than {RESIDENT_MIB} MiB")
    quiet = {kind: n for kind, n in report["apiWrites"].items() if kind != "ConfigMap"}
    if sum(quiet.values()) > report["deployments"] / 100:
        said.append(f"{quiet} API writes by a quiet fleet")
    if report["apiWrites"].get("ConfigMap", 0) > report["deployments"]:
        said.append("what was learned was written more than once a deployment")
    return said


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(prog="make bench-scale", description=__doc__)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--deployments", type=int, default=100)
    parser.add_argument("--instances", type=int, default=10, help="of each deployment")
    asked = parser.parse_args()
    count = asked.deployments * asked.instances
    command = [sys.executable, "-m", "tests.bench.page_server", str(count)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert server.stdin is not None
        port = int(server.stdout.readline())
        report = asyncio.run(measure(asked.seconds, asked.deployments, asked.instances, port))
        server.stdin.close()
        server.wait(30)
    REPORT.parent.mkdir(exist_ok=True)
    REPORT.write_text(json.dumps(report, indent=2) + "\n")
    print(json.dumps(report, indent=2))
    failures = missed(report)
    for text in failures:
        print(f"FAILED: {text}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
