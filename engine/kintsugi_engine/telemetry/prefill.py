"""Counts the prompt tokens that each step computes, from what the scheduler sends to the workers."""

from collections.abc import Mapping, Sized
from typing import Any


class PrefillCount:
    """One engine core's count."""

    def __init__(self) -> None:
        self.mixed = 0
        """Tokens in steps in which some request decoded."""
        self.alone = 0

    def scheduled(
        self, tokens: Mapping[str, int], drafts: Mapping[str, Sized], live: Mapping[str, Any]
    ) -> None:
        """Take in one step: tokens by request id, before the scheduler counts them as computed, and those of them that
        are only drafted (speculation).

        A request decodes where no more than its last token lacks; whatever more it lacks is a prompt, or is computed again.
        """
        if sum(tokens.values()) <= len(tokens) + sum(map(len, drafts.values())):
            return  # decodes alone, which is most steps: no request is looked at
        prefilled, decodes = 0, False
        for name, count in tokens.items():
            request = live.get(name)
            if request is None:
                continue
            if request.num_computed_tokens < request.num_tokens - 1:
                prefilled += count
            else:
                decodes = True
        if decodes:
            self.mixed += prefilled
        else:
            self.alone += prefilled

    def told(self) -> dict[str, int]:
        """The counts by the label `step`."""
        return {"mixed": self.mixed, "alone": self.alone}
