"""What is planned: a pool's model, hardware and settings, looked up once."""

import math
from dataclasses import dataclass

from kintsugi.api.effective import Pool
from kintsugi.api.spec import DeploymentSpec
from kintsugi.core.catalog.catalog import Catalog
from kintsugi.core.catalog.entities import Gpu, Model, Recipe
from kintsugi.core.catalog.version import EngineVersion
from kintsugi.core.command.choice import choose
from kintsugi.core.command.origin import Origins
from kintsugi.core.command.render import engine_command
from kintsugi.core.planner.settings import Settings, read_settings


@dataclass(frozen=True, slots=True)
class Subject:
    """One pool with everything that the arithmetic needs. None: the catalog does not know it."""

    pool: Pool
    origins: Origins
    model_id: str
    allowed: frozenset[str]
    """Rules whose errors the user has made warnings."""
    settings: Settings
    model: Model | None
    gpu: Gpu | None
    version: EngineVersion | None
    recipe: Recipe | None
    gpus_per_node: int | None
    nodes: int

    @property
    def gpus(self) -> int:
        """Of one instance."""
        return (self.gpus_per_node or 0) * self.nodes

    @property
    def context(self) -> int | None:
        """Tokens that the engine is told to take at most: its own flag, else the model's."""
        longest = self.model.max_context if self.model else None
        told = self.settings.max_model_len
        return told if longest is None else min(told or longest, longest)

    @property
    def verified(self) -> bool:
        """Whether recipes call this model verified on this GPU."""
        pair = f"{self.model.family}/{self.model.size}" if self.model else ""
        return self.gpu is not None and pair in self.gpu.verified_with

    def path(self, flag: str, *names: str) -> str:
        """The field that says `flag`, else where the user would write it."""
        return self.settings.origin(flag, self.origins.path(*names))


def subject_of(spec: DeploymentSpec, pool: Pool, catalog: Catalog) -> Subject:
    """Look one pool up."""
    choice = choose(spec, pool, catalog)
    command = engine_command(spec, pool, catalog)
    return Subject(
        pool=pool,
        origins=Origins.of(spec, pool),
        model_id=spec.model.id,
        allowed=frozenset(spec.validation.allow),
        settings=read_settings(command, choice.model, choice.gpu, choice.version, catalog),
        model=choice.model,
        gpu=choice.gpu,
        version=choice.version,
        recipe=choice.recipe,
        gpus_per_node=choice.parallel.gpus,
        nodes=choice.parallel.nodes,
    )


def nominal_gigabytes(gpu: Gpu) -> int:
    """What the GPU is sold as: 80 for one whose driver reports 79.6 GiB, as recipes count."""
    return math.ceil(gpu.memory_bytes / 2**30)
