"""`python -m tests.cluster up | down | status | setup`: a local Kubernetes cluster from the command line."""

from __future__ import annotations

import argparse
import sys
import time

from tests.cluster import paths
from tests.cluster.base_image import base_archive
from tests.cluster.binaries import binaries
from tests.cluster.cluster import Cluster, remove, sweep
from tests.cluster.machine import exclusive, require
from tests.cluster.names import check_name
from tests.cluster.spec import known, load


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def up(name: str, nodes: int, gpus: int, *, fresh: bool) -> None:
    started = time.monotonic()
    cluster = None if fresh else running(name, nodes)
    if cluster is not None:
        say(f"{name} is up already (--fresh starts it anew)")
    else:
        cluster = Cluster.start(name, nodes=nodes, gpus_per_node=gpus, audit_log=True, keep=True, say=say)
        say(f"{nodes} nodes Ready in {time.monotonic() - started:.1f} s")
    print(usage(cluster))


def running(name: str, nodes: int) -> Cluster | None:
    """The kept cluster of that name, if all its nodes are Ready and as many as wanted."""
    try:
        cluster = Cluster.attach(name)
    except LookupError:
        return None
    whole = cluster.spec.nodes == nodes == len(cluster.ready_nodes())
    return cluster if whole and cluster.spec.owner is None else None


def usage(cluster: Cluster) -> str:
    """How to reach the cluster from a shell; the first two lines can be evaluated by one."""
    netns = cluster.spec.names.netns
    return "\n".join(
        [
            f"export KUBECONFIG={cluster.kubeconfig}",
            f"export PATH={cluster.programs}:$PATH    # kubectl and helm",
            f"# context {cluster.context}; images are pulled from {cluster.registry}",
            f"# where pods and Services have addresses:  nsenter --net=/run/netns/{netns} COMMAND",
            f"# take it down:  {sys.executable} -m tests.cluster down --name {cluster.name}",
        ]
    )


def take_down(name: str) -> None:
    with exclusive(paths.lock_of(check_name(name)), leave=False):
        remove(name)
    sweep()


def status() -> None:
    """One line for each cluster."""
    for name in known():
        spec = load(name)
        if spec is None:
            print(f"{name}: half made or half removed; `down --name {name}` clears it away")
            continue
        try:
            cluster = Cluster.attach(name)
        except LookupError:
            print(f"{name}: half made; `down --name {name}` clears it away")
            continue
        owner = f"process {spec.owner.pid}" if spec.owner else "kept until `down`"
        print(
            f"{name}: {len(cluster.ready_nodes())} of {spec.nodes} nodes Ready, {owner}, KUBECONFIG={cluster.kubeconfig}"
        )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for command, text in (
        ("up", "start a cluster that stays up"),
        ("down", "take it down, or clear away its rests"),
    ):
        sub = commands.add_parser(command, help=text)
        sub.add_argument("--name", default="dev")
        if command == "up":
            sub.add_argument("--nodes", type=int, default=3)
            sub.add_argument("--gpus", type=int, default=2, help="fake GPUs of each node")
            sub.add_argument("--fresh", action="store_true", help="take down what is up of that name first")
    commands.add_parser("status", help="what is up on this machine")
    commands.add_parser("setup", help="install packages and build the programs, and start nothing")
    arguments = parser.parse_args()
    try:
        match arguments.command:
            case "up":
                up(
                    arguments.name,
                    arguments.nodes,
                    arguments.gpus,
                    fresh=arguments.fresh,
                )
            case "down":
                take_down(arguments.name)
            case "status":
                status()
            case "setup":
                require(say)
                print(binaries(say))
                print(base_archive(say))
    except (RuntimeError, ValueError, TimeoutError, LookupError) as refusal:
        say("\n".join([f"error: {refusal}", *getattr(refusal, "__notes__", [])]))
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
