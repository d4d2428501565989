"""`kintsugi render`: the objects that a DeepSeekV4Deployment would become, without a cluster."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import yaml

from kintsugi.api.effective import Pool, pools_of
from kintsugi.api.objects import DeepSeekV4Deployment, Problem, SpecInvalid, parse_deployment
from kintsugi.cli.planfile import Unreadable, load
from kintsugi.core.catalog.catalog import Catalog
from kintsugi.core.catalog.load import CatalogInvalid, builtin, extended
from kintsugi.core.names import DEPLOYMENT_KIND
from kintsugi.core.pod.owned import problems_in_templates
from kintsugi.core.preflight.plain import fault_of
from kintsugi.core.render import disruption_budget, leader_worker_set, replica_set, service
from kintsugi.core.revision import revision_of

Json = dict[str, Any]


@click.command("render")
@click.option(
    "-f", "--file", "source", type=click.Path(path_type=Path), required=True, help="Manifest; - is stdin."
)
@click.option("--pool", default=None, help="Only this pool.")
@click.option(
    "--catalog", "catalog_file", type=click.Path(path_type=Path), help="YAML with further models and GPUs."
)
@click.option(
    "--operator-image",
    default="",
    help="The operator's own image: pods are shown with the telemetry that it lays on; without, as they are without it.",
)
@click.option("-o", "--output", type=click.Choice(["yaml", "json"]), default="yaml", show_default=True)
def render(
    source: Path, pool: str | None, catalog_file: Path | None, operator_image: str, output: str
) -> None:
    """Write the Pods' owners, Services and disruption budgets that a manifest asks for.

    Other kinds in the file are left out. Exits 1 where nothing can be made of the manifest, 2 where it can't be read;
    each problem names its path. Whether the result would run is for `kintsugi lint` to say. What a cluster adds
    (UIDs, owners) is not there.
    """
    catalog = _catalog(catalog_file)
    made = [
        document
        for raw in _deployments(source)
        for document in _documents(raw, pool, catalog, operator_image)
    ]
    if pool is not None and not made:
        raise click.ClickException(f"there is no pool {pool!r} in {source}")
    if output == "json":
        click.echo(json.dumps(made, indent=2, ensure_ascii=False))
    else:
        text = yaml.dump_all(made, Dumper=_Dumper, sort_keys=False, width=110, allow_unicode=True)
        click.echo(text, nl=False)


def _deployments(source: Path) -> list[Mapping[str, Any]]:
    objects = [raw for raw in load(source) if isinstance(raw, Mapping)]
    found = [raw for raw in objects if raw.get("kind") == DEPLOYMENT_KIND]
    if not found:
        raise Unreadable(f"{source}: no {DEPLOYMENT_KIND} in it")
    return found


def _catalog(path: Path | None) -> Catalog:
    found = builtin()
    for document in load(path) if path is not None else ():
        try:
            found = extended(found, document)
        except CatalogInvalid as error:
            raise Unreadable(f"{path}: {error}") from error
    return found


def _documents(raw: Mapping[str, Any], only: str | None, catalog: Catalog, image: str) -> Iterator[Json]:
    if (fault := fault_of(raw)) is not None:
        raise _refused(raw, (Problem(fault[0] or ".", fault[1]),))
    try:
        deployment = parse_deployment(raw)
    except SpecInvalid as error:
        raise _refused(raw, error.problems) from error
    if problems := problems_in_templates(deployment.spec):
        raise _refused(raw, problems)
    written = {pool.name: pool for pool in deployment.spec.pools}
    for pool in pools_of(deployment.spec):
        if only in (None, pool.name):
            revision = revision_of(deployment.spec, written.get(pool.name))
            yield from _pool(deployment, pool, revision, catalog, image)


def _pool(
    deployment: DeepSeekV4Deployment, pool: Pool, revision: str, catalog: Catalog, image: str
) -> Iterator[Json]:
    several = (pool.hardware.nodes_per_instance or 1) > 1
    owner = leader_worker_set if several else replica_set
    yield _without_owner(owner(deployment, "", pool, revision, pool.replicas, catalog, image))
    yield _without_owner(service(deployment, "", pool.name))
    if pool.replicas > 1:
        yield _without_owner(disruption_budget(deployment, "", pool.name))


def _without_owner(document: Json) -> Json:
    metadata = {k: v for k, v in document["metadata"].items() if k != "ownerReferences" and v is not None}
    return document | {"metadata": metadata}


def _refused(raw: Mapping[str, Any], problems: tuple[Problem, ...]) -> click.ClickException:
    metadata = raw.get("metadata")
    name = metadata.get("name", "?") if isinstance(metadata, Mapping) else "?"
    return click.ClickException("\n".join([f"{name} is refused:", *(f"  {problem}" for problem in problems)]))


class _Dumper(yaml.SafeDumper):
    """Texts of several lines stay readable, and no anchors are made for what occurs twice."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    style = "|" if "\n" in value else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)
