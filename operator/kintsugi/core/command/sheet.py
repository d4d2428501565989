"""A command being written: one argument for each flag, a later word on a flag taking the place of an earlier."""

from collections.abc import Collection, Iterable, Sequence

from kintsugi.core.command.argument import Argument
from kintsugi.core.command.flags import LISTS, SHORTHANDS, canonical, is_switch, root_of


class Sheet:
    """Arguments by canonical flag. A flag keeps the place at which it was first said."""

    def __init__(self) -> None:
        self._arguments: dict[str, Argument] = {}

    def say(self, flag: str, values: str | Sequence[str] | None, origin: str) -> None:
        """Say a flag with its value, its values, or as a switch (None; `--no-x` is a switch as well)."""
        name = canonical(flag)
        if values is None:
            off = flag.startswith("--no-") and name != flag
            said: tuple[str, ...] = ("false",) if off else ()
        else:
            said = (values,) if isinstance(values, str) else tuple(values)
        self._arguments[name] = Argument(name, said, _words(name, said), origin)

    def say_all(self, pairs: Iterable[tuple[str, str | None]], origin: str) -> None:
        """Say each flag with its value; None is a switch."""
        for flag, value in pairs:
            self.say(flag, value, origin)

    def drop(self, flag: str) -> None:
        """Take a flag back."""
        self._arguments.pop(flag, None)

    def get(self, flag: str) -> Argument | None:
        """What is said of a flag so far."""
        return self._arguments.get(flag)

    def without(self, extra: Iterable[Argument], origins: Collection[str]) -> tuple[Argument, ...]:
        """Every argument but those of `origins` whose flag is in `extra` too, in any spelling."""
        given = {argument.flag for argument in extra}
        roots = {root_of(flag) for flag in given}

        def twice(argument: Argument) -> bool:
            root = root_of(argument.flag)
            # A dotted argument replaces a JSON one of the same flag, and the other way round (vLLM's parser).
            replaced = (argument.flag == root and root in roots) or root in given
            return replaced or argument.flag in given or bool(SHORTHANDS.get(root, frozenset()) & given)

        return tuple(a for a in self._arguments.values() if a.origin not in origins or not twice(a))


def _words(flag: str, values: tuple[str, ...]) -> tuple[str, ...]:
    if not values:
        return (flag,)
    if is_switch(flag) and values == ("false",):
        return ("--no-" + flag.removeprefix("--"),)
    if "." in flag or (values[0].startswith("-") and (flag not in LISTS or len(values) == 1)):
        return (f"{flag}={values[0]}",)
    return (flag, *values)
