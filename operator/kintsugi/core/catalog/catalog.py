"""What is known about models, GPUs and engine releases, and the questions asked of it. An unknown name is None."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from kintsugi.core.catalog.compose import composed
from kintsugi.core.catalog.types import (
    Addition,
    EngineDefaults,
    FlagChange,
    Gpu,
    MetricChange,
    Model,
    Recipe,
)
from kintsugi.core.catalog.version import EngineVersion

DEFAULT_STRATEGY: Final = "tep"
_CACHE_FOLDER: Final = re.compile(r"models--(.+?)--(.+)")
_VENDOR_WORDS: Final = ("nvidia", "amd")
_LONGEST_NAME: Final = 1024


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

    def model(self, model_id: str) -> Model | None:
        """The checkpoint of a hub id, a mirror's id, a path or a folder of the hub's cache; None where unknown."""
        wanted = model_id.strip().lower()[:_LONGEST_NAME]
        exact = next((model for model in self.models if model.id.lower() == wanted), None)
        return exact or next(
            (m for part in _last_parts(wanted) for m in self.models if _last(m.id) == part), None
        )

    def gpu(self, name: str) -> Gpu | None:
        """The GPU of a name, an alias or a `nvidia.com/gpu.product` label, however spelled; None where unknown."""
        wanted = _plain(name[:_LONGEST_NAME])
        found = next((gpu for gpu in self.gpus if wanted in _spellings(gpu)), None)
        if found is None and (vendor := next((v for v in _VENDOR_WORDS if wanted.startswith(v)), None)):
            return next((gpu for gpu in self.gpus if wanted[len(vendor) :] in _spellings(gpu)), None)
        return found

    def recipe(
        self,
        model: Model,
        gpu: Gpu | None,
        *,
        version: EngineVersion | None = None,
        strategy: str | None = None,
        gpus: int | None = None,
    ) -> Recipe | None:
        """The arguments for `gpus` GPUs (None: the smallest known fit) by a strategy (None: `tep`, else what there is).

        `gpu` None: the default recipe of the model's size. None where nobody has published a way to run the model
        on that generation. An unknown `version` gets what the newest known release takes.
        """
        fits = [r for r in self.recipes if (r.family, r.size) == (model.family, model.size)]
        if gpu is None:
            fits = [r for r in fits if r.gpu]
            gpu = self.gpu(fits[0].gpu) if fits else None
        else:
            fits = [r for r in fits if gpu.generation in r.generations]
        chosen = _by_strategy(fits, strategy)
        if chosen is None or gpu is None:
            return None
        return composed(chosen, self.additions, model, gpu, version, gpus)

    def flag_changes(self, flag: str) -> tuple[FlagChange, ...]:
        """What happened to a flag, canonical spelling."""
        return tuple(change for change in self.flags if change.flag == flag)

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

    def default_image(self, model: Model | None = None) -> str:
        """The image for a deployment that names none; the same for every model so far."""
        return self.image


def _by_strategy(fits: Iterable[Recipe], strategy: str | None) -> Recipe | None:
    found = {recipe.strategy: recipe for recipe in reversed(list(fits))}
    if strategy is not None:
        return found.get(strategy)
    return found.get(DEFAULT_STRATEGY) or next(iter(found.values()), None)


def _last(model_id: str) -> str:
    return model_id.rpartition("/")[2].lower()


def _last_parts(wanted: str) -> list[str]:
    """What may be the checkpoint's own name: the folder of the hub's cache, else the last part of a path."""
    parts = [part for part in re.split(r"[/\\]", wanted) if part]
    cached = [found[2] for part in parts if (found := _CACHE_FOLDER.fullmatch(part))]
    return cached or parts[-1:]


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _spellings(gpu: Gpu) -> set[str]:
    return {_plain(name) for name in (gpu.name, *gpu.aliases)} - {""}
