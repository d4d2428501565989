"""`kintsugi explain`: why each instance is judged as it is, what holds healing back, and what would change that."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import click
import kubernetes.config

from kintsugi.adapters.clock import SystemClock
from kintsugi.adapters.kube.client import KubeClient, load_configuration
from kintsugi.adapters.kube.cluster import KubeCluster
from kintsugi.cli.manifests import Unreadable, documents
from kintsugi.cli.trouble import trouble
from kintsugi.core.explain.case import Case, case_of
from kintsugi.core.explain.fleet import explained
from kintsugi.core.explain.text import lines, printable
from kintsugi.core.moment import moment
from kintsugi.core.names import DEPLOYMENT_KIND, REMEDIATION_KIND
from kintsugi.core.snapshot import Key
from kintsugi.ports.errors import PortError

MOST_RECORDS: Final = 50
"""Remediations of a deployment that are read, newest first: their black boxes are large."""
Json = Mapping[str, Any]


class Unusable(click.ClickException):
    """What was given, or the cluster, can't be read."""

    exit_code = 2


@click.command()
@click.argument("deployment", required=False)
@click.argument("instance", required=False)
@click.option("-n", "--namespace", help="Namespace to look in. Default: all.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
@click.option(
    "-f",
    "--file",
    "source",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Saved objects (kubectl get -o yaml) instead of a cluster.",
)
@click.option("--kubeconfig", type=click.Path(exists=True, dir_okay=False), help="Default: the usual one.")
@click.option("--context", help="Context of the kubeconfig.")
def explain(
    deployment: str | None,
    instance: str | None,
    namespace: str | None,
    output: str,
    source: Path | None,
    kubeconfig: str | None,
    context: str | None,
) -> None:
    """Say why a fleet is as it is: verdicts, gates, attempts, and what would change them. Nothing is changed.

    Reads DEPLOYMENT (default: every one) with its Remediations and Events. Name an INSTANCE to hear all about one pod,
    also about one that is gone: why it was replaced.
    """
    now: datetime | None = None
    if source is not None:
        cases = [case for case, _ in objects_in(source, deployment, namespace)]
    else:
        now = moment(SystemClock().now())
        cases = asyncio.run(_from_cluster(deployment, instance, namespace, kubeconfig, context))
    reports = [explained(case, instance) for case in cases]
    if instance is not None:
        reports = [each for each in reports if each["instances"] or each["attempts"] or each["past"]]
        if not reports:
            raise Unusable(_nobody(instance, cases))
    if output == "json":
        click.echo(json.dumps({"deployments": reports}, indent=2, ensure_ascii=False))
        return
    for index, report in enumerate(reports):
        if index:
            click.echo()
        for line in lines(report, now):
            click.echo(printable(line))


def _nobody(instance: str, cases: list[Case]) -> str:
    known = [one.name for case in cases for one in case.status.instances]
    there = (
        f"there are {', '.join(known[:10])}" + (" …" if len(known) > 10 else "") if known else "there is none"
    )
    return f"nothing is known of an instance {instance}, neither now nor in the Remediations read: {there}"


def objects_in(source: Path, deployment: str | None, namespace: str | None) -> list[tuple[Case, Json]]:
    """The deployments in a file of saved objects, with the records beside them and as written. Raises Unusable."""
    try:
        found = [each.raw for each in documents(source.read_text(encoding="utf-8-sig"))]
    except (OSError, UnicodeDecodeError, Unreadable) as error:
        raise Unusable(f"{source}: {error}") from error
    objects = [raw for raw in found if isinstance(raw, dict)]
    records = [raw for raw in objects if raw.get("kind") == REMEDIATION_KIND]
    events = [raw for raw in objects if raw.get("kind") == "Event"]
    cases: list[tuple[Case, Json]] = []
    for raw in objects:
        if raw.get("kind") != DEPLOYMENT_KIND:
            continue
        name, space = _identity(raw)
        if (deployment is None or name == deployment) and namespace in (None, space):
            mine = [
                r for r in records if _part(r, "spec").get("deployment") == name and _identity(r)[1] == space
            ]
            near = [e for e in events if _identity(e)[1] == space]
            cases.append((case_of(raw, mine, near), raw))
    if not cases:
        who = f"DeepSeekV4Deployment {deployment}" if deployment else "DeepSeekV4Deployment"
        raise Unusable(f"{source}: there is no {who} in it")
    return cases


def _part(raw: Json, name: str) -> Json:
    part = raw.get(name)
    return part if isinstance(part, Mapping) else {}


def _identity(raw: Json) -> tuple[Any, Any]:
    metadata = _part(raw, "metadata")
    return metadata.get("name"), metadata.get("namespace")


async def _from_cluster(
    deployment: str | None,
    instance: str | None,
    namespace: str | None,
    kubeconfig: str | None,
    context: str | None,
) -> list[Case]:
    try:
        configuration = load_configuration(kubeconfig, context)
    except (kubernetes.config.ConfigException, OSError) as error:
        raise Unusable(
            f"no cluster to read: {str(error).rstrip('.')}. Name one with --kubeconfig, or give -f"
        ) from error
    client = KubeClient(configuration)
    cluster = KubeCluster(client, SystemClock().now, (namespace,) if namespace else ())
    try:
        found = [raw for raw in await cluster.list_deployments() if deployment in (None, _identity(raw)[0])]
        cases = [await read_case(cluster, raw, instance) for raw in found]
    except (PortError, OSError) as error:
        raise Unusable(trouble(error)) from error
    finally:
        await client.close()
    if not cases:
        where = f"namespace {namespace}" if namespace else "any namespace"
        raise Unusable(f"there is no DeepSeekV4Deployment {deployment or ''} in {where}".replace("  ", " "))
    return cases


async def read_case(cluster: KubeCluster, raw: Json, instance: str | None, known: Sequence[str] = ()) -> Case:
    """A deployment with its records; what may not be read is named after what is `known` to be missing, and takes nothing
    else away."""
    name, space = _identity(raw)
    key = Key(str(space or ""), str(name or ""))
    troubles: list[str] = [*known]
    records: list[Any] = []
    events: list[Any] = []
    try:
        names = sorted(await cluster.list_remediation_names(key), key=lambda one: one[1], reverse=True)
        records = [
            found
            for each, _ in names[:MOST_RECORDS]
            if (found := await cluster.get_remediation(key.namespace, each)) is not None
        ]
        if len(names) > MOST_RECORDS:
            troubles.append(f"Remediations: the newest {MOST_RECORDS} of {len(names)} were read")
    except PortError as error:
        troubles.append(f"Remediations: {trouble(error)}")
    try:
        for about, uid in _subjects(raw, records, instance):
            events += await cluster.list_pod_events(key.namespace, about, uid)
    except PortError as error:
        troubles.append(f"Events: {trouble(error)}")
    return case_of(raw, records, events, troubles)


def _subjects(raw: Json, records: Sequence[Json], instance: str | None) -> list[tuple[str, str]]:
    """Whose Events are read (name, UID): the deployment's, and those of one instance, also of one that has gone."""
    metadata = _part(raw, "metadata")
    found = {str(metadata.get("uid") or ""): str(metadata.get("name") or "")}
    entries = _part(raw, "status").get("instances")
    known = [
        *(entries if isinstance(entries, list) else ()),
        *(_part(_part(r, "spec"), "instance") for r in records),
    ]
    for entry in known:
        if instance is not None and isinstance(entry, Mapping) and entry.get("name") == instance:
            found[str(entry.get("uid") or "")] = instance
    return [(name, uid) for uid, name in found.items() if uid]
