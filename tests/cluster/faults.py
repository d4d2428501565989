"""Trouble on demand: what can go wrong on a machine, in a network, in a container."""

from __future__ import annotations

import signal

from tests.cluster import control_plane, network
from tests.cluster.kube import ApiReader, wait_for
from tests.cluster.node import Node
from tests.cluster.processes import PidFolder
from tests.cluster.spec import ClusterSpec


class Faults:
    """The faults that a cluster can be given. Nodes are named by number or name: 2 or "node2"."""

    spec: ClusterSpec
    pids: PidFolder
    reader: ApiReader

    @property
    def nodes(self) -> list[Node]:
        return [Node(self.spec, index, self.pids) for index in range(1, self.spec.nodes + 1)]

    def node(self, name: str | int) -> Node:
        """A node by number or name. Raises ValueError if there is none."""
        index = int(str(name).removeprefix("node"))
        self.spec.node(index)
        return Node(self.spec, index, self.pids)

    def power_off(self, node: str | int) -> None:
        """Pull the node's plug: its kubelet, its runtime and all its containers end at once."""
        self.node(node).power_off()

    def power_on(self, node: str | int) -> None:
        """Switch the node on again; it finds its disk as it was. Returns before it is Ready."""
        found = self.node(node)
        if not found.is_on:
            found.power_off()
            found.boot()

    def cut(self, node: str | int) -> None:
        """Pull the node's network cable; everything on it runs on."""
        network.plug(self.spec.names, self.node(node).names, connected=False)

    def join(self, node: str | int) -> None:
        """Put the node's network cable back."""
        network.plug(self.spec.names, self.node(node).names, connected=True)

    def freeze_kubelet(self, node: str | int) -> None:
        """Stop the node's kubelet in mid-step; containers and network run on."""
        self.node(node).signal("kubelet", signal.SIGSTOP)

    def thaw_kubelet(self, node: str | int) -> None:
        self.node(node).signal("kubelet", signal.SIGCONT)

    def kill_container(
        self, namespace: str, pod: str, container: str | None = None, *, number: int = signal.SIGKILL
    ) -> None:
        """Send a signal to the first process of a container (None: the pod's first), behind Kubernetes' back.

        Raises LookupError if there is no such pod or container, RuntimeError if it does not run.
        """
        found = self.reader.json(f"/api/v1/namespaces/{namespace}/pods/{pod}")
        if found is None:
            raise LookupError(f"no pod {namespace}/{pod}")
        name = container or found["spec"]["containers"][0]["name"]
        statuses = {status["name"]: status for status in found["status"].get("containerStatuses", [])}
        if name not in statuses or "containerID" not in statuses[name]:
            raise LookupError(f"pod {namespace}/{pod} has no container {name!r} that was ever started")
        node = self.node(found["spec"]["nodeName"])
        container_id = statuses[name]["containerID"].removeprefix("containerd://")
        node.run(["kill", f"-{number}", str(node.container_pid(container_id))])

    def set_gpu_health(self, node: str | int, gpu: int, *, healthy: bool) -> None:
        """Make the driver of `node` call its GPU number `gpu`, counted from 0, healthy or not."""
        found = self.node(node)
        others = [number for number in found.unhealthy() if number != gpu]
        found.set_unhealthy(others if healthy else [*others, gpu])

    def refuse_gpus(self, node: str | int, *, refuses: bool = True) -> None:
        """Have the driver of `node` give no GPU to any new container, though it goes on offering them: the kubelet then
        refuses each pod that the scheduler sends there (UnexpectedAdmissionError)."""
        self.node(node).set_refusing(refuses)

    def break_registry(self) -> None:
        """Switch the image registry off: what a node has not pulled yet it can't get."""
        self.pids.end(control_plane.REGISTRY)

    def mend_registry(self) -> None:
        self._start(control_plane.REGISTRY)

    def stop_api_server(self) -> None:
        """End the API server; nodes, controllers and etcd run on."""
        self.pids.end(control_plane.API_SERVER)

    def start_api_server(self, timeout_seconds: float = 90) -> None:
        """Start the API server again, and wait until it is ready. Raises TimeoutError."""
        self._start(control_plane.API_SERVER)
        self.wait_for_api_server(timeout_seconds)

    def wait_for_api_server(self, timeout_seconds: float = 90) -> None:
        """Return when the API server is ready. Raises TimeoutError."""
        wait_for("the API server is ready", lambda: self.reader.text("/readyz"), timeout_seconds)

    def _start(self, component: str) -> None:
        running = self.pids.get(component)
        if running is None or not running.alive:
            control_plane.start(self.spec, self.pids, component)
