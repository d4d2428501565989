"""The `kintsugi` command. A subcommand's module is imported only when it is asked for."""

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

import click

from kintsugi import __version__


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a subcommand stands (`module:attribute`), and its line in `kintsugi --help`."""

    target: str
    help: str


COMMANDS: Final[Mapping[str, Entry]] = {
    "run": Entry("kintsugi.cli.run:run", "Run the operator against the cluster it finds itself in."),
    "render": Entry("kintsugi.cli.render:render", "Write the Kubernetes objects that a manifest asks for."),
    "crds": Entry("kintsugi.cli.crds:crds", "Write the CustomResourceDefinitions."),
    "advise": Entry("kintsugi.cli.advise:advise", "Suggest settings from live traffic; changes nothing."),
    "plan": Entry(
        "kintsugi.cli.plan:plan", "Say what fits on which GPUs, how much of it, and what it costs."
    ),
    "bench": Entry("kintsugi.cli.bench:bench", "Put the same load on two engines or pools, and compare."),
    "record": Entry("kintsugi.cli.record:record", "Record live engines for a backtest; changes nothing."),
    "backtest": Entry(
        "kintsugi.cli.backtest:backtest", "Replay a history: what would have been done, when and why."
    ),
    "explain": Entry(
        "kintsugi.cli.explain:explain", "Say why a fleet is as it is, and what would change it."
    ),
    "diagnose": Entry(
        "kintsugi.cli.diagnose:diagnose", "Walk the troubleshooting list, with evidence and cure."
    ),
    "approve": Entry("kintsugi.cli.approve:approve", "Let one recommended remediation go ahead."),
    "reset": Entry("kintsugi.cli.reset:reset", "Close breakers, and let exhausted lines begin anew."),
    "pause": Entry("kintsugi.cli.pause:pause", "Hold healing for a named reason."),
    "resume": Entry("kintsugi.cli.pause:resume", "Take one reason for a pause away."),
    "lint": Entry("kintsugi.cli.lint:lint", "Check manifests before any cluster sees them."),
    "simulate": Entry(
        "kintsugi.cli.simulate:simulate", "Simulate a fleet for weeks, with healing on and off."
    ),
    "simulate-engine": Entry(
        "kintsugi.cli.simulate_engine:simulate_engine",
        "Serve as a simulated vLLM engine whose faults can be switched on.",
    ),
}


class LazyGroup(click.Group):
    """A group whose subcommands come from a table: `--help` imports none, a call imports one."""

    def __init__(self, entries: Mapping[str, Entry], **attributes: Any) -> None:
        super().__init__(**attributes)
        self._entries = entries

    def main(self, *args: Any, **attributes: Any) -> Any:
        """What the machine refuses, such as output to a full disk, is told in one line; click itself hushes closed pipes."""
        try:
            return super().main(*args, **attributes)
        except OSError as error:
            if not attributes.get("standalone_mode", True):
                raise
            where = f"{error.filename}: " if error.filename is not None else ""
            with suppress(OSError):
                click.echo(f"Error: {where}{error.strerror or error}", err=True)
            _drop_unwritten()
            sys.exit(1)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(self._entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._entries:
            return None
        module, _, attribute = self._entries[cmd_name].target.partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, self._entries[name].help) for name in self.list_commands(ctx)])


def _drop_unwritten() -> None:
    """Point outputs that can't be flushed at nothing, or the interpreter complains of them when it ends."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            with suppress(OSError):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, stream.fileno())
                os.close(nowhere)


@click.group(cls=LazyGroup, entries=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="kintsugi")
def main() -> None:
    """Self-healing DeepSeek-V4 inference fleets on Kubernetes."""


if __name__ == "__main__":
    main()
