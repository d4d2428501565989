"""Choosing the next token of every row."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from kintsugi_engine.native.messages import Chosen, Sampling


@dataclass(slots=True)
class Chooser:
    """How one request's tokens are chosen, with its own source of chance."""

    sampling: Sampling
    prompt: tuple[int, ...]
    eos_ids: frozenset[int]
    made: list[int] = field(default_factory=list)
    _chance: torch.Generator | None = None

    def __post_init__(self) -> None:
        if self.sampling.temperature > 0 and self.sampling.seed is not None:
            self._chance = torch.Generator().manual_seed(self.sampling.seed % (1 << 63))

    @property
    def plain(self) -> bool:
        """Whether the largest logit is the choice and nothing else is asked."""
        sampling = self.sampling
        return (
            sampling.temperature == 0
            and sampling.logprobs is None
            and sampling.repetition_penalty == 1.0
            and not (sampling.presence_penalty or sampling.frequency_penalty)
            and len(self.made) >= sampling.min_tokens
        )

    def choose(self, logits: torch.Tensor) -> Chosen:
        """One token of `logits` [vocabulary]."""
        sampling = self.sampling
        scores = self._penalised(logits.float())
        told = scores.log_softmax(-1) if sampling.logprobs is not None else None
        if len(self.made) < sampling.min_tokens:
            scores[sorted(self.eos_ids | sampling.stop_ids)] = float("-inf")
        token = (
            int(scores.argmax()) if sampling.temperature == 0 else self._drawn(scores / sampling.temperature)
        )
        if told is None:
            return Chosen(token)
        count = min(sampling.logprobs or 0, told.shape[-1])
        best = told.topk(count) if count else None
        top = tuple(zip(best.indices.tolist(), best.values.tolist(), strict=True)) if best else ()
        return Chosen(token, float(told[token]), top)

    def _penalised(self, scores: torch.Tensor) -> torch.Tensor:
        sampling = self.sampling
        if sampling.repetition_penalty != 1.0:
            seen = torch.tensor(sorted({*self.prompt, *self.made}), device=scores.device)
            one, penalty = scores[seen], sampling.repetition_penalty
            scores = scores.index_copy(0, seen, torch.where(one > 0, one / penalty, one * penalty))
        if self.made and (sampling.presence_penalty or sampling.frequency_penalty):
            ids, counts = torch.tensor(self.made, device=scores.device).unique(return_counts=True)
            scores = scores.index_add(
                0, ids, -(sampling.presence_penalty + sampling.frequency_penalty * counts.float())
            )
        return scores.clone()

    def _drawn(self, scores: torch.Tensor) -> int:
        sampling = self.sampling
        if 0 < sampling.top_k < scores.shape[-1]:
            scores = scores.masked_fill(scores < scores.topk(sampling.top_k).values[-1], float("-inf"))
        shares = scores.softmax(-1)
        if sampling.top_p < 1:
            ordered, order = shares.sort(descending=True)
            beyond = ordered.cumsum(-1) - ordered >= sampling.top_p
            shares = shares.index_fill(0, order[beyond], 0.0)
        return int(torch.multinomial(shares.cpu(), 1, generator=self._chance))


def choose(choosers: Sequence[Chooser], logits: torch.Tensor) -> list[Chosen]:
    """One token for every row of `logits` [B, vocabulary]."""
    best: list[int] = logits.argmax(-1).tolist()
    return [
        Chosen(best[row]) if chooser.plain else chooser.choose(logits[row])
        for row, chooser in enumerate(choosers)
    ]
