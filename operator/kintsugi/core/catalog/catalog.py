"""What is known about models, GPUs and engine releases, and the questions asked of it. An unknown name is None."""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from kintsugi.core.catalog.compose import composed, covers
from kintsugi.core.catalog.entities import (
    Addition,
    EngineDefaults,
    FlagChange,
    Gpu,
    MetricChange,
    Model,
    Recipe,
)
from kintsugi.core.catalog.version import EngineVersion

_STRATEGY_PREFIX: Final = "single_node_"
"""vLLM's recipes name their strategies so."""
_SHARED: Final = "shared"
"""Behind a GPU's product label where its node shares it by time."""
_CACHE_FOLDER: Final = re.compile(r"models--(.+?)--(.+)")
_VENDOR_WORDS: Final = ("nvidia", "amd")
_LONGEST_NAME: Final = 1024
WHEELS: Final = ("vLLM's wheels, read by .ci/engine_flags.py",)


@dataclass(frozen=True, slots=True)
class Catalog:
    """Immutable; a user's file makes another one (`load.extended`)."""

    models: tuple[Model, ...]
    gpus: tuple[Gpu, ...]
    flags: tuple[FlagChange, ...]
    recipes: tuple[Recipe, ...]
    additions: tuple[Addition, ...]
    metrics: tuple[MetricChange, ...]
    defaults: tuple[EngineDefaults, ...]
    releases: tuple[tuple[EngineVersion, frozenset[str]], ...]
    """The flags of `vllm serve` by release, canonical spelling, without `--no-…` forms."""
    image: str
    rocm_image: str

    def model(self, model_id: str) -> Model | None:
        """The checkpoint of a hub id, a mirror's id, a path or a folder of the hub's cache; None where unknown."""
        wanted = model_id.strip().lower()[:_LONGEST_NAME]
        exact = next((model for model in self.models if model.id.lower() == wanted), None)
        return exact or next(
            (m for part in _last_parts(wanted) for m in self.models if _last(m.id) == part), None
        )

    def gpu(self, name: str) -> Gpu | None:
        """The GPU of a name, an alias or a `nvidia.com/gpu.product` label, however spelled; None where unknown."""
        wanted = _plain(name[:_LONGEST_NAME]).removesuffix(_SHARED)
        spellings = {wanted, *(wanted.removeprefix(vendor) for vendor in _VENDOR_WORDS)} - {""}
        return next((g for g in self.gpus if spellings & _spellings((g.name, *g.aliases))), None)

    def recipe(
        self,
        model: Model,
        gpu: Gpu | None,
        *,
        version: EngineVersion | None = None,
        strategy: str | None = None,
        gpus: int | None = None,
    ) -> Recipe | None:
        """The arguments for `gpus` GPUs (None: the smallest known fit) by a strategy (None: the first published).

        `gpu` None: the default recipe of the model's size. None where nobody has published a way to run the model
        on that kind of GPU. An unknown `version` gets what the newest known release takes.
        """
        fits = [r for r in self.recipes if (r.family, r.size) == (model.family, model.size)]
        if gpu is None:
            usual = (self.gpu(r.gpu) for r in fits if r.gpu)
            gpu = next((kind for kind in usual if kind and self.runs(model, kind)), None)
        if gpu is None or not self.runs(model, gpu):
            return None
        wanted = None if strategy is None else strategy.removeprefix(_STRATEGY_PREFIX)
        chosen = next((r for r in fits if covers(r.generations, gpu) and wanted in (None, r.strategy)), None)
        return composed(chosen, self.additions, model, gpu, version, gpus) if chosen else None

    def runs(self, model: Model, gpu: Gpu) -> bool:
        """False where the model is known not to run on that kind of GPU."""
        capable = not model.compute_capabilities or gpu.compute_capability is None
        capable = capable or (gpu.compute_capability or (0, 0))[0] in model.compute_capabilities
        return capable and gpu.name not in model.unsupported_gpus

    def flag_changes(self, flag: str) -> tuple[FlagChange, ...]:
        """What happened to a flag, canonical spelling: as told, else as the lists of flags show."""
        told = tuple(change for change in self.flags if change.flag == flag)
        return told or _seen_changes(flag, self.releases)

    def known_flags(self, version: EngineVersion) -> frozenset[str] | None:
        """Every flag of `vllm serve` in that release; None where its list is not known."""
        return dict(self.releases).get(version)

    def engine_defaults(self, gpu: Gpu | None, version: EngineVersion | None = None) -> EngineDefaults | None:
        """What the engine takes on that GPU where nothing is said; None for an unknown GPU."""
        if gpu is None:
            return None
        fitting = [
            d
            for d in self.defaults
            if gpu.memory_bytes >= d.memory_bytes
            and gpu.name not in d.excluded_gpus
            and (version is None or d.since <= version)
        ]
        return max(fitting, key=lambda d: (d.since, d.memory_bytes), default=None)

    def default_image(self, model: Model | None = None, gpu: Gpu | None = None) -> str:
        """The image for a deployment that names none: the same for every model, another one on AMD."""
        return self.rocm_image if gpu and gpu.vendor == "AMD" else self.image


def _seen_changes(
    flag: str, releases: tuple[tuple[EngineVersion, frozenset[str]], ...]
) -> tuple[FlagChange, ...]:
    """One change for a flag that some of the known releases have and others don't."""
    having = [index for index, (_, flags) in enumerate(releases) if flag in flags]
    if not having:
        return ()
    first, last = having[0], having[-1]
    added = releases[first][0] if first > 0 else None
    removed = releases[last + 1][0] if last + 1 < len(releases) else None
    return (FlagChange(flag, added, removed, None, WHEELS),) if added or removed else ()


def _last(model_id: str) -> str:
    return model_id.rpartition("/")[2].lower()


def _last_parts(wanted: str) -> list[str]:
    """What may be the checkpoint's own name: the folder of the hub's cache, else the last part of a path."""
    parts = [part for part in re.split(r"[/\\]", wanted) if part]
    cached = [found[2] for part in parts if (found := _CACHE_FOLDER.fullmatch(part))]
    return cached or parts[-1:]


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


@lru_cache(maxsize=1024)
def _spellings(names: tuple[str, ...]) -> frozenset[str]:
    return frozenset(_plain(name) for name in names) - {""}
