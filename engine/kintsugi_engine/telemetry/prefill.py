"""Counts the prompt tokens that each step computes, from what the scheduler sends to the workers."""

from collections.abc import Mapping, Sized
from typing import Any


class PrefillCount:
    """One engine core's count. `never_alone`: decodes of other ranks or stages wait for its steps, whatever they hold."""

    def __init__(self, never_alone: bool) -> None:
        self._never_alone = never_alone
        self.mixed = 0
        """Tokens in steps beside which some request decoded."""
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
        prefilled, decodes = 0, self._never_alone
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
