"""`status.capacity`: the planner's figures per pool, then the engines' own. It changes with the spec and with the first
page of a new revision, never from pass to pass.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kintsugi.api.capacity import MAX_AMOUNT, MAX_LENGTHS, CapacityStatus, PoolCapacity
from kintsugi.core.catalog.catalog import Catalog
from kintsugi.core.catalog.load import in_force
from kintsugi.core.page import PageReader, Target
from kintsugi.core.planner.finding import grouped
from kintsugi.core.planner.plan import plan
from kintsugi.core.planner.result import PoolPlan
from kintsugi.core.poolview import PoolView
from kintsugi.core.series import Signal
from kintsugi.core.snapshot import Page, Snapshot

REDUCED_PERCENT: Final = 5.0
"""A new revision with this much less KV cache than the one before is told."""
GRAVITY: Final = ("CapacityReduced", "DoesNotFit", "CannotPlan", "Planned", "Measured")
"""Gravest first: the reason of the whole is the first of these that a pool has."""
_SERIES: Final = "vllm:cache_config_info{"


@dataclass(frozen=True, slots=True)
class EngineKv:
    """The KV cache as one instance's page says it."""

    blocks: int
    """Of all engines on the page together."""
    engines: int
    block_size: int | None
    """The label: right where the model has one KV group; 4 on V4 (vllm-project/vllm#51163)."""


def capacity_after(
    before: CapacityStatus | None,
    snapshot: Snapshot,
    views: Iterable[PoolView],
    accepted: bool,
    catalog: Catalog | None = None,
) -> CapacityStatus | None:
    """The new value; `before` itself where nothing changed. A spec that is not accepted changes nothing."""
    if not accepted:
        return before
    views = tuple(views)
    generation = snapshot.deployment.metadata.generation
    known = {entry.name: entry for entry in before.pools} if before else {}
    plans: Mapping[str, PoolPlan] = {}
    current = before is not None and before.observed_generation == generation
    if not current or any(v.name not in known or known[v.name].revision != v.revision for v in views):
        plans = {p.name: p for p in plan(snapshot.deployment.spec, catalog)}
    pools = tuple(
        _measured(_entry(view, known.get(view.name), plans.get(view.name)), view, snapshot, catalog)
        for view in views
    )
    worst = min((_gravity(entry.reason) for entry in pools), default=len(GRAVITY) - 1)
    grave = [entry for entry in pools if _gravity(entry.reason) == worst and worst < GRAVITY.index("Planned")]
    after = CapacityStatus(
        observed_generation=generation,
        reason=GRAVITY[worst],
        message="; ".join(f"pool {entry.name}: {entry.message}" for entry in grave)[:1000],
        pools=pools,
    )
    return before if after == before else after


def engine_kv(text: str) -> EngineKv | None:
    """The KV cache that a `/metrics` page tells; None where it tells none.

    `num_gpu_blocks` is the sum over the engines of a server and stands the same on each engine's series
    (`vllm/v1/engine/core_client.py`); where the numbers differ they are each engine's own.
    """
    if _SERIES not in text:
        return None
    lines = [line for line in text.split("\n") if line.startswith(_SERIES)]
    by_engine = {
        target.rank: target
        for target in PageReader().read("\n".join((*lines, ""))).numbers
        if target.signal is Signal.CACHE_CONFIG
    }
    told = [blocks for target in by_engine.values() if (blocks := _count(target, "num_gpu_blocks"))]
    if not told:
        return None
    sizes = [_count(target, "block_size") for target in by_engine.values()]
    total = told[0] if len(set(told)) == 1 else sum(told)
    return EngineKv(total, len(by_engine), sizes[0])


def _count(target: Target, label: str) -> int | None:
    text = target.labels.get(label, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 and int(text) else None


def _entry(view: PoolView, old: PoolCapacity | None, made: PoolPlan | None) -> PoolCapacity:
    """The pool's entry for its wanted revision: as it was, or planned anew."""
    same = old is not None and old.revision == view.revision
    if old is not None and same and (made is None or old.basis == "Measured"):
        return old
    if made is None:
        return PoolCapacity(name=view.name, revision=view.revision)
    kv = made.kv
    unknown = [f for f in made.findings if f.rule == "CannotPlan"]
    errors = [f for f in made.findings if f.severity == "Error"]
    reason = "CannotPlan" if unknown else "DoesNotFit" if errors else "Planned"
    told = unknown or errors
    previous = (old.previous_kv_tokens if same else old.kv_tokens or old.previous_kv_tokens) if old else None
    return PoolCapacity.model_validate(
        {
            "name": view.name,
            "revision": view.revision,
            "fits": made.fits,
            "weights_bytes": _amount(made.weights.value) if made.weights else None,
            "planned_kv_tokens": _amount(kv.tokens.value) if kv else None,
            "previous_kv_tokens": previous,
            "max_context": kv.longest if kv else None,
            "concurrency": [
                {"tokens": tokens, "requests": _amount(figure.value)}
                for tokens, figure in (kv.concurrency[-MAX_LENGTHS:] if kv else ())
            ],
            "reason": reason,
            "message": told[0].message[:1000] if told else "",
        }
    )


def _measured(
    entry: PoolCapacity, view: PoolView, snapshot: Snapshot, catalog: Catalog | None
) -> PoolCapacity:
    """`entry` with the engines' own figures, where an instance of the revision tells them and nobody had."""
    if entry.basis == "Measured":
        return entry
    for instance in view.instances:
        if instance.revision != view.revision or not instance.ready or not isinstance(instance.scrape, Page):
            continue
        found = engine_kv(instance.scrape.text)
        if found is not None:
            model = (catalog or in_force()).model(snapshot.deployment.spec.model.id)
            fixed = model.kv.block_tokens if model and model.kv and model.block_sizes else None
            size = fixed or found.block_size
            return _with(entry, found.blocks, found.blocks * size if size else None)
    return entry


def _with(entry: PoolCapacity, blocks: int, tokens: int | None) -> PoolCapacity:
    planned, before = entry.planned_kv_tokens, entry.previous_kv_tokens
    update: dict[str, Any] = {
        "basis": "Measured",
        "kv_blocks": blocks,
        "kv_tokens": tokens,
        "reason": "Measured",
    }
    update["message"] = f"the engines have {grouped(tokens or 0)} tokens of KV cache" if tokens else ""
    if tokens is not None and planned:
        deviation = round(100 * (tokens - planned) / planned, 1)
        update["deviation_percent"] = deviation
        update["message"] += f", {deviation:+.1f} % of the {grouped(planned)} planned"
        update["concurrency"] = tuple(
            row.model_copy(update={"requests": _amount(row.requests * tokens / planned)})
            for row in entry.concurrency
        )
    if tokens is not None and before and tokens < before * (1 - REDUCED_PERCENT / 100):
        update["reason"] = "CapacityReduced"
        update["message"] = (
            f"the KV cache shrank from {grouped(before)} to {grouped(tokens)} tokens "
            f"({100 * (tokens - before) / before:+.1f} %) with revision {entry.revision}: fewer requests run at a time"
        )
    return entry.model_copy(update=update)


def _amount(number: float) -> int:
    """A whole number that the API takes: a slip in `extraArgs` must not cost the fleet its pass."""
    return max(0, min(int(number), MAX_AMOUNT))


def _gravity(reason: str) -> int:
    return GRAVITY.index(reason) if reason in GRAVITY else GRAVITY.index("Planned")
