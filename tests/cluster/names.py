"""Names and addresses of one local cluster: pure, so that two clusters are known not to meet.

Every cluster has the same addresses: each lives in network namespaces of its own, which only its own bridge joins.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

CONTROL_PLANE_IP = "10.244.255.254"
REGISTRY = f"{CONTROL_PLANE_IP}:5000"
SERVICE_RANGE = "10.96.0.0/16"
KUBERNETES_SERVICE_IP = "10.96.0.1"
DOMAIN = "cluster.local"
POD_RANGE = "10.244.0.0/17"
MAX_NODES = 100
"""10.244.0.0/17 holds the pods of 127 nodes; more than 100 kubelets fit no machine that runs tests."""

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class NodeNames:
    """What belongs to node `index`, counted from 1."""

    cluster: str
    token: str
    index: int

    @property
    def name(self) -> str:
        """The name of the Node object, and the host name inside."""
        return f"node{self.index}"

    @property
    def netns(self) -> str:
        return f"{netns_of(self.cluster)}_{self.name}"

    @property
    def veth(self) -> str:
        """The bridge's end of the cable. It exists only in the cluster's own namespace; the kernel allows 15 letters."""
        return f"v{self.index}"

    @property
    def ip(self) -> str:
        return f"10.244.255.{self.index}"

    @property
    def pods(self) -> str:
        return f"10.244.{self.index}.0/24"

    @property
    def cgroup(self) -> str:
        return f"{cgroup_prefix(self.cluster)}{self.token}_{self.name}"

    @property
    def gpus_prefix(self) -> str:
        return f"GPU-{self.name}-"


@dataclass(frozen=True, slots=True)
class ClusterNames:
    """The names of everything that one cluster leaves on the machine.

    `token` differs from machine to machine and from start to start: control groups are seen by all mount and process
    namespaces, so two machines that share a kernel could each run a cluster of the same name.
    """

    name: str
    token: str

    @property
    def netns(self) -> str:
        return netns_of(self.name)

    @property
    def context(self) -> str:
        """The context in the kubeconfig, by which the tests know that a cluster is theirs."""
        return f"kintsugi-{self.name}"

    def node(self, index: int) -> NodeNames:
        return NodeNames(self.name, self.token, index)


def check_name(name: str) -> str:
    """`name`, if it can name a cluster; raises ValueError that says what is allowed."""
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"{name!r} can't name a cluster: 1 to 32 of a-z, 0-9 and '-', beginning and ending with a letter or digit"
        )
    return name


def netns_of(name: str) -> str:
    return f"kintsugi-{name}"


def belongs_to(netns: str, name: str) -> bool:
    """Whether the network namespace `netns` is one of the cluster `name`: '_' can't be in a name."""
    own = netns_of(name)
    return netns == own or netns.startswith(f"{own}_")


def cgroup_prefix(name: str) -> str:
    """No cluster's prefix begins another's: '_' can't be in a name."""
    return f"kintsugi_{name}_"
