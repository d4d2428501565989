"""One node, seen from the machine: booted, switched off, its cable pulled, its processes reached."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.cluster import cgroups, configs, network
from tests.cluster.configs import CONTAINERD_SOCKET, NODE_ROOT, Credentials
from tests.cluster.gpu_plugin import REFUSE
from tests.cluster.names import REGISTRY, NodeNames
from tests.cluster.node_init import GO_FILE, NodeTask
from tests.cluster.paths import REPOSITORY
from tests.cluster.pki import Authority
from tests.cluster.processes import PidFolder, command, inside, spawn
from tests.cluster.spec import ClusterSpec


@dataclass(frozen=True, slots=True)
class Node:
    """Node `index` of the cluster that `spec` describes; `pids` is where the cluster keeps its processes."""

    spec: ClusterSpec
    index: int
    pids: PidFolder

    @property
    def names(self) -> NodeNames:
        return self.spec.node(self.index)

    @property
    def folder(self) -> Path:
        return self.spec.node_folder(self.index)

    def prepare(self, authority: Authority, kube_proxy: Path, images: tuple[Path, ...]) -> None:
        """Write all that the node reads. `kube_proxy` is the kubeconfig that all kube-proxies use."""
        names, folder = self.names, self.folder
        for made in ("kubelet", "root", "cni", f"registries/{REGISTRY}"):
            (folder / made).mkdir(parents=True)
        certificate, key = authority.issue(
            names.name,
            f"system:node:{names.name}",
            organization="system:nodes",
            addresses=(names.ip, names.name),
        )
        for source, target in (
            (certificate, "node.crt"),
            (key, "node.key"),
            (authority.certificate, "ca.crt"),
        ):
            shutil.copy(source, folder / target)
        shutil.copy(kube_proxy, folder / "kube-proxy.kubeconfig")
        own = Credentials(authority.certificate, certificate, key)
        text = configs.kubeconfig(self.spec.names.context, configs.api_server_url(), own)
        configs.write_private(folder / "kubelet.kubeconfig", text)
        (folder / "kubelet.yaml").write_text(configs.kubelet(names, self.spec.node_silence_seconds))
        (folder / "containerd.toml").write_text(configs.containerd(names))
        (folder / "cni" / "10-pods.conflist").write_text(configs.cni(names))
        (folder / "registries" / REGISTRY / "hosts.toml").write_text(configs.registry_hosts())
        NodeTask(
            name=names.name,
            ip=names.ip,
            folder=str(folder),
            binaries=self.spec.binaries,
            images=tuple(map(str, images)),
            gpus=self.spec.gpus_per_node,
            gpus_prefix=names.gpus_prefix,
        ).save(folder / "task.json")

    def boot(self) -> None:
        """Start the node; its kubelet waits for `go`."""
        network.create_node(self.spec.names, self.names, self.spec.nodes)
        cgroups.create(self.names.cgroup)
        new = ["unshare", "--mount", "--pid", "--uts", "--fork", "--kill-child", "--mount-proc"]
        first = [sys.executable, "-m", "tests.cluster.node_init", str(self.folder / "task.json")]
        process = spawn(
            inside(self.names.netns, [*new, *first]),
            self.spec.folder / "log" / f"{self.names.name}.log",
            cwd=REPOSITORY,
        )
        self.pids.put(self.names.name, process)

    def go(self) -> None:
        """Let the kubelet start: the API server can be reached."""
        (self.folder / GO_FILE).touch()

    def power_off(self) -> None:
        """End everything on the node at once. What a reboot finds on its disk stays: images, and the kubelet's folder."""
        self.pids.end(self.names.name)
        network.remove(self.names.netns)
        for volatile in ("run", "pids"):
            shutil.rmtree(self.folder / volatile, ignore_errors=True)
        cgroups.remove(
            [
                group
                for group in cgroups.left_by(self.spec.name, self.spec.token)
                if group.name == self.names.cgroup
            ]
        )

    def run(self, argv: Sequence[str]) -> str:
        """The output of `argv`, run on the node. Raises RuntimeError if it fails or the node is off."""
        into = ["nsenter", f"--target={self._first_process()}", "--mount", "--uts", "--net", "--pid"]
        return command([*into, *argv])

    def signal(self, daemon: str, number: int) -> None:
        """Send a signal to `daemon`: kubelet, containerd, kube-proxy or gpus."""
        pid = (self.folder / "pids" / daemon).read_text()
        self.run(["kill", f"-{number}", pid])

    def container_pid(self, container_id: str) -> int:
        """The first process of a container, by the node's own count. Raises RuntimeError if it does not run."""
        tasks = self.run(["ctr", "-a", CONTAINERD_SOCKET, "-n", "k8s.io", "tasks", "list"])
        for line in tasks.splitlines():
            name, pid, state = line.split()
            if name == container_id and state == "RUNNING":
                return int(pid)
        raise RuntimeError(f"{self.names.name} runs no container {container_id}")

    def set_unhealthy(self, gpus: Sequence[int]) -> None:
        """Make the driver call exactly these GPUs unhealthy; they are counted from 0."""
        wrong = [gpu for gpu in gpus if not 0 <= gpu < self.spec.gpus_per_node]
        if wrong:
            raise ValueError(
                f"{self.names.name} has the GPUs 0 to {self.spec.gpus_per_node - 1}, not {wrong}"
            )
        self._tell_driver([*map(str, gpus), *([REFUSE] if REFUSE in self._told_driver() else [])])

    def unhealthy(self) -> list[int]:
        return [int(word) for word in self._told_driver() if word.isdigit()]

    def set_refusing(self, refuses: bool) -> None:
        """Whether the driver gives no GPU to any new container, though it goes on offering them."""
        self._tell_driver([*map(str, self.unhealthy()), *([REFUSE] if refuses else [])])

    def _told_driver(self) -> list[str]:
        file = self.folder / "unhealthy"
        return file.read_text().split() if file.exists() else []

    def _tell_driver(self, words: Sequence[str]) -> None:
        new = self.folder / ".unhealthy.new"
        new.write_text(" ".join(words))
        new.rename(self.folder / "unhealthy")

    @property
    def is_on(self) -> bool:
        process = self.pids.get(self.names.name)
        return process is not None and process.alive

    def _first_process(self) -> int:
        process = self.pids.get(self.names.name)
        if process is None or not process.alive:
            raise RuntimeError(f"{self.names.name} is switched off")
        return psutil.Process(process.pid).children()[0].pid

    @property
    def logs(self) -> str:
        """Where this node's daemons write, for a person to look."""
        return f"{self.folder}/log (inside: {NODE_ROOT}/log)"
