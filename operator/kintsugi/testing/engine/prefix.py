"""Prefix caching: which leading part of a prompt was computed before. Whole blocks only, as in vLLM."""

from collections import OrderedDict


class PrefixCache:
    """Remembers the blocks of past prompts, the longest unused forgotten first."""

    def __init__(self, block_bytes: int, capacity_blocks: int) -> None:
        if block_bytes < 1 or capacity_blocks < 1:
            raise ValueError(
                f"block_bytes and capacity_blocks must be 1 or more: {block_bytes}, {capacity_blocks}"
            )
        self._block_bytes = block_bytes
        self._capacity = capacity_blocks
        self._blocks: OrderedDict[int, None] = OrderedDict()

    def claim(self, prompt: bytes) -> int:
        """How many leading blocks of `prompt` are known; from now on all its whole blocks are."""
        chain = 0
        known = 0
        unbroken = True
        for end in range(self._block_bytes, len(prompt) + 1, self._block_bytes):
            chain = hash((chain, prompt[end - self._block_bytes : end]))
            if chain in self._blocks:
                self._blocks.move_to_end(chain)
                known += unbroken
            else:
                unbroken = False
                self._blocks[chain] = None
        while len(self._blocks) > self._capacity:
            self._blocks.popitem(last=False)
        return known
