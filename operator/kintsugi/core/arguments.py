"""The engine's command line as words; see `kintsugi.core.command`."""

from kintsugi.api.effective import Pool
from kintsugi.api.spec import DeploymentSpec
from kintsugi.core.command.render import engine_command, model_path, served_names

__all__ = ["engine_arguments", "model_path", "served_names"]


def engine_arguments(spec: DeploymentSpec, pool: Pool) -> list[str]:
    """The container's `args`, in a stable order; `extraArgs` follow byte for byte."""
    return engine_command(spec, pool).words()
