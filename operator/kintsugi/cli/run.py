"""`kintsugi run`: the operator."""

import asyncio
import logging
from pathlib import Path

import click
import kubernetes
import yaml

from kintsugi.adapters.jsonlog import configure
from kintsugi.core.catalog.catalog import Catalog
from kintsugi.core.catalog.load import CatalogInvalid, adopt, builtin, extended
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
    if settings.catalog:
        adopt(catalog_of(Path(settings.catalog)))
    logging.getLogger("kopf").setLevel(logging.WARNING)
    asyncio.run(_run(settings, kubeconfig, context))


def catalog_of(path: Path) -> Catalog:
    """The shipped catalog with the file at `path` laid over it; ClickException where it can't be read."""
    try:
        return extended(builtin(), yaml.safe_load(path.read_text("utf-8")) or {})
    except (OSError, UnicodeDecodeError, yaml.YAMLError, CatalogInvalid) as error:
        raise click.ClickException(f"KINTSUGI_CATALOG: {path}: {error}") from error


async def _run(settings: Settings, kubeconfig: str | None, context: str | None) -> None:
    try:
        operator = Operator(settings, kubeconfig, context)
    except kubernetes.config.ConfigException as error:
        raise click.ClickException(
            f"no cluster to look after: {str(error).rstrip('.')}. Name one with --kubeconfig"
        ) from error
    await operator.run()
