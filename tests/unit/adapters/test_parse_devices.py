"""What Kubernetes says of a pod's GPUs, as a 1.36 kubelet writes it, read into the snapshot."""

from typing import Any

import pytest

from kintsugi.adapters.kube.parse import instance
from kintsugi.core.snapshot import Device, Failed, Failure

NO_PAGE = Failed(Failure.NO_ADDRESS, "not asked", 0.0)
ENGINE = {"name": "engine", "resources": {"limits": {"nvidia.com/gpu": "4"}}}


def reported(*resources: tuple[str, str, Any]) -> dict[str, Any]:
    """A status whose engine container holds devices: (resource, id, health)."""
    said = [
        {"name": name, "resources": [{"resourceID": id_, "health": health}]}
        for name, id_, health in resources
    ]
    return {"containerStatuses": [{"name": "engine", "allocatedResourcesStatus": said}]}


@pytest.mark.parametrize(
    ("status", "devices"),
    [
        (
            reported(("nvidia.com/gpu", "GPU-0", "Unhealthy")),
            (Device("nvidia.com/gpu", "GPU-0", "Unhealthy"),),
        ),
        (
            reported(("nvidia.com/mig-1g.10gb", "MIG-1", "Healthy")),
            (Device("nvidia.com/mig-1g.10gb", "MIG-1", "Healthy"),),
        ),
        (reported(("claim:gpus/one", "GPU-3", "Unknown")), (Device("claim:gpus/one", "GPU-3", "Unknown"),)),
        (reported(("nvidia.com/gpu", "GPU-0", None)), (Device("nvidia.com/gpu", "GPU-0", "Unknown"),)),
        (reported(("nvidia.com/gpu", "GPU-0", "Sideways")), (Device("nvidia.com/gpu", "GPU-0", "Unknown"),)),
        (reported(("rdma/hca", "mlx5_0", "Unhealthy")), None),
        ({}, None),
        ({"containerStatuses": [{"name": "engine", "allocatedResourcesStatus": "odd"}]}, None),
    ],
)
def test_devices_are_what_kubernetes_says_of_the_gpus(status: dict[str, Any], devices: object) -> None:
    assert instance({"spec": {"containers": [ENGINE]}, "status": status}, NO_PAGE).devices == devices


def test_a_pod_without_gpus_has_no_devices_to_tell_of() -> None:
    got = instance({"spec": {"containers": [{"name": "engine", "image": "vllm:0.32"}]}}, NO_PAGE)
    assert (got.devices, got.image) == ((), "vllm:0.32")
