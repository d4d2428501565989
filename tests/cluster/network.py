"""The network namespaces of a cluster and the cables between them.

Nothing is added to the machine's own network: bridge and cables lie in the control plane's namespace.
"""

from __future__ import annotations

import os
from pathlib import Path

from tests.cluster import processes
from tests.cluster.names import CONTROL_PLANE_IP, SERVICE_RANGE, ClusterNames, NodeNames, belongs_to
from tests.cluster.processes import Process, command, end, inside

_NETNS = Path("/run/netns")


def create_control_plane(names: ClusterNames) -> None:
    command(["ip", "netns", "add", names.netns])
    _configure(
        names.netns,
        "link set lo up",
        "link add br0 type bridge",
        f"addr add {CONTROL_PLANE_IP}/24 dev br0",
        "link set br0 up",
        # Service addresses are rewritten on their way out; any route makes the kernel try to send.
        f"route add {SERVICE_RANGE} dev br0",
    )
    _forward_packets(names.netns)


def create_node(names: ClusterNames, node: NodeNames, nodes: int) -> None:
    """A namespace for `node` with an address, and routes from everywhere to its pods and from it to all others'."""
    command(["ip", "netns", "add", node.netns])
    _configure(
        names.netns,
        f"link add {node.veth} type veth peer name eth0 netns {node.netns}",
        f"link set {node.veth} master br0 up",
    )
    others = [other for index in range(1, nodes + 1) if (other := names.node(index)) != node]
    _configure(
        node.netns,
        "link set lo up",
        f"addr add {node.ip}/24 dev eth0",
        "link set eth0 up",
        f"route add default via {CONTROL_PLANE_IP}",
        *(f"route add {other.pods} via {other.ip}" for other in others),
    )
    _configure(names.netns, f"route replace {node.pods} via {node.ip}")
    _forward_packets(node.netns)


def plug(names: ClusterNames, node: NodeNames, *, connected: bool) -> None:
    """Pull the node's network cable, or put it back."""
    _configure(names.netns, f"link set {node.veth} {'up' if connected else 'down'}")
    if connected:
        _configure(names.netns, f"route replace {node.pods} via {node.ip}")


def processes_in(netns: str) -> list[Process]:
    """The processes in a namespace, found without any record of them."""
    found = (int(pid) for pid in command(["ip", "netns", "pids", netns]).split())
    return [Process(pid, processes.stat_of(pid)[1]) for pid in found if pid != os.getpid()]


def remove(netns: str) -> None:
    """End all processes in the namespace, then drop it with its interfaces; nothing happens if it is not there."""
    if not (_NETNS / netns).exists():
        return
    if _is_mounted(netns):
        end(processes_in(netns))
    command(["ip", "netns", "delete", netns])


def namespaces_of(cluster: str) -> list[str]:
    """All namespaces that runs of this cluster have left, the nodes' before the control plane's."""
    if not _NETNS.is_dir():
        return []
    return sorted((n.name for n in _NETNS.iterdir() if belongs_to(n.name, cluster)), reverse=True)


def _is_mounted(netns: str) -> bool:
    """A run that was killed between making the file and mounting the namespace on it leaves a plain empty file."""
    return (_NETNS / netns).stat().st_dev != _NETNS.stat().st_dev


def _configure(netns: str, *lines: str) -> None:
    command(["ip", "-n", netns, "-batch", "-"], stdin="\n".join(lines) + "\n")


def _forward_packets(netns: str) -> None:
    command(inside(netns, ["sysctl", "-q", "-w", "net.ipv4.ip_forward=1"]))
