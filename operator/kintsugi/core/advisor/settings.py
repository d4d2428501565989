"""What is in force for one pool, as far as advice needs it, and which field says so."""

from dataclasses import dataclass
from typing import Final

from kintsugi.core.catalog.entities import Gpu, Model

ENGINE_DEFAULT: Final = "engine default"


@dataclass(frozen=True, slots=True)
class Setting:
    """A number in force. `origin`: the JSON path that says it, or `profile`, `recipe`, `engine default`."""

    value: float
    origin: str


@dataclass(frozen=True, slots=True)
class PoolSettings:
    """One pool as the manifest has it. None: nobody says it."""

    name: str
    path: str
    """Where the pool's own fields are: `spec.pools[1]`, or `spec` where no pool is named."""
    replicas: int
    replicas_path: str
    max_tokens: int | None
    sequences: Setting | None = None
    batched_tokens: Setting | None = None
    memory_utilization: Setting | None = None
    block_tokens: Setting | None = None
    model: Model | None = None
    gpu: Gpu | None = None

    def argument(self, field: str) -> str:
        """The path of a typed engine argument, to be set for this pool alone."""
        return f"{self.path}.engine.args.{field}"


def said_elsewhere(setting: Setting, path: str) -> str:
    """A half-sentence for a value that stands in free arguments, which would win over the typed field."""
    if ".extraArgs" in setting.origin and setting.origin != path:
        return f" Take it out of {setting.origin}, which would win."
    return ""


def unstated(name: str, instances: int) -> PoolSettings:
    """A pool of which only pages are known, no manifest: nobody says what is in force."""
    path = f"spec.pools[name={name}]" if name else "spec"
    return PoolSettings(
        name=name, path=path, replicas=instances, replicas_path=f"{path}.replicas", max_tokens=None
    )
