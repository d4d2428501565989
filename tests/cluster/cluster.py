"""A real Kubernetes cluster on this machine: started, used, taken down without a trace."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from tests.cluster import audit, cgroups, configs, control_plane, forward, network, paths, storage
from tests.cluster.audit import Write
from tests.cluster.binaries import binaries
from tests.cluster.faults import Faults
from tests.cluster.kube import ApiReader, KubeAccess, wait_for
from tests.cluster.machine import Say, exclusive, require, silent
from tests.cluster.names import CONTROL_PLANE_IP, MAX_NODES, REGISTRY, check_name
from tests.cluster.pki import Authority
from tests.cluster.processes import PidFolder, Process, end, inside, this_process
from tests.cluster.spec import ClusterSpec, Owner, known, load
from tests.cluster.tiny_image import pause_image

START_SECONDS = 120.0
"""How long nodes may take; they are Ready after 5 s on an idle machine of two cores, after 20 s on a very busy one."""


_FAILED_KEPT = 5


class Cluster(KubeAccess, Faults):
    """A cluster that is up. Made by `Cluster.start` or `Cluster.attach`; as a context manager it ends in `down`."""

    def __init__(self, spec: ClusterSpec) -> None:
        folder = spec.folder
        super().__init__(folder / "kubeconfig", spec.names.context, Path(spec.binaries), folder / "clients")
        self.spec = spec
        self.pids = PidFolder(spec.folder / "pids")
        self.reader = ApiReader(self.kubeconfig)

    @classmethod
    def start(
        cls,
        name: str,
        *,
        nodes: int = 3,
        gpus_per_node: int = 2,
        node_silence_seconds: int | None = 15,
        audit_log: bool = False,
        keep: bool = False,
        say: Say = silent,
    ) -> Cluster:
        """A cluster of that name with all its nodes Ready, after 6 to 10 s; the first on a machine builds for minutes.

        What an earlier one of that name left is removed first, a kept one that is up included. With `keep` it outlives
        this process; without, the next start of any cluster ends it if this process is gone by then. A lost node is NotReady
        after `node_silence_seconds` and its pods are replaced 3 s later; None: after 50 s and 5 min. `audit_log`: every write request is
        recorded, see `audit_log`. If anything fails, or Ctrl-C comes, all is removed again. Raises Unsupported where
        the machine can't run clusters, RuntimeError if another process has one of that name, ValueError for a name or number that is not allowed.
        """
        check_name(name)
        if not 0 <= nodes <= MAX_NODES:
            raise ValueError(f"{nodes} nodes; 0 to {MAX_NODES} are possible")
        require(say)
        programs = binaries(say)
        sweep()
        with exclusive(paths.lock_of(name), leave=False):
            _refuse_if_in_use(name)
            remove(name)
            listener = forward.listen()
            us = this_process()
            spec = ClusterSpec(
                name=name,
                token=f"{paths.machine_mark()}{secrets.token_hex(2)}",
                nodes=nodes,
                gpus_per_node=gpus_per_node,
                node_silence_seconds=node_silence_seconds,
                audit=audit_log,
                binaries=str(programs),
                port=listener.getsockname()[1],
                owner=Owner(us.pid, us.started),
            )
            try:
                cluster = cls._make(spec, listener, say)
            except BaseException as trouble:
                kept = _keep_logs(spec)
                remove(name)
                trouble.add_note(f"the cluster's logs: {kept}")
                raise
            if keep:
                cluster.spec = replace(spec, owner=None)
                cluster.spec.save()
        return cluster

    @classmethod
    def _make(cls, spec: ClusterSpec, listener: socket.socket, say: Say) -> Self:
        with listener:
            storage.create(spec.folder)
            (spec.folder / "log").mkdir()
            spec.save()
            authority = control_plane.prepare(spec)
            network.create_control_plane(spec.names)
            cluster = cls(spec)
            log = spec.folder / "log" / "forward.log"
            cluster.pids.put("forward", forward.start(listener, spec.names.netns, CONTROL_PLANE_IP, 443, log))
        cluster._boot(authority, say)
        return cluster

    @classmethod
    def attach(cls, name: str) -> Cluster:
        """The cluster of that name that another command started. Raises LookupError if it is not up."""
        spec = load(name)
        if spec is None or not (spec.folder / "kubeconfig").exists():
            raise LookupError(f"no cluster {name!r} is up on this machine")
        return cls(spec)

    def _boot(self, authority: Authority, say: Say) -> None:
        control_plane.start(self.spec, self.pids, *control_plane.FIRST)
        pause = self.spec.folder / "pause.tar"
        pause.write_bytes(pause_image(configs.PAUSE_IMAGE))
        kube_proxy = configs.ControlPlaneFiles(self.spec.folder).kubeconfig_of("kube-proxy")
        for node in self.nodes:
            node.prepare(authority, kube_proxy, (pause,))
            node.boot()
        self.wait_for_api_server()
        control_plane.start(self.spec, self.pids, *control_plane.AFTER_API)
        for node in self.nodes:
            node.go()
        say(f"API server up; waiting for {self.spec.nodes} nodes")
        wait_for("all nodes Ready, with their GPUs", self._all_nodes_ready, START_SECONDS)
        account = "/api/v1/namespaces/default/serviceaccounts/default"
        wait_for("the default ServiceAccount", lambda: self.reader.text(account), 60)

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def access(self) -> KubeAccess:
        """The cluster, seen as any cluster is."""
        return self

    @property
    def kubeconfig_inside(self) -> Path:
        """For clients within the cluster's network, such as those of `run_inside`."""
        return self.spec.folder / "kubeconfig-inside"

    def writes(self, user: str | None = None) -> list[Write]:
        """The write requests so far, or those of one user; the cluster was started with `audit_log`."""
        return audit.writes(self.audit_log, user)

    @property
    def registry(self) -> str:
        """Host and port of the image registry, as nodes and `run_inside` know it."""
        return REGISTRY

    @property
    def audit_log(self) -> Path:
        """One JSON object a line for each write request, if the cluster was started with `audit_log`."""
        return configs.ControlPlaneFiles(self.spec.folder).audit_log

    def run_inside(
        self,
        argv: Sequence[str],
        *,
        input: str | None = None,
        check: bool = True,
        timeout_seconds: float | None = None,
        env: dict[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """`subprocess.run` of `argv` where pods and Services can be reached."""
        return subprocess.run(
            inside(self.spec.names.netns, argv),
            input=input,
            capture_output=True,
            text=True,
            check=check,
            timeout=timeout_seconds,
            env=env,
        )

    def popen_inside(self, argv: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """`subprocess.Popen` of `argv` where pods and Services can be reached; `terminate` reaches it directly."""
        return subprocess.Popen(inside(self.spec.names.netns, argv), **options)

    def expose(self, host: str, port: int) -> int:
        """A port on 127.0.0.1 that leads to a pod's or Service's address until the cluster is down."""
        listener = forward.listen()
        own: int = listener.getsockname()[1]
        log = self.spec.folder / "log" / "forward.log"
        self.pids.put(f"forward-{own}", forward.start(listener, self.spec.names.netns, host, port, log))
        return own

    def ready_nodes(self) -> list[str]:
        """The nodes that are Ready and offer as many GPUs as they have."""
        listed = self.reader.json("/api/v1/nodes") or {"items": []}
        return [n["metadata"]["name"] for n in listed["items"] if _is_ready(n, self.spec.gpus_per_node)]

    def _all_nodes_ready(self) -> bool:
        for name in self.pids.names():
            process = self.pids.get(name)
            if process is not None and not process.alive:
                raise RuntimeError(f"{name} ended while the cluster was starting")
        return len(self.ready_nodes()) == self.spec.nodes

    def down(self) -> None:
        """End the cluster and remove everything that it made on this machine."""
        with exclusive(paths.lock_of(self.name), leave=False):
            remove(self.name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.down()


def _is_ready(node: dict[str, Any], gpus: int) -> bool:
    status = node.get("status", {})
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions", []))
    return ready and int(status.get("allocatable", {}).get("nvidia.com/gpu", 0)) >= gpus


def _refuse_if_in_use(name: str) -> None:
    spec = load(name)
    if spec is None or spec.owner is None or spec.owner.pid == os.getpid():
        return
    if Process(spec.owner.pid, spec.owner.started).alive:
        raise RuntimeError(
            f"the cluster {name!r} belongs to process {spec.owner.pid}, which is still running"
        )


def _keep_logs(spec: ClusterSpec) -> Path:
    """Copy the logs of a start that failed to where its removal does not reach them; those of the last ones stay."""
    failed = paths.cache_root() / "failed"
    kept = failed / spec.name
    shutil.rmtree(kept, ignore_errors=True)
    kept.mkdir(parents=True)
    for old in sorted(failed.iterdir(), key=lambda folder: folder.stat().st_mtime)[:-_FAILED_KEPT]:
        shutil.rmtree(old, ignore_errors=True)
    for folder in (spec.folder, *(spec.node_folder(index) for index in range(1, spec.nodes + 1))):
        if (folder / "log").is_dir():
            shutil.copytree(folder / "log", kept / folder.relative_to(spec.folder), dirs_exist_ok=True)
    return kept


def remove(name: str) -> None:
    """Remove whatever runs of the cluster `name` have left: processes, namespaces, control groups, files.

    Needs no record that a killed run may not have written. Nothing happens if there is nothing.
    """
    pids = PidFolder(paths.state_dir(name) / "pids")
    end(pids.all())
    for netns in network.namespaces_of(name):
        network.remove(netns)
    cgroups.remove(cgroups.left_by(name, paths.machine_mark()))
    storage.remove(paths.state_dir(name))


def sweep() -> list[str]:
    """Remove the clusters whose owner is gone without having taken them down; returns their names."""
    swept = []
    for name in known():
        spec = load(name)
        if spec is None or spec.owner is None or Process(spec.owner.pid, spec.owner.started).alive:
            continue
        with exclusive(paths.lock_of(name), leave=False):
            if load(name) == spec:
                remove(name)
                swept.append(name)
    return swept
