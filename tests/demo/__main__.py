"""`python -m tests.demo`: a fleet that heals itself, from an empty machine to `build/demo.json`."""

import argparse
import signal
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import yaml
from kubernetes import config

from kintsugi.api.objects import DeepSeekV4Deployment, parse_deployment
from kintsugi.core.times import effective_times
from tests.cluster.fixtures import Refused
from tests.cluster.machine import Unsupported
from tests.demo.acts import Play
from tests.demo.engines import Engines, Levels, LogFollower
from tests.demo.facts import Facts
from tests.demo.judgement import outcomes
from tests.demo.outcome import Outcome, faults_of, missing, write
from tests.demo.screen import Screen
from tests.demo.stage import DEPLOYMENT, FLEET, NAMESPACE, ROOT, stage
from tests.demo.traffic import Traffic, arguments
from tests.demo.venue import Venue, kubectl_of
from tests.demo.watch import Watches

RATES = {"short": 8.0, "long": 5.0}
"""Requests a second to each pool: enough that every engine always has some, little enough for two slow cores."""
START_SECONDS = 120.0
"""Until every engine of the fleet is ready, on a slow machine."""
LAST_REQUESTS_SECONDS = 30.0


def perform(venue: Venue, screen: Screen, build: Path) -> list[Outcome]:
    """Wait for the fleet, send it traffic, run the scenarios, and judge them."""
    fleet = parse_deployment(yaml.safe_load(FLEET.read_text(encoding="utf-8")))
    facts = Facts()
    facts.listeners.append(screen.event)
    api = config.new_client_from_config(str(venue.access.kubeconfig), context=venue.access.context)
    with ExitStack() as stack:
        watches = Watches(api, NAMESPACE, DEPLOYMENT, facts)
        stack.callback(watches.stop)
        watches.start()
        engines = Engines(api, NAMESPACE)
        levels = Levels(engines, facts)
        stack.callback(levels.stop)
        stack.enter_context(screen.follow(facts, levels.now))
        _await_fleet(fleet, facts)
        levels.start()
        screen.heading("all engines are ready; requests flow, each on a new connection")
        traffic = _traffic(venue, fleet)
        stack.callback(traffic.kill)

        def follow(pod: str) -> LogFollower:
            return LogFollower(kubectl_of(venue.access), NAMESPACE, pod, build / "demo-hung-engine.log")

        chapters = Play(facts, engines, effective_times(fleet.spec), screen, follow).run()
        if not traffic.running:
            raise RuntimeError("the traffic ended by itself, so its figures mean nothing")
        sent = traffic.stop(LAST_REQUESTS_SECONDS)
        return outcomes(chapters, facts, sent)


def _await_fleet(fleet: DeepSeekV4Deployment, facts: Facts) -> None:
    wanted = sum(pool.replicas for pool in fleet.spec.pools)

    def ready() -> bool:
        alive = facts.alive()
        return len(alive) == wanted and all(pod.ready_now for pod in alive)

    if not facts.wait(ready, time.time() + START_SECONDS):
        raise TimeoutError(f"not all {wanted} engines were ready within {START_SECONDS:.0f} s")


def _traffic(venue: Venue, fleet: DeepSeekV4Deployment) -> Traffic:
    services = {}
    for pool in fleet.spec.pools:
        spec = venue.access.get("service", f"{DEPLOYMENT}-{pool.name}", NAMESPACE)["spec"]
        services[pool.name] = f"http://{spec['clusterIP']}:{spec['ports'][0]['port']}"
    return Traffic(venue.traffic(NAMESPACE, arguments(services, RATES, fleet.spec.model.served_names[0])))


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.demo", description=__doc__)
    parser.add_argument(
        "--keep", action="store_true", help="leave the cluster up afterwards, to look around in"
    )
    parser.add_argument(
        "--json", type=Path, default=ROOT / "build" / "demo.json", help="where the figures go"
    )
    said = parser.parse_args()
    for number in (
        signal.SIGINT,
        signal.SIGTERM,
    ):  # SIGINT too: a background job of a shell starts with it ignored
        signal.signal(number, _interrupt)
    screen = Screen()
    began = time.monotonic()
    found: list[Outcome] = []
    try:
        screen.heading("a Kubernetes to play on")
        with stage(screen.say, keep=said.keep) as venue:
            found = perform(venue, screen, said.json.parent)
    except (Unsupported, Refused) as refusal:
        print(f"error: {refusal}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted: everything has been taken down", file=sys.stderr)
        return 130
    write(found, said.json)
    screen.summary(found)
    wrong = [f"{outcome.name}: {fault}" for outcome in found for fault in faults_of(outcome)]
    wrong += [f"{name}: no outcome" for name in missing(found)]
    wrong += [f"{outcome.name}: {outcome.remark}" for outcome in found if outcome.remark]
    screen.say(f"written to {said.json}; {time.monotonic() - began:.0f} s in all")
    for line in wrong:
        print(f"WRONG {line}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
