"""`kintsugi-engine`: what runs in the pods that serve the model. Standard library only, but for `native`."""

import importlib
import sys
from collections.abc import Callable, Sequence
from typing import Final

COMMANDS: Final = {
    "native": ("kintsugi_engine.native.run", "serve a model with PyTorch and a contiguous KV cache"),
    "preflight": (
        "kintsugi_engine.preflight",
        "say whether this machine can serve, before the engine starts",
    ),
    "warm": ("kintsugi_engine.warm", "send one request of each length before the pod is Ready"),
    "drain": ("kintsugi_engine.drain", "wait until nothing runs any more, before the pod ends"),
    "inject": ("kintsugi_engine.inject", "lay this package where an engine of another image finds it"),
    "compact": ("kintsugi_engine.compact", "have the engine give cached GPU memory back"),
}
"""Name: (module with `main(words) -> exit code`, what it does)."""


def main(words: Sequence[str] | None = None) -> None:
    """Exit with the command's code; 2 where no such command is known."""
    given = list(sys.argv[1:] if words is None else words)
    name = given[0] if given else "--help"
    if name in ("-h", "--help"):
        print("usage: kintsugi-engine COMMAND [--help | OPTIONS]\n")
        print("\n".join(f"  {command:<10} {text}" for command, (_, text) in COMMANDS.items()))
        sys.exit(0 if given else 2)
    if name not in COMMANDS:
        print(f"kintsugi-engine: {name!r} is no command, but {', '.join(COMMANDS)} are", file=sys.stderr)
        sys.exit(2)
    run: Callable[[Sequence[str]], int] = importlib.import_module(COMMANDS[name][0]).main
    sys.exit(run(given[1:]))


if __name__ == "__main__":
    main()
