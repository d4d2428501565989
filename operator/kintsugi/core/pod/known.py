"""What the catalog says about the instance of one pool, as far as its pod depends on it."""

from kintsugi.api.effective import Pool
from kintsugi.api.spec import DeploymentSpec, HardwareSpec
from kintsugi.core.catalog.catalog import Catalog
from kintsugi.core.catalog.entities import Gpu
from kintsugi.core.command.choice import Choice, choose
from kintsugi.core.names import AMD_GPU_RESOURCE, GPU_RESOURCE


def gpus_of(spec: DeploymentSpec, pool: Pool, catalog: Catalog | None = None) -> int | None:
    """GPUs of one instance on each of its nodes; None where neither the user nor a recipe says."""
    if pool.hardware.gpus_per_instance is not None:
        return pool.hardware.gpus_per_instance
    return choose(spec, pool, catalog).parallel.gpus


def gpu_resource(hardware: HardwareSpec | None, gpu: Gpu | None) -> str:
    """The resource that stands for one GPU: as written, else what the vendor's device plugin calls it."""
    if hardware is not None and hardware.resource_name:
        return hardware.resource_name
    return vendors_resource(gpu)


def vendors_resource(gpu: Gpu | None) -> str:
    """Of an AMD GPU `amd.com/gpu`, of every other and of an unknown one `nvidia.com/gpu`: nodes' taints say the same."""
    return AMD_GPU_RESOURCE if gpu is not None and gpu.vendor == "AMD" else GPU_RESOURCE


def holds_model(pool: Pool, choice: Choice) -> bool:
    """Whether the instance's GPUs could hold the weights, as far as both are known; False for an unknown model.

    What can't hold them is a stand-in, a rehearsal or a mistake: it gets no requests that are sized for weights.
    """
    if choice.model is None or not choice.parallel.total:
        return False
    if choice.gpu is None:
        return pool.hardware.gpu is not None
    return choice.gpu.memory_bytes * choice.parallel.total >= choice.model.memory_floor_bytes
