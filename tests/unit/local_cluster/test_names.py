"""Names and addresses of clusters that run side by side must never meet."""

import ipaddress

import pytest

from tests.cluster.names import (
    CONTROL_PLANE_IP,
    MAX_NODES,
    POD_RANGE,
    ClusterNames,
    belongs_to,
    cgroup_prefix,
    check_name,
)


@pytest.mark.parametrize("name", ["a", "dev", "pytest-12345", "a-b-c", "x" * 32])
def test_a_plain_name_is_taken(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize("name", ["", "-a", "a-", "A", "a_b", "../etc", "a b", "x" * 33, "a\n"])
def test_a_name_that_could_meet_another_or_leave_its_folder_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="can't name a cluster"):
        check_name(name)


@pytest.mark.parametrize("other", ["a-node1", "a-b", "aa"])
def test_no_cluster_takes_the_namespaces_or_groups_of_one_whose_name_begins_alike(other: str) -> None:
    theirs = ClusterNames(other, "f00")
    assert not belongs_to(theirs.netns, "a")
    assert not belongs_to(theirs.node(1).netns, "a")
    assert not theirs.node(1).cgroup.startswith(cgroup_prefix("a"))


def test_a_cluster_knows_its_own_namespaces_and_groups() -> None:
    ours = ClusterNames("a", "f00")
    assert belongs_to(ours.netns, "a")
    assert belongs_to(ours.node(12).netns, "a")
    assert ours.node(12).cgroup.startswith(cgroup_prefix("a"))


def test_two_starts_of_one_name_have_different_groups() -> None:
    assert ClusterNames("a", "f00").node(1).cgroup != ClusterNames("a", "f01").node(1).cgroup


def test_all_nodes_have_addresses_of_their_own_inside_the_pods_range() -> None:
    nodes = [ClusterNames("a", "f00").node(index) for index in range(1, MAX_NODES + 1)]
    pods = [ipaddress.IPv4Network(node.pods) for node in nodes]
    assert len({node.ip for node in nodes} | {CONTROL_PLANE_IP}) == MAX_NODES + 1
    assert len(set(pods)) == MAX_NODES
    assert all(network.subnet_of(ipaddress.IPv4Network(POD_RANGE)) for network in pods)


def test_an_interface_name_fits_the_kernel_however_long_the_clusters_is() -> None:
    assert len(ClusterNames("x" * 32, "f00").node(MAX_NODES).veth) <= 15
