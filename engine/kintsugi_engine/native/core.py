"""The engine: which requests hold a slot, and what each step computes. No process, no network, no clock but one asked."""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from kintsugi_engine.native import memory
from kintsugi_engine.native.messages import Chosen, Gauges, Piece, Step, Submit
from kintsugi_engine.native.rows import rows
from kintsugi_engine.native.sampling import Chooser, choose
from kintsugi_engine.native.store import Store
from kintsugi_engine.telemetry.allocator import fragmentation


@dataclass(slots=True)
class _Request:
    id: int
    chooser: Chooser
    slot: int = -1
    written: int = 0
    """Tokens in the slot."""
    broken: bool = False

    @property
    def prompt_left(self) -> int:
        return max(0, len(self.chooser.prompt) - self.written)


@dataclass(order=True, slots=True)
class _Waiting:
    priority: int
    number: int
    request: _Request = field(compare=False)


class Engine:
    """Requests that come and go at any time and are worked on together.

    Every step gives each request that has its prompt behind it one token, all in one pass, and works off at most
    `chunk_tokens` of prompts, the oldest first, so that a long prompt delays others by one piece of it at a time. A
    request keeps its slot from its first piece to its end: nothing is ever preempted or moved.
    """

    def __init__(
        self,
        model: Any,
        store: Store,
        eos_ids: frozenset[int],
        chunk_tokens: int,
        now: Callable[[], float],
        *,
        by_priority: bool = False,
    ) -> None:
        self._model, self._store, self._eos_ids = model, store, eos_ids
        self._chunk_tokens, self._now, self._by_priority = chunk_tokens, now, by_priority
        self._device = model.device
        self._free = list(range(store.slots))
        self._waiting: list[_Waiting] = []
        self._running: dict[int, _Request] = {}
        self._number = 0
        found = memory.allocator(self._device)
        self._baseline = found.allocated if found else 0

    @property
    def busy(self) -> bool:
        """Whether a step has anything to do."""
        return bool(self._waiting or self._running)

    def submit(self, order: Submit) -> None:
        """Queue a request, which must fit a slot."""
        request = _Request(order.id, Chooser(order.sampling, order.tokens, self._eos_ids))
        self._number += 1
        priority = order.priority if self._by_priority else 0
        heapq.heappush(self._waiting, _Waiting(priority, self._number, request))

    def abort(self, id_: int) -> None:
        """Forget a request and free its slot. Unknown ids are requests that ended meanwhile."""
        if request := self._running.pop(id_, None):
            self._release(request)
            return
        kept = [each for each in self._waiting if each.request.id != id_]
        if len(kept) < len(self._waiting):
            self._waiting = kept
            heapq.heapify(self._waiting)

    def step(self) -> Step:
        """Compute once. Requests that end in this step give their slots back in it."""
        admitted = self._admit()
        decoding = [each for each in self._running.values() if not each.prompt_left]
        pieces = self._decode(decoding) if decoding else []
        prompt_tokens = 0
        for request in [each for each in self._running.values() if each.prompt_left]:
            if prompt_tokens >= self._chunk_tokens:
                break
            width = min(request.prompt_left, self._chunk_tokens - prompt_tokens)
            prompt_tokens += width
            pieces += self._prefill(request, width)
        return Step(
            gauges=self.gauges(),
            ended=self._now(),
            prompt_tokens=prompt_tokens,
            decoded=bool(decoding),
            new_tokens=sum(len(piece.chosen) for piece in pieces),
            admitted=tuple(admitted),
            pieces=tuple(pieces),
        )

    def gauges(self) -> Gauges:
        """State as it is now."""
        found = memory.allocator(self._device)
        held = len(self._running)
        return Gauges(
            running=held,
            waiting=len(self._waiting),
            written_tokens=sum(each.written for each in self._running.values()),
            held_tokens=held * self._store.max_tokens,
            held_slots=self._store.slots - len(self._free),
            fragmentation=fragmentation(found, self._baseline) if found else None,
            reserved_bytes=found.reserved if found else None,
        )

    def _admit(self) -> list[tuple[int, float]]:
        admitted = []
        while self._free and self._waiting:
            request = heapq.heappop(self._waiting).request
            request.slot = heapq.heappop(self._free)  # the lowest: slots in use stay beside each other
            self._running[request.id] = request
            admitted.append((request.id, self._now()))
        return admitted

    def _decode(self, requests: list[_Request]) -> list[Piece]:
        requests.sort(key=lambda each: each.slot)
        last = [[each.chooser.made[-1]] for each in requests]
        logits = self._run(requests, last)
        chosen = choose([each.chooser for each in requests], logits)
        return [self._took(each, one) for each, one in zip(requests, chosen, strict=True)]

    def _prefill(self, request: _Request, width: int) -> list[Piece]:
        start = request.written
        logits = self._run([request], [request.chooser.prompt[start : start + width]])
        if request.prompt_left:
            return []
        return [self._took(request, choose([request.chooser], logits)[0])]

    def _run(self, requests: Sequence[_Request], tokens: Sequence[Sequence[int]]) -> torch.Tensor:
        width = len(tokens[0])
        where = rows(
            [each.slot for each in requests], [each.written for each in requests], width, self._device
        )
        with torch.inference_mode():
            logits = self._store.run(self._model, torch.tensor(tokens, device=self._device), where)
            sound = torch.isfinite(logits).all(-1).tolist()
        for request, good in zip(requests, sound, strict=True):
            request.written += width
            request.broken |= not good
        return logits

    def _took(self, request: _Request, chosen: Chosen) -> Piece:
        made, sampling = request.chooser.made, request.chooser.sampling
        made.append(chosen.token)
        finish = ""
        if request.broken:
            finish = "error"
        elif len(made) >= sampling.min_tokens and self._ends(chosen.token, request):
            finish = "stop"
        elif len(made) >= sampling.max_tokens:
            finish = "length"
        if finish:
            del self._running[request.id]
            self._release(request)
        return Piece(request.id, (chosen,), finish, request.broken)

    def _ends(self, token: int, request: _Request) -> bool:
        sampling = request.chooser.sampling
        return token in sampling.stop_ids or (token in self._eos_ids and not sampling.ignore_eos)

    def _release(self, request: _Request) -> None:
        if request.broken:
            self._store.clear(request.slot)
        heapq.heappush(self._free, request.slot)
