"""`make simulate`: the false-positive suite. Exits 1 where a bar is missed, and names the seed that repeats it."""

import argparse
import json
import math
import sys
import time
from pathlib import Path

from kintsugi.api.healing import ThroughputTrigger
from kintsugi.testing.simulation.nearness import quantile
from kintsugi.testing.simulation.suite import CHANCE, CI, FULL, Size, Tally, chance_of, jobs, run

REPORT = Path("build/simulate.json")
SIZES = {"full": FULL, "ci": CI}
STEPS = 20
HALF_WAY = 100 * (1 - math.sqrt(1 - ThroughputTrigger().drop_percent / 100))
"""`lost_percent` below which docs/detectors.md lets `throughput` act."""


def arguments() -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(prog="make simulate", description=__doc__)
    parser.add_argument("--size", choices=sorted(SIZES), default="full", help="full: 10,000 h; ci: 2,000 h")
    parser.add_argument("--hours", type=float, help="healthy instance-hours, in place of the size's")
    parser.add_argument("--runs", type=int, help="runs of each kind of fault, in place of the size's")
    parser.add_argument("--seed", type=int, help="to repeat a run; another one each time unless given")
    parser.add_argument("--processes", type=int, default=2)
    return parser.parse_args()


def told(done: int, of: int) -> None:
    """Progress, in twentieths."""
    if done * STEPS // of != (done - 1) * STEPS // of:
        print(f"  {100 * done // of:3d} %", file=sys.stderr, flush=True)


def table(tally: Tally, seed: int) -> str:
    """The outcome for people."""
    report = tally.report(seed)
    hours, removals = report["healthyInstanceHours"], report["falseRecreations"]
    lines = [
        f"healthy: {hours:,.0f} instance-hours, {removals} removals, {tally.withdrawn} withdrawals given back"
    ]
    for interval, watched in sorted(tally.by_interval.items()):
        lines.append(f"         read every {interval:2d} s: {watched:6,d} instance-hours")
    if len(tally.nearest) > 1:
        near, below = tally.nearest, sum(v < HALF_WAY for v in tally.nearest)
        lines.append(
            f"lost_percent: 99 % of the time at most {quantile(near, 0.5):.0f} % in half of {len(near)} pools and "
            f"{quantile(near, 0.95):.0f} % in 95 % of them; {below} stay below {int(HALF_WAY)} %"
        )
    for name, count in sorted(tally.faults.items()):
        line = f"{name:>16}: {count.found:4d} of {count.runs:4d} found, {count.within_bar:4d} within the bar"
        if count.delays:
            line += f"; Sick after p50 {count.after(0.5):.0f} s, p95 {count.after(0.95):.0f} s"
        missed = count.runs - count.within_bar
        if missed:
            chance = 100 * chance_of(missed, count.runs)
            line += f"; so many misses or more: {chance:.2g} % of suites, if 99 % were found"
        lines.append(line)
    return "\n".join(lines)


def main() -> int:
    """Run it."""
    asked = arguments()
    size = SIZES[asked.size]
    size = Size(
        size.healthy_hours if asked.hours is None else asked.hours,
        size.runs if asked.runs is None else asked.runs,
    )
    seed = time.time_ns() % 1_000_000_007 if asked.seed is None else asked.seed
    print(
        f"seed {seed}: {size.healthy_hours:,.0f} healthy instance-hours, {size.runs} runs a kind", flush=True
    )
    began = time.monotonic()
    tally = run(jobs(size, seed), asked.processes, told)
    REPORT.parent.mkdir(exist_ok=True)
    REPORT.write_text(json.dumps(tally.report(seed), indent=2) + "\n")
    print(table(tally, seed))
    print(f"{time.monotonic() - began:.0f} s, written to {REPORT}")
    if size.runs < FULL.runs:
        print(
            f"with {size.runs} runs a kind fails where 99 % would be missed as often in < {100 * CHANCE:.0f} % of suites"
        )
    for text in tally.missed:
        print(f"not within its bar: {text}")
    failures = tally.failures(size)
    for text in failures:
        print(f"FAILED: {text}")
    if failures:
        print(f"repeat with: make simulate SIMULATE={asked.size} ARGS='--seed {seed}'")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
