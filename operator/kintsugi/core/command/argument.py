"""One argument of the engine's command, with the field that it comes from."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Argument:
    """`flag` in its canonical spelling (`--max-model-len`, dashes, no alias), as the engine will understand it."""

    flag: str
    values: tuple[str, ...]
    """Empty for a switch; `--no-x` is the flag `--x` with the value `false`. Several for `--served-model-name`."""
    words: tuple[str, ...]
    """The words on the command line, byte for byte."""
    origin: str
    """JSON path of the field that says it (`spec.engine.args.maxModelLen`, `spec.pools[1].engine.extraArgs[0]`), or
    `recipe`, `profile`, `model`, `default` where the operator says it."""

    @property
    def value(self) -> str | None:
        """The only value, or the last one; None for a switch."""
        return self.values[-1] if self.values else None


@dataclass(frozen=True, slots=True)
class Command:
    """A whole command. Where a flag comes twice, the last one wins, as in argparse."""

    arguments: tuple[Argument, ...]

    def words(self) -> list[str]:
        """The container's `args`."""
        return [word for argument in self.arguments for word in argument.words]

    def all(self, flag: str) -> tuple[Argument, ...]:
        """Every argument of that canonical flag, in order."""
        return tuple(a for a in self.arguments if a.flag == flag)

    def get(self, flag: str) -> Argument | None:
        """The one that counts."""
        found = self.all(flag)
        return found[-1] if found else None

    def on(self, flag: str, default: bool) -> bool:
        """Whether a switch is on; `default` is what the engine does where nothing is said."""
        found = self.get(flag)
        return default if found is None else (found.value or "true").lower() not in ("false", "0")
