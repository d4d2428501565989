"""Measures the block pool in the engine core: which requests live, when to look, and what a sample says."""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence, Sized
from typing import Any, Final

from kintsugi_engine import clock
from kintsugi_engine.telemetry.blocks import Group, Holding, Orphans, Pool, census
from kintsugi_engine.telemetry.prefill import PrefillCount

_LOG: Final = logging.getLogger("vllm.kintsugi")

SHORTEST: Final = 1.0
"""Seconds between two looks at a pool that is quick to count, and between two samples of what is counted anyway."""

SHARE: Final = 1 / 500
"""Share of time that looking may take: a look waits until 500 times what the last one cost has passed."""

IDLE_PERIOD: Final = 2.0
"""Seconds between two looks while no request lives, from a thread: then no step comes by to do it."""

TRANSFER_SECONDS: Final = 600.0
"""For so long the blocks of an ended request count as explained: another connector may still be sending them on.
vLLM's own connectors give a transfer up after 480 s or less."""

LONGEST_STEP: Final = 60.0
"""A gap between two steps that is longer was no step: the engine was stopped, or its machine slept."""

_RINGS: Final = ("circular", "mamba", "crossattention", "hiddenstate", "hisparse", "encoder")
"""Kinds of cache that a request pins whole, or whose blocks are not one after the other in its tokens."""


def groups_of(manager: Any) -> tuple[Group, ...]:
    """The KV cache groups of a cache manager, each with its own block size. Raises AttributeError where it has no such."""
    found = []
    for one in manager.coordinator.single_type_managers:
        kind = type(one.kv_cache_spec).__name__.removesuffix("Spec")
        name = str(one.kv_cache_group_id)
        positional = not kind.lower().startswith(_RINGS) and not type(one).__name__.lower().startswith(_RINGS)
        found.append(Group(name, kind, int(one.block_size), positional))
    return tuple(found)


class PoolWatch:
    """One engine core's pool. Every method but the idle thread's is called by the engine's own loop.

    `alone`: no decodes but its own wait for its steps, so that what they compute is counted.
    """

    def __init__(self, ahead: int, write: Callable[[Mapping[str, Any]], None], alone: bool = True) -> None:
        self._ahead = ahead
        self._write = write
        self._manager: Any = None
        self._pool: Pool | None = None
        self._groups: tuple[Group, ...] = ()
        self._live: dict[str, Any] = {}
        self._leaving: dict[str, float] = {}
        self._orphans = Orphans()
        self.steps = 0
        self._step_ended = 0.0
        self._step_seconds = 0.0
        self._busy = False
        self._due = 0.0
        self._counts_due = 0.0
        self._prefill = PrefillCount() if alone else None
        self._outbox: dict[str, Any] | None = None
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._stopped = False
        self.hook_seconds = 0.0

    def bind(self, manager: Any) -> None:
        """Take the live cache manager. Raises AttributeError where it is not made as expected."""
        groups = groups_of(manager)
        pool: Pool = manager.block_pool
        census(pool, groups, ())
        self._manager, self._pool, self._groups = manager, pool, groups
        self._thread = threading.Thread(target=self._run, name="kintsugi-pool", daemon=True)
        self._thread.start()

    def give_up(self) -> None:
        """Tell nothing more: the thread ends by itself."""
        self._stopped = True
        self._wake.set()

    def stop(self) -> None:
        """End the thread, and wait for its end."""
        self.give_up()
        if self._thread is not None:
            self._thread.join()

    def began(self, request: Any) -> None:
        """A request has come: its live object, whose fields move as it runs."""
        if not self._busy:
            self._busy, self._step_ended = True, clock.mono()
        self._live[request.request_id] = request

    def ended(self, request: Any) -> None:
        """A request has finished; its blocks may be held on for a while."""
        if self._live.pop(request.request_id, None) is not None:
            self._leaving[request.request_id] = clock.mono()

    def scheduled(self, tokens: Mapping[str, int], drafts: Mapping[str, Sized]) -> None:
        """A step is about to run: tokens by request id, and those of them that are drafted ahead."""
        if self._prefill is not None:
            self._prefill.scheduled(tokens, drafts, self._live)

    def step(self) -> dict[str, Any] | None:
        """A step has ended; a sample where it is time for one. It is written to the rank's file by another thread.

        Between two looks at the pool, which may be half a minute apart, a sample has only what is counted anyway.
        """
        now = clock.mono()
        gap = now - self._step_ended
        if self._busy and gap < LONGEST_STEP:
            self._step_seconds += gap
        self.steps += 1
        self._busy, self._step_ended = bool(self._live), now
        if now < self._due or self._pool is None:
            if now < self._counts_due or self._prefill is None:
                return None
            self._counts_due = now + SHORTEST
            return self._counts()
        began = time.perf_counter()
        sample = self._measure(now)
        self._due = now + max(SHORTEST, (time.perf_counter() - began) / SHARE)
        self._counts_due = now + SHORTEST
        self._outbox = sample
        self._wake.set()
        return sample

    def _counts(self) -> dict[str, Any]:
        prefill = {} if self._prefill is None else {"prefill": self._prefill.told()}
        return {"at": clock.wall(), "mono": clock.mono(), **prefill}

    def _measure(self, now: float) -> dict[str, Any]:
        assert self._pool is not None
        live = list(self._live.values())
        seen = census(self._pool, self._groups, self._holdings(live, now), self._ahead)
        return {
            **self._counts(),
            "blocks": {"active": seen.active, "cached_free": seen.cached_free, "empty_free": seen.empty_free},
            "waste": seen.waste_ratio,
            "groups": {
                one.group.name: {
                    "kind": one.group.kind,
                    "blockSize": one.group.block_size,
                    "waste": one.ratio,
                }
                for one in seen.waste
            },
            "orphaned": self._orphans.see(seen.unexplained, now),
            "requests": len(live),
            "tokens": sum(self._tokens(request) for request in live),
            "preempted": sum(1 for request in live if request.num_preemptions and not self._tokens(request)),
            "steps": self.steps,
            "hookSeconds": self.hook_seconds,
            "stepSeconds": self._step_seconds,
        }

    @staticmethod
    def _tokens(request: Any) -> int:
        return int(request.num_computed_tokens)

    def _holdings(self, live: Sequence[Any], now: float) -> list[Holding]:
        found = []
        for request in live:
            blocks = self._blocks_of(request.request_id)
            if any(blocks):
                found.append(Holding(self._tokens(request), blocks))
        for name, since in list(self._leaving.items()):
            blocks = self._blocks_of(name)
            if not any(blocks) or now - since > TRANSFER_SECONDS:
                self._leaving.pop(name, None)
            else:
                whole = max(map(len, blocks)) * max(group.block_size for group in self._groups)
                found.append(Holding(whole, blocks))
        return found

    def _blocks_of(self, name: str) -> Sequence[Sequence[Any]]:
        blocks: Sequence[Sequence[Any]] = self._manager.get_blocks(name).blocks
        return blocks

    def _run(self) -> None:
        """Write what the steps leave. While no request lives nothing in the pool moves, and it is looked at from here.

        So the last sample is never one of before the end, and its age tells an idle engine from one that is stopped.
        """
        complained = False
        while not self._stopped:
            self._wake.wait(IDLE_PERIOD)
            self._wake.clear()
            if self._stopped:
                return
            sample, self._outbox = self._outbox, None
            try:
                sample = sample or self._look_idle()
                if sample is not None:
                    self._write(sample)
            except (AttributeError, RuntimeError, TypeError, OSError) as error:
                if not complained:
                    _LOG.error("Kintsugi telemetry: the pool's file cannot be written (%r)", error)
                complained = True

    def _look_idle(self) -> dict[str, Any] | None:
        """A sample of a pool at rest; None where it is not, or where a step came meanwhile."""
        steps, now = self.steps, clock.mono()
        if self._live or now - self._step_ended < IDLE_PERIOD / 2:
            return None
        sample = self._measure(now)
        return sample if self.steps == steps and not self._live else None
