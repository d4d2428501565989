"""The first process of a node: makes its mounts, then starts and keeps up containerd, kubelet and the rest.

Run as `python -m tests.cluster.node_init FILE`, as process 1 of fresh mount, process and host-name namespaces. When it
is killed the kernel ends every process of the node with it, like a pulled plug.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.cluster.configs import CONTAINERD_SOCKET, KUBE_PROXY_FLAGS, NODE_ROOT
from tests.cluster.paths import REPOSITORY

GO_FILE = "go"
"""Its appearance says that the API server can be reached: a kubelet that fails to register waits ever longer."""

_KERNEL_SETTINGS = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}
"""What a kubelet sets (k8s.io/component-helpers/node/util/sysctl). These are the whole machine's: it is shown files
that already hold them, and the machine stays as it was."""


@dataclass(frozen=True, slots=True)
class NodeTask:
    """What the first process has to know; `folder` is the node's own, on the machine."""

    name: str
    ip: str
    folder: str
    binaries: str
    images: tuple[str, ...]
    gpus: int
    gpus_prefix: str

    def save(self, file: Path) -> None:
        file.write_text(json.dumps(asdict(self)))


def load_task(file: Path) -> NodeTask:
    found = json.loads(file.read_text())
    return NodeTask(**{**found, "images": tuple(found["images"])})


def commands(task: NodeTask) -> dict[str, list[str]]:
    """The daemons of a node by name."""
    root, programs = Path(NODE_ROOT), Path(task.binaries)
    found = {
        "containerd": ["containerd", "-c", f"{root}/containerd.toml"],
        "kube-proxy": [
            str(programs / "kube-proxy"),
            f"--kubeconfig={root}/kube-proxy.kubeconfig",
            f"--hostname-override={task.name}",
            *KUBE_PROXY_FLAGS,
        ],
        "kubelet": [
            str(programs / "kubelet"),
            f"--config={root}/kubelet.yaml",
            f"--kubeconfig={root}/kubelet.kubeconfig",
            f"--hostname-override={task.name}",
            f"--node-ip={task.ip}",
        ],
    }
    if task.gpus:
        found["gpus"] = [
            *(sys.executable, "-m", "tests.cluster.gpu_plugin"),
            *("/var/lib/kubelet/device-plugins", str(task.gpus), task.gpus_prefix, f"{root}/unhealthy"),
        ]
    return found


def _mounts(task: NodeTask) -> None:
    """Hide the machine's writable folders behind the node's own, so that nothing of it stays behind."""
    new_run = Path(task.folder) / "new-run"
    new_run.mkdir(exist_ok=True)
    _mount("-t", "tmpfs", "tmpfs", new_run)
    for folder in ("node", "netns", "kernel", "var/upper", "var/work"):
        (new_run / folder).mkdir(parents=True)
    _mount("--bind", task.folder, new_run / "node")
    _mount("--move", new_run, "/run")
    # Reads of /var go to the machine's, which may hold our interpreter; writes are gone with the node.
    _mount(
        "-t",
        "overlay",
        "-o",
        "lowerdir=/var,upperdir=/run/var/upper,workdir=/run/var/work",
        "overlay",
        "/var",
    )
    Path("/var/lib/kubelet").mkdir(parents=True, exist_ok=True)
    _mount("--bind", f"{NODE_ROOT}/kubelet", "/var/lib/kubelet")
    _mount("-t", "tmpfs", "tmpfs", "/dev/shm")
    for setting, value in _KERNEL_SETTINGS.items():
        shown, real = Path("/run/kernel") / setting.replace("/", "-"), Path("/proc/sys") / setting
        if real.exists():
            shown.write_text(f"{value}\n")
            _mount("--bind", shown, real)


def _mount(*arguments: str | Path) -> None:
    subprocess.run(["mount", "-n", *map(str, arguments)], check=True)


class _Daemons:
    """The node's daemons: each is started again a second after it ends, as an init system does."""

    def __init__(self, commands: dict[str, list[str]]) -> None:
        self._commands = commands
        self._running: dict[int, tuple[str, subprocess.Popen[bytes]]] = {}
        (Path(NODE_ROOT) / "pids").mkdir(exist_ok=True)
        (Path(NODE_ROOT) / "log").mkdir(exist_ok=True)

    def start(self, name: str) -> None:
        with (Path(NODE_ROOT) / "log" / f"{name}.log").open("ab") as log:
            child = subprocess.Popen(
                self._commands[name],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=REPOSITORY,
                start_new_session=True,
            )
        self._running[child.pid] = (name, child)
        (Path(NODE_ROOT) / "pids" / name).write_text(str(child.pid))

    def keep_up(self) -> None:
        """Collect every process of the node that ends, forever: orphans come to process 1."""
        while True:
            pid, status = os.waitpid(-1, 0)
            if pid in self._running:
                name, child = self._running.pop(pid)
                child.returncode = os.waitstatus_to_exitcode(status)
                print(f"{name} ended with {child.returncode}; starting it again", flush=True)
                time.sleep(1)
                self.start(name)


def _wait_for_containerd() -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with socket.socket(socket.AF_UNIX) as probe:
            if probe.connect_ex(CONTAINERD_SOCKET) == 0:
                return
        time.sleep(0.05)
    raise TimeoutError("containerd opened no socket in 60 s")


def _import_images(task: NodeTask) -> None:
    for image in task.images:
        subprocess.run(
            ["ctr", "-a", CONTAINERD_SOCKET, "-n", "k8s.io", "images", "import", image],
            check=True,
            timeout=120,
        )


def main(file: str) -> None:
    task = load_task(Path(file))
    socket.sethostname(task.name)
    _mounts(task)
    daemons = _Daemons(commands(task))
    daemons.start("containerd")
    _wait_for_containerd()
    _import_images(task)
    while not (Path(NODE_ROOT) / GO_FILE).exists():
        time.sleep(0.05)
    for name in commands(task):
        if name != "containerd":
            daemons.start(name)
    daemons.keep_up()


if __name__ == "__main__":
    main(sys.argv[1])
