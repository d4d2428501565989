"""`kintsugi run`: the operator."""

import asyncio
import logging

import click

from kintsugi.adapters.jsonlog import configure
from kintsugi.runtime.settings import Settings, SettingsInvalid
from kintsugi.runtime.wiring import Operator


@click.command()
@click.option(
    "--kubeconfig",
    type=click.Path(exists=True, dir_okay=False),
    help="Default: in-cluster, else the usual one.",
)
@click.option("--context", help="Context of the kubeconfig.")
def run(kubeconfig: str | None, context: str | None) -> None:
    """Run the operator. Its settings come from KINTSUGI_* variables (see docs/configuration.md)."""
    try:
        settings = Settings.from_environment()
    except SettingsInvalid as error:
        raise click.ClickException(str(error)) from error
    configure(settings.log_level)
    logging.getLogger("kopf").setLevel(logging.WARNING)
    asyncio.run(_run(settings, kubeconfig, context))


async def _run(settings: Settings, kubeconfig: str | None, context: str | None) -> None:
    await Operator(settings, kubeconfig, context).run()
