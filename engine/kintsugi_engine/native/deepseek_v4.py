"""Slots for DeepSeek-V4: a window of recent tokens in every layer, and compressed entries in two kinds of them.

transformers' own cache keeps one length for all rows of a batch, so rows of different lengths can't decode together.
Here every slot stands at a place of its own (`V4Slots`), and the attention of each layer is computed by `attend`, from
the weights that transformers loaded. Sizes of one slot, with D the size of a head, Di that of an index head:

- every layer: the last W tokens, [W, D], each at its position modulo W;
- heavily compressed (rate 128): an entry for every 128 tokens, [tokens/128, D], and the last 128 tokens' values and
  gates, from which the next entry is made;
- sparse (rate 4): an entry for every 4 tokens, [tokens/4, D], an index entry beside it, [tokens/4, Di], and the last
  8 tokens' values and gates of both, since an entry is made of its own four tokens and the four before.
"""

from collections.abc import Callable
from types import MethodType
from typing import Any, Final

import torch

from kintsugi_engine.native.cache_name import cache_name
from kintsugi_engine.native.deepseek_v4_entries import Entries, turn
from kintsugi_engine.native.refused import Refused
from kintsugi_engine.native.rows import Rows

WINDOW_ONLY: Final = "sliding_attention"
HEAVY: Final = "heavily_compressed_attention"
SPARSE: Final = "compressed_sparse_attention"
SCORES_AT_ONCE: Final = 1 << 26
"""Numbers in the largest temporary of one layer: longer prompts are worked off in pieces of fewer queries."""


class _Layer:
    """The memory of one layer over all slots."""

    def __init__(self, attention: Any, slots: int, max_tokens: int, dtype: torch.dtype) -> None:
        device = attention.sinks.device
        self.attention = attention
        self.window = int(attention.sliding_window)
        self.recent = torch.zeros(slots, self.window, attention.head_dim, dtype=dtype, device=device)
        self.entries: Entries | None = None
        self.index: Entries | None = None
        if attention.compressor is not None:
            self.entries = Entries(attention.compressor, slots, max_tokens, dtype, device)
        if attention.layer_type == SPARSE:
            self.index = Entries(attention.compressor.indexer, slots, max_tokens, dtype, device)

    def bytes(self) -> int:
        """Bytes over all slots."""
        parts = [self.recent]
        for each in (self.entries, self.index):
            parts += each.tensors if each is not None else ()
        return sum(part.numel() * part.element_size() for part in parts)

    def clear(self, slot: int) -> None:
        """As `Entries.clear`."""
        self.recent[slot] = 0
        for each in (self.entries, self.index):
            if each is not None:
                each.clear(slot)


class V4Slots:
    """A `Store` of DeepSeek-V4's memory. The model's attention layers belong to it from then on."""

    def __init__(self, model: Any, slots: int, max_tokens: int) -> None:
        self.slots, self.max_tokens = slots, max_tokens
        self._layers = [
            _Layer(layer.self_attn, slots, max_tokens, model.dtype) for layer in model.model.layers
        ]
        self.slot_bytes = sum(layer.bytes() for layer in self._layers) // slots
        for decoder, layer in zip(model.model.layers, self._layers, strict=True):
            decoder.self_attn.forward = MethodType(_forward(layer), decoder.self_attn)

    def run(self, model: Any, tokens: torch.Tensor, rows: Rows) -> torch.Tensor:
        """As the protocol says."""
        logits: torch.Tensor = model(
            input_ids=tokens,
            attention_mask={WINDOW_ONLY: None},  # every layer makes its own
            position_ids=rows.positions,
            use_cache=True,
            logits_to_keep=1,
            **{cache_name(model): rows},
        ).logits
        return logits[:, -1]

    def clear(self, slot: int) -> None:
        """As the protocol says."""
        for layer in self._layers:
            layer.clear(slot)


def slot_bytes(model: Any, max_tokens: int) -> int:
    """Bytes that one slot takes, without taking them."""
    with torch.device("meta"):
        dtype = model.dtype
        layers = [_Shape(layer.self_attn) for layer in model.model.layers]
        return sum(_Layer(layer, 1, max_tokens, dtype).bytes() for layer in layers)


class _Shape:
    """An attention layer's sizes, on no device."""

    def __init__(self, attention: Any) -> None:
        self.sinks = torch.empty(0, device="meta")
        self.sliding_window, self.head_dim = attention.sliding_window, attention.head_dim
        self.compressor, self.layer_type = attention.compressor, attention.layer_type


def check(model: Any) -> None:
    """Raises Refused for kinds of layers that this module doesn't know."""
    others = sorted(set(model.config.layer_types) - {WINDOW_ONLY, HEAVY, SPARSE})
    if others:
        raise Refused(
            f"this DeepSeek-V4 has layers of the kinds {', '.join(others)}, which the native runtime doesn't know"
        )


def _forward(layer: _Layer) -> Callable[..., tuple[torch.Tensor, None]]:
    def forward(
        self: Any,
        hidden_states: torch.Tensor,
        position_embeddings: dict[str, tuple[torch.Tensor, torch.Tensor]],
        position_ids: torch.Tensor,
        past_key_values: Rows | None = None,
        cache: Rows | None = None,
        **_: Any,
    ) -> tuple[torch.Tensor, None]:
        rows = past_key_values if cache is None else cache
        if rows is None:
            raise Refused("the model's layers belong to the slots now: they can't be run without them")
        cos_sin = position_embeddings[self.rope_layer_type]
        return attend(layer, hidden_states, cos_sin, position_ids, rows), None

    return forward


def attend(
    layer: _Layer,
    hidden: torch.Tensor,
    cos_sin: tuple[torch.Tensor, torch.Tensor],
    positions: torch.Tensor,
    rows: Rows,
) -> torch.Tensor:
    """The attention of one layer over the rows' slots, which take the new tokens in."""
    own = layer.attention
    cos, sin = cos_sin
    heads = (*hidden.shape[:2], -1, own.head_dim)
    low = own.q_a_norm(own.q_a_proj(hidden))
    queries = turn(own.q_b_norm(own.q_b_proj(low).view(heads)), cos, sin)  # [B, S, H, D]
    new = turn(own.kv_norm(own.kv_proj(hidden)).view(heads), cos, sin)[:, :, 0]  # [B, S, D]
    recent, seen = _window(layer, new, positions, rows)
    entries = layer.entries.take(hidden, positions, rows) if layer.entries is not None else None
    index = layer.index.take(hidden, positions, rows) if layer.index is not None else None
    pieces = []
    step = _queries_at_once(layer, hidden.shape[0], recent.shape[1], rows)
    for start in range(0, hidden.shape[1], step):
        part = slice(start, start + step)
        keys, visible, gathered = recent, seen[:, part], None
        if layer.entries is not None and entries is not None:
            ready = layer.entries.ready(positions[:, part], entries.shape[1])
            if index is not None and entries.shape[1] > own.compressor.indexer.index_topk:
                indexer = own.compressor.indexer
                picks, valid = _picks(
                    indexer, low[:, part], hidden[:, part], positions[:, part], index, ready
                )
                gathered = (_gather(entries, picks), valid)
            else:
                keys, visible = torch.cat([recent, entries], dim=1), torch.cat([visible, ready], dim=2)
        pieces.append(_mixed(own, queries[:, part], keys, visible, gathered))
    mixed = turn(torch.cat(pieces, dim=1), cos, -sin)
    groups = mixed.reshape(*hidden.shape[:2], own.config.o_groups, -1).to(hidden.dtype)
    out: torch.Tensor = own.o_b_proj(own.o_a_proj(groups).flatten(2))
    return out


def _window(
    layer: _Layer, new: torch.Tensor, positions: torch.Tensor, rows: Rows
) -> tuple[torch.Tensor, torch.Tensor]:
    """The recent tokens with the new ones among them, [B, T, D], and which of them each query sees, [B, S, T]."""
    size, store = layer.window, layer.recent
    if rows.width == 1:
        store[rows.slots, rows.starts % size] = new[:, 0]
        places = torch.arange(size, device=new.device)
        # The position that each place holds: the last one up to now that falls on it.
        held = positions - (positions - places) % size
        return rows.of(store), (held >= 0)[:, None]
    slot, start = rows.one, rows.start
    before = torch.arange(max(0, start - size + 1), start, device=new.device)
    keys = torch.cat([store[slot, before % size], new[0]])[None]
    held = torch.cat([before, positions[0]])
    gap = positions[0][:, None] - held[None]
    kept = positions[0][-size:]
    store[slot, kept % size] = new[0, -size:]
    return keys, ((gap >= 0) & (gap < size))[None]


def _queries_at_once(layer: _Layer, batch: int, recent: int, rows: Rows) -> int:
    """How many queries of each row fit the largest temporary."""
    own, entries = layer.attention, rows.end // layer.entries.rate if layer.entries is not None else 0
    each = own.num_heads * (recent + entries)
    if layer.index is not None:
        indexer = own.compressor.indexer
        each = max(indexer.num_heads * entries, min(entries, indexer.index_topk) * own.head_dim, each)
    return max(1, SCORES_AT_ONCE // (batch * int(each)))


def _picks(
    indexer: Any,
    low: torch.Tensor,
    hidden: torch.Tensor,
    positions: torch.Tensor,
    index: torch.Tensor,
    ready: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The entries that each query attends to, [B, S, k], and which of these are entries at all."""
    cos, sin = indexer.rotary_emb(hidden, position_ids=positions, layer_type=indexer.rope_layer_type)
    asked = indexer.q_b_proj(low).view(*low.shape[:2], -1, indexer.head_dim)
    scores = indexer.scorer(turn(asked, cos, sin), index, hidden).masked_fill(~ready, float("-inf"))
    picks = scores.topk(indexer.index_topk, dim=-1).indices
    return picks, ready.expand_as(scores).gather(-1, picks)


def _gather(entries: torch.Tensor, picks: torch.Tensor) -> torch.Tensor:
    """[B, T, D] and [B, S, k] make [B, S, k, D]."""
    rows = torch.arange(entries.shape[0], device=entries.device)[:, None, None]
    return entries[rows, picks]


def _mixed(
    own: Any,
    queries: torch.Tensor,
    keys: torch.Tensor,
    seen: torch.Tensor,
    gathered: tuple[torch.Tensor, torch.Tensor] | None,
) -> torch.Tensor:
    """Attention of [B, S, H, D] over keys that are values, too: common ones [B, T, D] and each query's own [B, S, k, D].

    A learnt score of each head takes its share and adds nothing.
    """
    hidden = float("-inf")
    scores = torch.einsum("bshd,btd->bsht", queries, keys).float() * own.scaling
    parts = [scores.masked_fill(~seen[:, :, None], hidden)]
    if gathered is not None:
        chosen, valid = gathered
        scores = torch.einsum("bshd,bskd->bshk", queries, chosen).float() * own.scaling
        parts.append(scores.masked_fill(~valid[:, :, None], hidden))
    sinks = own.sinks.float().expand(*queries.shape[:2], -1)[..., None]
    shares = torch.cat([*parts, sinks], dim=-1).softmax(dim=-1).to(keys.dtype)
    mixed = torch.einsum("bsht,btd->bshd", shares[..., : keys.shape[1]], keys)
    if gathered is not None:
        mixed = mixed + torch.einsum("bshk,bskd->bshd", shares[..., keys.shape[1] : -1], gathered[0])
    return mixed
