"""What a pool runs: the model, GPU, engine version and recipe that its command follows, and its parallel sizes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kintsugi.api.effective import Pool
from kintsugi.api.spec import DeploymentSpec, EngineArgs
from kintsugi.core.catalog.catalog import Catalog
from kintsugi.core.catalog.entities import Gpu, Model, Recipe
from kintsugi.core.catalog.load import in_force
from kintsugi.core.catalog.version import EngineVersion, version_of
from kintsugi.core.command.argument import Argument
from kintsugi.core.command.flags import root_of
from kintsugi.core.command.number import whole
from kintsugi.core.command.origin import Origins
from kintsugi.core.command.read import read_words

TENSOR: Final = "--tensor-parallel-size"
PIPELINE: Final = "--pipeline-parallel-size"
DATA: Final = "--data-parallel-size"
EXPERT: Final = "--enable-expert-parallel"
PARALLEL: Final = frozenset({TENSOR, PIPELINE, DATA, EXPERT})


@dataclass(frozen=True, slots=True)
class Parallel:
    """How one instance spreads over its GPUs."""

    tensor: int
    pipeline: int
    data: int
    gpus: int | None
    """On each node; 0 on the CPU, None where neither the user nor a recipe says."""
    nodes: int

    @property
    def total(self) -> int:
        """GPUs of the whole instance."""
        return (self.gpus or 0) * self.nodes

    @property
    def world(self) -> int:
        """GPUs that the engine's processes take."""
        return self.tensor * self.pipeline * self.data


@dataclass(frozen=True, slots=True)
class Choice:
    """Facts that a pool's command is made from. None: not known to the catalog."""

    catalog: Catalog
    model: Model | None
    gpu: Gpu | None
    version: EngineVersion | None
    recipe: Recipe | None
    parallel: Parallel
    extra: tuple[Argument, ...]
    """`extraArgs`, read."""

    def understood(self, flag: str) -> bool:
        """Whether the engine knows a flag, or a key inside one (`--attention-config.indexer_kv_dtype`).

        An unknown version counts as every version that can run the model.
        """
        root = root_of(flag)
        listed = self.catalog.known_flags(self.version) if self.version else None
        if listed is not None and root not in listed:
            return False
        oldest = self.version or (self.model.min_engine if self.model else None)
        changes = self.catalog.flag_changes(flag) if flag != root else ()
        for change in (*changes, *(self.catalog.flag_changes(root) if listed is None else ())):
            if change.added and (oldest is None or oldest < change.added):
                return False
            if change.removed and (self.version is None or self.version >= change.removed):
                return False
        return True


def choose(spec: DeploymentSpec, pool: Pool, catalog: Catalog | None = None) -> Choice:
    """What a pool runs; `catalog` None is the one in force."""
    catalog = catalog or in_force()
    model = catalog.model(spec.model.id)
    gpu = catalog.gpu(pool.hardware.gpu) if pool.hardware.gpu else _default_gpu(catalog, model)
    version = version_of(pool.engine.image or catalog.default_image(model, gpu), pool.engine.version)
    extra = extra_arguments(spec, pool, catalog, version)
    tensor, pipeline, data = (_said(pool, extra, flag) for flag in (TENSOR, PIPELINE, DATA))
    nodes = pool.hardware.nodes_per_instance or 1
    strategy = _strategy(pool, extra, data, nodes)
    gpus = pool.hardware.gpus_per_instance
    recipe = None
    if model and gpu:
        total = gpus * nodes if gpus else None
        recipe = catalog.recipe(model, gpu, version=version, strategy=strategy, gpus=total)
        recipe = recipe or catalog.recipe(model, gpu, version=version, gpus=total)
    if gpus is None and recipe:
        gpus = max(1, -(-recipe.gpus // nodes))
    limit = model.tensor_parallel_limit if model else None
    parallel = spread(gpus, nodes, tensor, pipeline, data, limit)
    return Choice(catalog, model, gpu, version, recipe, parallel, extra)


def gpus_of_instance(spec: DeploymentSpec, pool: Pool, catalog: Catalog | None = None) -> int | None:
    """GPUs of one instance on each of its nodes: what the user says, else the recipe's smallest known fit.

    0 runs on the CPU. None where neither says.
    """
    return choose(spec, pool, catalog).parallel.gpus


def extra_arguments(
    spec: DeploymentSpec, pool: Pool, catalog: Catalog, version: EngineVersion | None
) -> tuple[Argument, ...]:
    """The pool's `extraArgs`, read, each with the path of its first word."""
    path = Origins.of(spec, pool).path("engine", "extra_args")
    known = (catalog.known_flags(version) if version else None) or ()
    return read_words(pool.engine.extra_args, lambda index: f"{path}[{index}]", known)


def spread(
    gpus: int | None,
    nodes: int,
    tensor: int | None,
    pipeline: int | None,
    data: int | None,
    tensor_limit: int | None = None,
) -> Parallel:
    """The sizes that were said, and for the rest what fills the instance.

    One node: tensor parallel over what pipeline and data parallel leave. Several: tensor parallel inside a node,
    copies of the attention (data parallel) over the nodes, since a single KV head gains nothing from more tensor
    parallelism. A tensor parallel group never grows past `tensor_limit` by itself.
    """
    total = (gpus or 0) * nodes
    if not total:
        return Parallel(tensor or 1, pipeline or 1, data or 1, gpus, nodes)
    stages = pipeline or 1
    if tensor is None:
        room = max(1, total // (stages * (data or 1)))
        tensor = room if nodes == 1 or data else max(1, min(room, gpus or 1))
        if data is None and tensor_limit and tensor > tensor_limit and tensor % tensor_limit == 0:
            tensor = tensor_limit
        fills = True
    else:
        fills = nodes > 1
    if data is None:
        data = max(1, total // (tensor * stages)) if fills else 1
    return Parallel(tensor, stages, data, gpus, nodes)


def _strategy(pool: Pool, extra: Sequence[Argument], data: int | None, nodes: int) -> str | None:
    if (data or 1) > 1:
        return "dep"
    if _expert(pool, extra) is False:
        return "tp"
    return "dep" if nodes > 1 else None


def _expert(pool: Pool, extra: Sequence[Argument]) -> bool | None:
    found = [argument for argument in extra if argument.flag == EXPERT]
    if found:
        return (found[-1].value or "true").lower() != "false"
    return (pool.engine.args or EngineArgs()).enable_expert_parallel


def _said(pool: Pool, extra: Sequence[Argument], flag: str) -> int | None:
    """A size that the user gives: in `extraArgs`, which the engine reads last, else typed."""
    found = [number for argument in extra if argument.flag == flag and (number := whole(argument.value))]
    if found:
        return found[-1] if found[-1] > 0 else None
    value: int | None = getattr(pool.engine.args or EngineArgs(), flag[2:].replace("-", "_"))
    return value


def _default_gpu(catalog: Catalog, model: Model | None) -> Gpu | None:
    default = catalog.recipe(model, None) if model else None
    return catalog.gpu(default.gpu) if default and default.gpu else None
