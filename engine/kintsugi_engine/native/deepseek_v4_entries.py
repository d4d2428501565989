"""DeepSeek-V4's compressed entries: one for every `rate` tokens, made when the last of them has come."""

from typing import Any

import torch

from kintsugi_engine.native.rows import Rows


class Entries:
    """Entries of one compressor over all slots, with the tokens from which the next one will be made.

    `module` is transformers' compressor or indexer: its weights and sizes are used, its code is not. With overlap (where
    it projects to twice its size) an entry is made of its own tokens' second halves and of the first halves of the
    `rate` tokens before.
    """

    def __init__(
        self, module: Any, slots: int, max_tokens: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.module = module
        self.rate = int(module.compress_rate)
        self.size = int(module.head_dim)
        width = int(module.kv_proj.weight.shape[0])
        self.overlap = width == 2 * self.size
        kept = self.rate * (2 if self.overlap else 1)
        self._entries = torch.zeros(slots, max_tokens // self.rate, self.size, dtype=dtype, device=device)
        self._values = torch.zeros(slots, kept, width, dtype=dtype, device=device)
        self._gates = torch.zeros(slots, kept, width, dtype=dtype, device=device)

    @property
    def tensors(self) -> tuple[torch.Tensor, ...]:
        """All that is kept."""
        return self._entries, self._values, self._gates

    def clear(self, slot: int) -> None:
        """Forget what a request left that is no number: hidden places count as nothing times it."""
        for tensor in self.tensors:
            tensor[slot] = 0

    def ready(self, positions: torch.Tensor, count: int) -> torch.Tensor:
        """Which of the first `count` entries a query at each position may see, [B, S, count]: the finished ones."""
        return torch.arange(count, device=positions.device) < ((positions + 1) // self.rate)[..., None]

    def take(self, hidden: torch.Tensor, positions: torch.Tensor, rows: Rows) -> torch.Tensor:
        """Take the rows' new tokens in; returns their entries, [B, T, size], of which some rows may have fewer."""
        dtype = self._values.dtype
        values = self.module.kv_proj(hidden.to(self.module.kv_proj.weight.dtype)).to(dtype)
        gates = self.module.gate_proj(hidden.to(self.module.gate_proj.weight.dtype)).to(dtype)
        if rows.width == 1:
            self._one_each(values[:, 0], gates[:, 0], rows)
        else:
            self._many(values[0], gates[0], rows.one, rows.start)
        return rows.of(self._entries[:, : rows.end // self.rate])

    def _one_each(self, values: torch.Tensor, gates: torch.Tensor, rows: Rows) -> None:
        kept = self._values.shape[1]
        place = rows.starts % kept
        self._values[rows.slots, place], self._gates[rows.slots, place] = values, gates
        due = ((rows.starts + 1) % self.rate == 0).nonzero()[:, 0]
        if due.numel() == 0:
            return
        slots, window = rows.slots[due], rows.starts[due] // self.rate
        first = (
            window + 1
        ) * self.rate - kept  # of the tokens kept; below 0 in the first window with overlap
        places = (first[:, None] + torch.arange(kept, device=first.device)) % kept
        tokens, weights = self._values[slots[:, None], places], self._gates[slots[:, None], places]
        self._entries[slots, window] = self._made(tokens[:, None], weights[:, None], window[:, None])[:, 0]

    def _many(self, values: torch.Tensor, gates: torch.Tensor, slot: int, start: int) -> None:
        """A piece of one prompt: [S, width] from position `start` on."""
        kept, end = self._values.shape[1], start + values.shape[0]
        window = start // self.rate
        first = max(0, (window - (1 if self.overlap else 0)) * self.rate)
        before = torch.arange(first, start, device=values.device) % kept
        tokens = torch.cat([self._values[slot, before], values])
        weights = torch.cat([self._gates[slot, before], gates])
        count = end // self.rate - window
        if count > 0:
            windows = torch.arange(window, window + count, device=values.device)[None]
            grouped = self._grouped(tokens, windows, first), self._grouped(weights, windows, first)
            self._entries[slot, window : window + count] = self._made(*grouped, windows)[0]
        last = torch.arange(max(start, end - kept), end, device=values.device)
        self._values[slot, last % kept], self._gates[slot, last % kept] = (
            values[last - start],
            gates[last - start],
        )

    def _grouped(self, tokens: torch.Tensor, windows: torch.Tensor, first: int) -> torch.Tensor:
        """The tokens of each window, with those of the window before where there is overlap: [1, W, kept, width]."""
        kept = self._values.shape[1]
        places = ((windows[0] + 1) * self.rate - kept)[:, None] + torch.arange(kept, device=tokens.device)
        return tokens[(places - first).clamp(min=0)][None]

    def _made(self, tokens: torch.Tensor, gates: torch.Tensor, windows: torch.Tensor) -> torch.Tensor:
        """Entries [B, W, size] of tokens and gates [B, W, kept, width]; `windows` [B, W] are their numbers."""
        module = self.module
        if self.overlap:
            ahead, own = slice(0, self.rate), slice(self.rate, None)
            gates = gates + torch.cat([module.position_bias, module.position_bias])
            tokens = torch.cat([tokens[:, :, ahead, : self.size], tokens[:, :, own, self.size :]], dim=2)
            gates = torch.cat([gates[:, :, ahead, : self.size], gates[:, :, own, self.size :]], dim=2)
            nothing_before = torch.arange(2 * self.rate, device=gates.device) < self.rate
            nothing_before = nothing_before & (windows == 0)[..., None]
            gates = gates.masked_fill(nothing_before[..., None], float("-inf"))
        else:
            gates = gates + module.position_bias
        shares = gates.softmax(dim=2, dtype=torch.float32).to(tokens.dtype)
        made = module.kv_norm((tokens * shares).sum(dim=2))
        cos, sin = module.rotary_emb(
            made, position_ids=windows * self.rate, layer_type=module.rope_layer_type
        )
        return turn(made[:, :, None], cos, sin)[:, :, 0].to(self._entries.dtype)


def turn(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotate the last channels of `x` [B, S, H, D], taken in pairs, by the angles of each position [B, S, pairs]."""
    size = 2 * cos.shape[-1]
    still, pairs = x[..., :-size], x[..., -size:].float().unflatten(-1, (-1, 2))
    cos, sin = cos[:, :, None].float(), sin[:, :, None].float()
    first, second = pairs[..., 0], pairs[..., 1]
    turned = torch.stack((first * cos - second * sin, second * cos + first * sin), dim=-1)
    return torch.cat([still, turned.flatten(-2).to(x.dtype)], dim=-1)
