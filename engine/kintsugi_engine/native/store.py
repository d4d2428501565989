"""What the engine needs of a store of slots, whatever the model keeps in them."""

from typing import Any, Protocol

import torch

from kintsugi_engine.native.rows import Rows


class Store(Protocol):
    """The memory of all requests, taken once at the start. A slot holds one request and is overwritten by the next."""

    slot_bytes: int
    """Bytes of one slot."""
    slots: int
    max_tokens: int
    """Tokens that one slot holds."""

    def run(self, model: Any, tokens: torch.Tensor, rows: Rows) -> torch.Tensor:
        """Pass `tokens` [B, width] through the model; returns the logits after each row's last token, [B, vocabulary]."""

    def clear(self, slot: int) -> None:
        """Zero a slot whose request left values that are no numbers: hidden places count as nothing times them."""
