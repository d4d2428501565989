"""What the programs of a cluster are told."""

import json
import ssl
import tomllib
from pathlib import Path

import pytest
import yaml

from tests.cluster import configs, control_plane
from tests.cluster.audit import writes
from tests.cluster.names import ClusterNames
from tests.cluster.node_init import NodeTask, commands, load_task
from tests.cluster.pki import Authority
from tests.cluster.spec import ClusterSpec, Owner

NODE = ClusterNames("a", "f00").node(2)


def spec(*, silence: int | None = None, audit: bool = False) -> ClusterSpec:
    return ClusterSpec("a", "f00", 3, 2, silence, audit, "/programs", 4711, Owner(1, 2))


def test_containerd_reads_its_configuration_and_uses_the_nodes_own_folders() -> None:
    document = tomllib.loads(configs.containerd(NODE))
    cri = document["plugins"]["io.containerd.grpc.v1.cri"]
    assert document["root"].startswith("/run/node/")
    assert len(document["grpc"]["address"]) < 108
    assert cri["stream_server_address"] == NODE.ip
    assert cri["restrict_oom_score_adj"] is True


def test_a_kubelet_keeps_its_pods_in_its_own_group_and_asks_the_clusters_dns() -> None:
    document = yaml.safe_load(configs.kubelet(NODE, 15))
    assert document["cgroupRoot"] == f"/{NODE.cgroup}"
    assert document["clusterDNS"] == ["10.244.255.254"]
    assert document["nodeLeaseDurationSeconds"] == 12


def test_a_cluster_that_was_not_asked_to_hurry_has_kubernetes_own_times() -> None:
    slow = spec()
    assert "nodeLeaseDurationSeconds" not in yaml.safe_load(configs.kubelet(NODE, None))
    assert not [flag for flag in control_plane.command_of(slow, "kube-apiserver") if "toleration" in flag]
    assert not [flag for flag in control_plane.command_of(slow, "kube-controller-manager") if "grace" in flag]


def test_an_early_notice_of_a_lost_node_comes_with_an_early_eviction() -> None:
    fast = spec(silence=15)
    assert "--default-unreachable-toleration-seconds=3" in control_plane.command_of(fast, "kube-apiserver")
    assert "--node-monitor-grace-period=15s" in control_plane.command_of(fast, "kube-controller-manager")


def test_writes_are_recorded_only_where_that_was_asked_for() -> None:
    assert not [flag for flag in control_plane.command_of(spec(), "kube-apiserver") if "audit" in flag]
    assert [
        flag for flag in control_plane.command_of(spec(audit=True), "kube-apiserver") if "audit-log" in flag
    ]


def test_the_audit_policy_records_every_kind_of_write_and_no_read() -> None:
    write, rest = yaml.safe_load(configs.audit_policy())["rules"]
    assert set(write["verbs"]) == {"create", "update", "patch", "delete", "deletecollection"}
    assert rest == {"level": "None"}


def test_the_record_tells_who_wrote_what_and_how_it_ended(tmp_path: Path) -> None:
    record = {
        "requestReceivedTimestamp": "2026-11-29T18:00:00.000000Z",
        "user": {"username": "system:serviceaccount:kintsugi:operator"},
        "verb": "create",
        "objectRef": {"resource": "pods", "subresource": "eviction", "namespace": "llm", "name": "a"},
        "responseStatus": {"code": 429},
    }
    other = {
        **record,
        "user": {"username": "admin"},
        "objectRef": {"resource": "nodes"},
        "responseStatus": {},
    }
    log = tmp_path / "audit.log"
    log.write_text(f"{json.dumps(record)}\n{json.dumps(other)}\n" + '{"half a li')
    (evicted,) = writes(log, "system:serviceaccount:kintsugi:operator")
    assert (evicted.resource, evicted.namespace, evicted.name, evicted.code) == (
        "pods/eviction",
        "llm",
        "a",
        429,
    )
    assert [write.resource for write in writes(log)] == ["pods/eviction", "nodes"]


def test_an_unknown_component_is_refused() -> None:
    with pytest.raises(ValueError, match="kube-dns"):
        control_plane.command_of(spec(), "kube-dns")


def test_no_node_exists_beyond_those_that_were_asked_for() -> None:
    with pytest.raises(ValueError, match="1 to 3"):
        spec().node(4)


def test_a_nodes_first_process_reads_back_what_it_was_given(tmp_path: Path) -> None:
    task = NodeTask("node1", "10.244.255.1", "/n1", "/programs", ("/pause.tar",), 2, "GPU-node1-")
    task.save(tmp_path / "task.json")
    assert load_task(tmp_path / "task.json") == task


def test_a_node_without_gpus_runs_no_driver() -> None:
    task = NodeTask("node1", "10.244.255.1", "/n1", "/programs", (), 0, "GPU-node1-")
    assert set(commands(task)) == {"containerd", "kubelet", "kube-proxy"}


def test_a_kubeconfig_holds_all_that_a_client_needs_and_its_keys_fit(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair = configs.Credentials(
        authority.certificate, *authority.issue("admin", "me", organization="system:masters")
    )
    document = yaml.safe_load(configs.kubeconfig("kintsugi-a", "https://127.0.0.1:1", pair))
    assert document["current-context"] == "kintsugi-a"
    assert document["clusters"][0]["cluster"]["server"] == "https://127.0.0.1:1"
    ssl.create_default_context(cafile=str(authority.certificate)).load_cert_chain(*pair_files(pair))


def pair_files(pair: configs.Credentials) -> tuple[str, str]:
    return str(pair.certificate), str(pair.key)


def test_keys_are_readable_by_their_owner_alone(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "pki")
    authority.issue("admin", "me")
    authority.token_key()
    assert {key.stat().st_mode & 0o777 for key in (tmp_path / "pki").glob("*.key")} == {0o600}
