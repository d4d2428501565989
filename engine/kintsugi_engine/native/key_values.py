"""Slots for models that keep keys and values of every token: Llama, Qwen, Mistral, Gemma, Mixtral, DeepSeek-V2/V3 …

Each layer has one tensor [slots, heads, tokens, size] for keys and one for values. The model's own code runs; it is
handed a cache that writes each row where that row stands, and a mask that shows each row its own tokens alone.
Layers with a sliding window keep all tokens, too: the window is in the mask.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

from kintsugi_engine.native.cache_name import cache_name
from kintsugi_engine.native.refused import Refused
from kintsugi_engine.native.rows import Rows

KINDS: Final = frozenset({"full_attention", "sliding_attention"})
"""Kinds of layers whose memory is keys and values, as transformers names them."""


@dataclass(frozen=True, slots=True)
class Layer:
    """Shape of one layer's memory of one token, and its window (0: none)."""

    heads: int
    key_size: int
    value_size: int
    window: int

    @property
    def kind(self) -> str:
        """As transformers names it."""
        return "sliding_attention" if self.window else "full_attention"


class _RowCache(Cache):  # type: ignore[misc]
    """What the model takes for its cache during one pass."""

    def __init__(self, keys: Sequence[torch.Tensor], values: Sequence[torch.Tensor], rows: Rows) -> None:
        super().__init__(layers=[])
        self._keys, self._values, self._rows = keys, values, rows

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        keys, values, rows = self._keys[layer_idx], self._values[layer_idx], self._rows
        if rows.slots.shape[0] == 1:
            place = (rows.one, slice(None), slice(rows.start, rows.end))
            keys[place], values[place] = key_states[0], value_states[0]
        else:
            keys[rows.slots, :, rows.starts] = key_states[:, :, 0]
            values[rows.slots, :, rows.starts] = value_states[:, :, 0]
        return rows.of(keys[:, :, : rows.end]), rows.of(values[:, :, : rows.end])

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """There is no such number: rows differ. A model that asks would place its tokens wrongly."""
        raise Refused("this model's code asks the cache for one length of all rows")


class KeyValueSlots:
    """A `Store` of keys and values."""

    def __init__(
        self, layers: Sequence[Layer], slots: int, max_tokens: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.slots, self.max_tokens = slots, max_tokens
        self.slot_bytes = slot_bytes(layers, max_tokens, dtype)
        self._layers, self._dtype = tuple(layers), dtype
        self._keys = [
            torch.zeros(slots, each.heads, max_tokens, each.key_size, dtype=dtype, device=device)
            for each in layers
        ]
        self._values = [
            torch.zeros(slots, each.heads, max_tokens, each.value_size, dtype=dtype, device=device)
            for each in layers
        ]

    def run(self, model: Any, tokens: torch.Tensor, rows: Rows) -> torch.Tensor:
        """As the protocol says."""
        cache = _RowCache(self._keys, self._values, rows)
        logits: torch.Tensor = model(
            input_ids=tokens,
            attention_mask=self._masks(rows),
            position_ids=rows.positions,
            use_cache=True,
            logits_to_keep=1,
            **{cache_name(model): cache},
        ).logits
        return logits[:, -1]

    def clear(self, slot: int) -> None:
        """As the protocol says."""
        for tensor in (*self._keys, *self._values):
            tensor[slot] = 0

    def _masks(self, rows: Rows) -> torch.Tensor | Mapping[str, torch.Tensor]:
        windows = {layer.kind: layer.window for layer in self._layers}
        masks = {kind: self._mask(rows, window) for kind, window in windows.items()}
        return masks if len(masks) > 1 else next(iter(masks.values()))

    def _mask(self, rows: Rows, window: int) -> torch.Tensor:
        places = torch.arange(rows.end, device=rows.starts.device)
        positions = rows.positions[:, :, None]
        seen = places <= positions
        if window:
            seen &= places > positions - window
        hidden = torch.finfo(self._dtype).min
        return torch.where(seen, 0.0, hidden).to(self._dtype)[:, None]


def slot_bytes(layers: Sequence[Layer], max_tokens: int, dtype: torch.dtype) -> int:
    """Bytes that one slot takes."""
    token: int = sum(layer.heads * (layer.key_size + layer.value_size) for layer in layers)
    return token * max_tokens * int(dtype.itemsize)


def layers_of(model: Any) -> list[Layer]:
    """The shapes that the model writes, learnt by passing one token through it.

    Raises Refused for a model with layers of another kind, naming them.
    """
    config = model.config.get_text_config(decoder=True)
    others = sorted(set(getattr(config, "layer_types", None) or ()) - KINDS)
    if others:
        raise Refused(
            f"{config.model_type} has layers of the kinds {', '.join(others)}: the native runtime keeps keys and values, "
            "and DeepSeek-V4's own kinds. Serve it with runtime VLLM"
        )
    cache = DynamicCache(config=config)
    token = torch.zeros(1, 1, dtype=torch.long, device=model.device)
    with torch.inference_mode():
        model(input_ids=token, use_cache=True, **{cache_name(model): cache})
    found = []
    for layer in cache.layers:
        if type(layer) not in (DynamicLayer, DynamicSlidingWindowLayer) or layer.keys is None:
            raise Refused(
                f"{config.model_type} keeps its memory in {type(layer).__name__}: the native runtime keeps keys and "
                "values, and DeepSeek-V4's own kinds. Serve it with runtime VLLM"
            )
        keys, values = layer.keys, layer.values
        window = int(getattr(layer, "sliding_window", 0) or 0)
        found.append(Layer(keys.shape[1], keys.shape[3], values.shape[3], window))
    return found
