"""The settings in force of every pool, read off the command that the operator would render for it."""

from kintsugi.api.effective import Pool, pools_of, scaled_pool
from kintsugi.api.spec import DeploymentSpec
from kintsugi.core.advisor.settings import ENGINE_DEFAULT, PoolSettings, Setting
from kintsugi.core.catalog.catalog import Catalog
from kintsugi.core.catalog.entities import EngineDefaults, Gpu, Model
from kintsugi.core.catalog.load import in_force
from kintsugi.core.catalog.version import version_of
from kintsugi.core.command.argument import Command
from kintsugi.core.command.number import share, whole
from kintsugi.core.command.render import engine_command


def settings_of(spec: DeploymentSpec, catalog: Catalog | None = None) -> tuple[PoolSettings, ...]:
    """One entry per pool, in the order written. `catalog` None: the one shipped."""
    catalog = catalog or in_force()
    model = catalog.model(spec.model.id)
    return tuple(_settings(spec, pool, index, catalog, model) for index, pool in enumerate(pools_of(spec)))


def _settings(
    spec: DeploymentSpec, pool: Pool, index: int, catalog: Catalog, model: Model | None
) -> PoolSettings:
    path = f"spec.pools[{index}]" if spec.pools else "spec"
    scaled = not spec.pools or (spec.replicas is not None and scaled_pool(spec) == pool.name)
    command = engine_command(spec, pool, catalog)
    gpu = _gpu(pool, catalog, model)
    version = version_of(pool.engine.image or catalog.default_image(model), pool.engine.version)
    defaults = catalog.engine_defaults(gpu, version) if pool.engine.runtime != "Native" else None
    return PoolSettings(
        name=pool.name,
        path=path,
        replicas=pool.replicas,
        replicas_path="spec.replicas" if scaled else f"{path}.replicas",
        max_tokens=pool.max_tokens,
        sequences=_whole(command, "--max-num-seqs", defaults.max_num_seqs if defaults else None),
        batched_tokens=_whole(
            command, "--max-num-batched-tokens", defaults.max_num_batched_tokens if defaults else None
        ),
        memory_utilization=_utilization(command, defaults),
        block_tokens=_whole(command, "--block-size", None),
        model=model,
        gpu=gpu,
    )


def _gpu(pool: Pool, catalog: Catalog, model: Model | None) -> Gpu | None:
    """The kind written, else the one of the recipe that fills the gap."""
    if pool.hardware.gpu:
        return catalog.gpu(pool.hardware.gpu)
    recipe = catalog.recipe(model, None) if model else None
    return catalog.gpu(recipe.gpu) if recipe else None


def _whole(command: Command, flag: str, default: int | None) -> Setting | None:
    """What the command says, else the engine's own default; None where neither is a number."""
    argument = command.get(flag)
    if argument is None:
        return None if default is None else Setting(default, ENGINE_DEFAULT)
    number = whole(argument.value)
    return None if number is None or number <= 0 else Setting(number, argument.origin)


def _utilization(command: Command, defaults: EngineDefaults | None) -> Setting | None:
    argument = command.get("--gpu-memory-utilization")
    if argument is None:
        return Setting(defaults.gpu_memory_utilization, ENGINE_DEFAULT) if defaults else None
    number = share(argument.value)
    return Setting(number, argument.origin) if number is not None and 0 < number <= 1 else None
