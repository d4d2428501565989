"""etcd, API server, controllers, scheduler, registry and a kube-proxy, in one network namespace."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.cluster import configs, paths
from tests.cluster.configs import ControlPlaneFiles, Credentials
from tests.cluster.names import CONTROL_PLANE_IP, KUBERNETES_SERVICE_IP, SERVICE_RANGE
from tests.cluster.pki import Authority
from tests.cluster.processes import PidFolder, inside, spawn
from tests.cluster.spec import ClusterSpec

API_SERVER = "kube-apiserver"
REGISTRY = "registry"
FIRST = ("etcd", API_SERVER, REGISTRY)
"""What is started at once."""
_CLIENTS = ("kube-controller-manager", "kube-scheduler", "kube-proxy")
AFTER_API = (*_CLIENTS, "dns")
"""What gives up, or waits ever longer, where there is no API server yet."""

_FAST_EVICTION = (
    "--default-not-ready-toleration-seconds=3",
    "--default-unreachable-toleration-seconds=3",
)


def prepare(spec: ClusterSpec) -> Authority:
    """Write keys, kubeconfigs and configurations of the control plane, and the two kubeconfigs for people."""
    files = ControlPlaneFiles(spec.folder)
    authority = Authority(files.keys)
    authority.issue(
        API_SERVER,
        API_SERVER,
        addresses=(
            "127.0.0.1",
            KUBERNETES_SERVICE_IP,
            CONTROL_PLANE_IP,
            "localhost",
            "kubernetes.default.svc",
        ),
    )
    authority.issue("to-kubelets", "kube-apiserver-kubelet-client", organization="system:masters")
    authority.token_key()
    admin = Credentials(
        authority.certificate, *authority.issue("admin", "kintsugi-admin", organization="system:masters")
    )
    for name, server in (("kubeconfig", host_url(spec)), ("kubeconfig-inside", configs.api_server_url())):
        configs.write_private(spec.folder / name, configs.kubeconfig(spec.names.context, server, admin))
    for component in _CLIENTS:
        pair = Credentials(authority.certificate, *authority.issue(component, f"system:{component}"))
        text = configs.kubeconfig(spec.names.context, configs.api_server_url(), pair)
        configs.write_private(files.kubeconfig_of(component), text)
    files.audit_policy.write_text(configs.audit_policy())
    storage = paths.registry_root()
    storage.mkdir(parents=True, exist_ok=True)
    (spec.folder / "registry.yaml").write_text(configs.registry(storage))
    return authority


def host_url(spec: ClusterSpec) -> str:
    return f"https://127.0.0.1:{spec.port}"


def start(spec: ClusterSpec, pids: PidFolder, *components: str) -> None:
    for component in components:
        argv = inside(spec.names.netns, command_of(spec, component))
        pids.put(component, spawn(argv, spec.folder / "log" / f"{component}.log", cwd=paths.REPOSITORY))


def command_of(spec: ClusterSpec, component: str) -> list[str]:
    files = ControlPlaneFiles(spec.folder)
    programs = Path(spec.binaries)
    match component:
        case "etcd":
            return [str(programs / "etcd"), *_etcd(spec.folder / "etcd")]
        case "kube-apiserver":
            return [str(programs / API_SERVER), *_api_server(spec, files)]
        case "dns":
            return [sys.executable, "-m", "tests.cluster.dns", str(spec.folder / "kubeconfig-inside")]
        case "registry":
            return ["docker-registry", "serve", str(spec.folder / "registry.yaml")]
        case "kube-controller-manager":
            flags = _controller_manager(files, spec.node_silence_seconds)
        case "kube-scheduler":
            flags = [
                "--leader-elect=false",
                "--bind-address=127.0.0.1",
                "--authentication-skip-lookup=true",
                *_RATES,
            ]
        case "kube-proxy":
            # It waits half a minute for the Node that it says to be on, and the control plane has none.
            flags = [*configs.KUBE_PROXY_FLAGS, f"--hostname-override={spec.names.node(1).name}"]
        case _:
            raise ValueError(f"the control plane has no {component!r}")
    return [str(programs / component), f"--kubeconfig={files.kubeconfig_of(component)}", *flags]


_RATES = ("--kube-api-qps=1000", "--kube-api-burst=2000")
"""With the default of 20 a second, a new cluster's default ServiceAccounts take seconds longer."""


def _etcd(data: Path) -> list[str]:
    client, peer = "http://127.0.0.1:2379", "http://127.0.0.1:2380"
    return [
        f"--data-dir={data}",
        "--unsafe-no-fsync",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
    ]


def _api_server(spec: ClusterSpec, files: ControlPlaneFiles) -> list[str]:
    keys = files.keys
    flags = [
        "--etcd-servers=http://127.0.0.1:2379",
        "--bind-address=0.0.0.0",
        "--secure-port=443",
        f"--advertise-address={CONTROL_PLANE_IP}",
        f"--service-cluster-ip-range={SERVICE_RANGE}",
        f"--tls-cert-file={keys}/{API_SERVER}.crt",
        f"--tls-private-key-file={keys}/{API_SERVER}.key",
        f"--client-ca-file={keys}/ca.crt",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={keys}/tokens.pub",
        f"--service-account-signing-key-file={keys}/tokens.key",
        "--kubelet-preferred-address-types=InternalIP",
        f"--kubelet-client-certificate={keys}/to-kubelets.crt",
        f"--kubelet-client-key={keys}/to-kubelets.key",
        # Webhooks are then called at their pods' addresses.
        "--enable-aggregator-routing=true",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        "--profiling=false",
    ]
    if spec.node_silence_seconds is not None:
        flags += _FAST_EVICTION
    if spec.audit:
        flags += [f"--audit-policy-file={files.audit_policy}", f"--audit-log-path={files.audit_log}"]
        flags += ["--audit-log-maxsize=200", "--audit-log-maxbackup=1"]
    return flags


def _controller_manager(files: ControlPlaneFiles, silence: int | None) -> list[str]:
    monitoring = (
        () if silence is None else ("--node-monitor-period=1s", f"--node-monitor-grace-period={silence}s")
    )
    return [
        "--bind-address=127.0.0.1",
        "--leader-elect=false",
        "--use-service-account-credentials=true",
        f"--service-account-private-key-file={files.keys}/tokens.key",
        f"--root-ca-file={files.keys}/ca.crt",
        "--authentication-skip-lookup=true",
        f"--flex-volume-plugin-dir={files.folder}/volume-plugins",
        *_RATES,
        *monitoring,
    ]
