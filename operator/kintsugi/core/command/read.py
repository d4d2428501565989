"""Words of a command line → arguments, read as vLLM's parser reads them. No list of words is refused."""

import re
from collections.abc import Callable, Collection, Sequence
from typing import Final

from kintsugi.core.command.argument import Argument
from kintsugi.core.command.flags import ALIASES, LISTS, canonical, is_switch

POSITIONAL: Final = ""
"""The flag of a word that belongs to no flag: `serve`, the model's name, or a slip such as `--max-model-len 8192` in
one word."""
TRUTHS: Final = frozenset({"true", "false"})

_NEGATIVE: Final = re.compile(r"^-\d+(\.\d+)?$|^-\.\d+$")
_ATTACHED: Final = re.compile(r"^-[nrqO](?=[^.=A-Za-z]|\d)")

__all__ = ["POSITIONAL", "canonical", "read_words"]


def read_words(
    words: Sequence[str], origin: Callable[[int], str], known: Collection[str] = ()
) -> tuple[Argument, ...]:
    """The arguments in `words`, in their order; their words joined are `words` again, byte for byte.

    `origin(index)` names the field that holds word `index`; an argument has the origin of its first word. `known`
    are flags that a unique beginning may stand for (see `canonical`).
    """
    found: list[Argument] = []
    at = 0
    while at < len(words):
        end = _end(words, at, known)
        found.append(_argument(tuple(words[at:end]), origin(at), known))
        if words[at] == "--":  # argparse: all that follows is positional
            found += [
                Argument(POSITIONAL, (words[i],), (words[i],), origin(i)) for i in range(end, len(words))
            ]
            break
        at = end
    return tuple(found)


def is_flag(word: str) -> bool:
    """Whether argparse takes the word for a flag rather than for a value: `-1` and `-a b` are values."""
    if not word.startswith("-") or word == "-":
        return False
    if word.partition("=")[0] in ALIASES:
        return True
    name, equals, _ = word.partition("=")
    return not _NEGATIVE.match(word) and " " not in (name if equals else word)


def _end(words: Sequence[str], at: int, known: Collection[str]) -> int:
    """Index behind the last word of the argument that begins at `at`."""
    word, following = words[at], at + 1
    if not is_flag(word) or "=" in word or word == "--" or _ATTACHED.match(word):
        return following
    flag = canonical(word, known)
    if "." in flag:  # the engine joins a dotted flag with the next word, whatever it is
        return min(following + 1, len(words))
    if word.startswith(("--no-", "--no_")):
        return following
    if flag in LISTS:
        while following < len(words) and not is_flag(words[following]):
            following += 1
        return following
    if following == len(words) or is_flag(words[following]):
        return following
    if is_switch(flag) and words[following].lower() not in TRUTHS:
        return following
    return following + 1


def _argument(words: tuple[str, ...], origin: str, known: Collection[str]) -> Argument:
    word, values = words[0], words[1:]
    if not is_flag(word) or word == "--":
        return Argument(POSITIONAL, words, words, origin)
    flag = canonical(word, known)
    name, equals, value = word.partition("=")
    if equals:
        values = (value, *values)
    elif _ATTACHED.match(word):
        values = (word[2:],)
    elif name.replace("_", "-").startswith("--no-") and not values:
        values = ("false",)
    return Argument(flag, values, words, origin)
