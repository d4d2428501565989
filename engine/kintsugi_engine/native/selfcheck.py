"""Before the first request: the slots give what the model gives without any cache, or the model is refused.

Architectures differ in ways that no list can know. A short text goes through the uncached model, then through the
slots: in two pieces, then token by token beside a row of another length. That is how requests will be worked on.
"""

from dataclasses import dataclass
from typing import Any, Final

import torch

from kintsugi_engine.native.refused import Refused
from kintsugi_engine.native.rows import rows
from kintsugi_engine.native.store import Store

ONE_BY_ONE: Final = 8
"""Tokens that are passed singly, as those that the model makes."""
BESIDE: Final = 5
"""Tokens of the other row when the two begin to share passes."""
TOLERANCE: Final = {torch.float32: 0.001}
"""Largest distance of two rows of logits, over their length. Seen in float32: 1e-6; a misplaced token gives 0.1 to 1."""
COARSE: Final = 0.15
"""The same in lower precision, where a router may choose another expert."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A text, and the uncached model's logits after each of its last tokens."""

    text: torch.Tensor
    logits: torch.Tensor


def reference(model: Any, count: int) -> Reference:
    """Of `count` tokens by chance. To be asked before the slots take over layers of the model."""
    vocabulary = model.config.get_text_config(decoder=True).vocab_size
    text = torch.randint(vocabulary, (1, count), generator=torch.Generator().manual_seed(7)).to(model.device)
    with torch.inference_mode():
        logits = model(input_ids=text, use_cache=False, logits_to_keep=ONE_BY_ONE + 1).logits[0]
    return Reference(text, logits)


def distance(model: Any, store: Store, expected: Reference) -> float:
    """The largest distance of any row of logits, over its length."""
    text, device = expected.text, model.device
    alone = max(1, text.shape[1] - ONE_BY_ONE)
    half = alone // 2
    slot, beside = (1, 0) if store.slots > 1 else (0, None)
    found = []
    with torch.inference_mode():
        if half:
            store.run(model, text[:, :half], rows([slot], [0], half, device))
        found.append(store.run(model, text[:, half:alone], rows([slot], [half], alone - half, device)))
        if beside is not None:
            store.run(model, text[:, :BESIDE], rows([beside], [0], BESIDE, device))
        for step, at in enumerate(range(alone, text.shape[1])):
            if beside is None:
                found.append(store.run(model, text[:, at : at + 1], rows([slot], [at], 1, device)))
                continue
            tokens = torch.stack([text[0, BESIDE + step : BESIDE + step + 1], text[0, at : at + 1]])
            found.append(store.run(model, tokens, rows([beside, slot], [BESIDE + step, at], 1, device))[1:])
    difference = torch.cat(found).float() - expected.logits.float()
    return float((difference.norm(dim=-1) / expected.logits.float().norm(dim=-1)).max())


def judge(model: Any, store: Store, expected: Reference, dtype: torch.dtype) -> float:
    """The distance, where it is small. Raises Refused where it is not."""
    found = distance(model, store, expected)
    if not found <= TOLERANCE.get(dtype, COARSE):
        raise Refused(
            f"{model.config.model_type}: with slots its logits lie {found:.1%} off those without a cache, so its layers "
            "remember something that the native runtime doesn't keep. Serve it with runtime VLLM"
        )
    return found
