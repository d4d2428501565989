"""The files that the programs of a cluster read: rendered from values, written by others."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.names import CONTROL_PLANE_IP, DOMAIN, REGISTRY, NodeNames

NODE_ROOT = "/run/node"
"""Where a node sees its own folder, whatever its path on the machine: Unix sockets allow no more than 107 letters."""

PAUSE_IMAGE = "docker.io/local/pause:1"
CONTAINERD_SOCKET = f"{NODE_ROOT}/run/containerd.sock"


@dataclass(frozen=True, slots=True)
class Credentials:
    """PEM files by which a client knows the server and shows who it is."""

    authority: Path
    certificate: Path
    key: Path


def kubeconfig(context: str, server: str, credentials: Credentials) -> str:
    """A kubeconfig with one context, which holds its keys inside, so that it can be copied anywhere."""

    def data(path: Path) -> str:
        return base64.b64encode(path.read_bytes()).decode()

    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": context,
                "cluster": {"server": server, "certificate-authority-data": data(credentials.authority)},
            }
        ],
        "users": [
            {
                "name": context,
                "user": {
                    "client-certificate-data": data(credentials.certificate),
                    "client-key-data": data(credentials.key),
                },
            }
        ],
        "contexts": [{"name": context, "context": {"cluster": context, "user": context}}],
        "current-context": context,
    }
    return yaml.safe_dump(document, sort_keys=False)


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner may read."""
    path.touch(mode=0o600)
    path.write_text(text)


def registry(storage: Path) -> str:
    return yaml.safe_dump(
        {
            "version": 0.1,
            "log": {"level": "warn"},
            "storage": {"filesystem": {"rootdirectory": str(storage)}, "delete": {"enabled": True}},
            "http": {"addr": REGISTRY},
        }
    )


def registry_hosts() -> str:
    """containerd's word for: this registry speaks plain HTTP."""
    return f'server = "http://{REGISTRY}"\n[host."http://{REGISTRY}"]\n  capabilities = ["pull", "resolve"]\n'


def containerd(node: NodeNames) -> str:
    cri = 'plugins."io.containerd.grpc.v1.cri"'
    return f"""version = 2
root = "{NODE_ROOT}/root"
state = "{NODE_ROOT}/run"
[grpc]
  address = "{CONTAINERD_SOCKET}"
[plugins."io.containerd.internal.v1.opt"]
  path = "{NODE_ROOT}/opt"
[{cri}]
  sandbox_image = "{PAUSE_IMAGE}"
  # Root may lack CAP_SYS_RESOURCE, without which no score can be set below one's own.
  restrict_oom_score_adj = true
  disable_apparmor = true
  netns_mounts_under_state_dir = true
  stream_server_address = "{node.ip}"
  [{cri}.containerd]
    # What was unpacked is not kept packed as well: a node's disk may be memory.
    discard_unpacked_layers = true
  [{cri}.containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [{cri}.containerd.runtimes.runc.options]
      SystemdCgroup = false
  [{cri}.registry]
    config_path = "{NODE_ROOT}/registries"
  [{cri}.cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{NODE_ROOT}/cni"
"""


def cni(node: NodeNames) -> str:
    """Pods of a node hang on a bridge of its own and reach all others by routes, without address translation."""
    bridge = {
        "type": "bridge",
        "bridge": "cni0",
        "isDefaultGateway": True,
        "ipMasq": False,
        "hairpinMode": True,
        "ipam": {"type": "host-local", "dataDir": f"{NODE_ROOT}/ipam", "ranges": [[{"subnet": node.pods}]]},
    }
    return json.dumps({"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge]})


def kubelet(node: NodeNames, node_silence_seconds: int | None) -> str:
    """The kubelet's configuration.

    A short lease makes a lost node known early; a heartbeat of 1 s makes its GPUs known early.
    """
    document: dict[str, Any] = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "failCgroupV1": False,
        "failSwapOn": False,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{node.cgroup}",
        "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
        "address": node.ip,
        "healthzPort": 0,
        "readOnlyPort": 0,
        "tlsCertFile": f"{NODE_ROOT}/node.crt",
        "tlsPrivateKeyFile": f"{NODE_ROOT}/node.key",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": False},
            "x509": {"clientCAFile": f"{NODE_ROOT}/ca.crt"},
        },
        "authorization": {"mode": "AlwaysAllow"},
        "resolvConf": "",
        "clusterDNS": [CONTROL_PLANE_IP],
        "clusterDomain": DOMAIN,
        "enforceNodeAllocatable": [],
        # The machine's disk is everybody's: a full one must not make the tests' nodes drop their pods.
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "volumeStatsAggPeriod": "-1s",
        "volumePluginDir": "/var/lib/kubelet/volume-plugins",
        "podLogsDir": f"{NODE_ROOT}/podlogs",
        "serializeImagePulls": False,
        "nodeStatusUpdateFrequency": "1s",
        "nodeStatusReportFrequency": "30s",
    }
    if node_silence_seconds is not None:
        document["nodeLeaseDurationSeconds"] = node_silence_seconds * 4 // 5
    return yaml.safe_dump(document, sort_keys=False)


def audit_policy() -> str:
    """One line for each write that was asked for, once it has been answered; nothing for reads."""
    writes = ["create", "update", "patch", "delete", "deletecollection"]
    return yaml.safe_dump(
        {
            "apiVersion": "audit.k8s.io/v1",
            "kind": "Policy",
            "omitStages": ["RequestReceived"],
            "rules": [{"level": "Metadata", "verbs": writes}, {"level": "None"}],
        }
    )


@dataclass(frozen=True, slots=True)
class ControlPlaneFiles:
    """Where the control plane's files lie, all below the cluster's folder."""

    folder: Path

    @property
    def keys(self) -> Path:
        return self.folder / "pki"

    @property
    def audit_policy(self) -> Path:
        return self.folder / "audit-policy.yaml"

    @property
    def audit_log(self) -> Path:
        return self.folder / "audit.log"

    def kubeconfig_of(self, component: str) -> Path:
        return self.folder / f"{component}.kubeconfig"


def api_server_url() -> str:
    return f"https://{CONTROL_PLANE_IP}:443"


KUBE_PROXY_FLAGS = (
    "--proxy-mode=nftables",
    "--cluster-cidr=10.244.0.0/17",
    # The machine's own connection tracking is not ours to size.
    "--conntrack-max-per-core=0",
    "--conntrack-tcp-timeout-established=0",
    "--conntrack-tcp-timeout-close-wait=0",
)
