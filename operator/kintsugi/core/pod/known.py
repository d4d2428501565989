"""What the catalog knows about one pool: its model, its GPUs, and the recipe that decides what nobody wrote."""

from dataclasses import dataclass

from kintsugi.api.effective import Pool
from kintsugi.api.spec import DeploymentSpec
from kintsugi.core.catalog.catalog import Catalog
from kintsugi.core.catalog.load import builtin
from kintsugi.core.catalog.types import Gpu, Model, Recipe
from kintsugi.core.catalog.version import version_of


@dataclass(frozen=True, slots=True)
class Known:
    """Each part is None where the catalog does not know it."""

    model: Model | None
    gpu: Gpu | None
    """The kind that was named, or the recipe's own where none was."""
    recipe: Recipe | None
    gpus: int | None
    """GPUs of one instance on each of its nodes: as written, else the recipe's."""
    nodes: int

    @property
    def holds_model(self) -> bool:
        """Whether the instance's GPUs could hold the weights, as far as both are known; False for an unknown model.

        What can't hold them is a stand-in, a rehearsal or a mistake: it gets no requests sized for weights.
        """
        if self.model is None or not self.gpus:
            return False
        if self.gpu is None:
            return True
        return self.gpu.memory_bytes * self.gpus * self.nodes >= self.model.memory_floor_bytes


def known_of(spec: DeploymentSpec, pool: Pool, catalog: Catalog | None = None) -> Known:
    """What is known about `pool`; `catalog` None is the one that is shipped."""
    catalog = catalog or builtin()
    model = catalog.model(spec.model.id)
    named = catalog.gpu(pool.hardware.gpu) if pool.hardware.gpu else None
    written = pool.hardware.gpus_per_instance
    recipe = None
    if model is not None and (named is not None or pool.hardware.gpu is None):
        version = version_of(pool.engine.image, pool.engine.version)
        recipe = catalog.recipe(model, named, version=version, gpus=written or None)
    gpu = named
    if gpu is None and pool.hardware.gpu is None and recipe is not None:
        gpu = catalog.gpu(recipe.gpu)
    gpus = written if written is not None else (recipe.gpus if recipe else None)
    return Known(model, gpu, recipe, gpus, pool.hardware.nodes_per_instance or 1)


def gpus_of(spec: DeploymentSpec, pool: Pool, catalog: Catalog | None = None) -> int | None:
    """GPUs of one instance on each of its nodes; None where neither the user nor a recipe says."""
    if pool.hardware.gpus_per_instance is not None:
        return pool.hardware.gpus_per_instance
    return known_of(spec, pool, catalog).gpus
