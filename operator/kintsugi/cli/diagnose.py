"""`kintsugi diagnose`: the article's troubleshooting list, step by step, with evidence and cure."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import kubernetes.config

from kintsugi.adapters.clock import SystemClock
from kintsugi.adapters.kube.client import KubeClient, load_configuration
from kintsugi.adapters.kube.cluster import KubeCluster
from kintsugi.adapters.kube.podpages import PodPages
from kintsugi.cli.explain import Unusable, objects_in, read_case
from kintsugi.cli.ranges import FiniteRange
from kintsugi.cli.savedpages import pages_in
from kintsugi.cli.trouble import trouble
from kintsugi.core.advisor.look import traffic_reader
from kintsugi.core.advisor.saved import SavedInvalid
from kintsugi.core.advisor.traffic import Glance, PoolTraffic, glance, pool_traffic
from kintsugi.core.explain.diagnosis import LISTS, diagnosed
from kintsugi.core.explain.diagnosis_text import diagnosis_lines
from kintsugi.core.explain.scene import Scene
from kintsugi.core.explain.text import printable
from kintsugi.core.snapshot import Key, Page
from kintsugi.ports.errors import Forbidden, PortError
from kintsugi.runtime.traffic import Watched, watch_traffic


@click.command()
@click.argument("deployment", required=False)
@click.option("-n", "--namespace", help="Namespace to look in. Default: all.")
@click.option(
    "--symptom",
    "symptoms",
    type=click.Choice(list(LISTS)),
    multiple=True,
    help="Only this list; may be given again. Default: all three.",
)
@click.option(
    "--window",
    type=FiniteRange(min=1),
    help="Seconds to watch, or of saved pages the last so many. Default: 60; all saved pages.",
)
@click.option(
    "--every", type=FiniteRange(min=0.5), default=5.0, show_default=True, help="Seconds between pages."
)
@click.option(
    "--from",
    "source",
    type=click.Path(exists=True, path_type=Path),
    help="Saved or recorded pages (a file or a folder of files) instead of a cluster.",
)
@click.option(
    "-f",
    "--file",
    "objects",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Saved objects (kubectl get -o yaml) or a manifest instead of a cluster.",
)
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
@click.option("--kubeconfig", type=click.Path(exists=True, dir_okay=False), help="Default: the usual one.")
@click.option("--context", help="Context of the kubeconfig.")
def diagnose(
    deployment: str | None,
    namespace: str | None,
    symptoms: tuple[str, ...],
    window: float | None,
    every: float,
    source: Path | None,
    objects: Path | None,
    output: str,
    kubeconfig: str | None,
    context: str | None,
) -> None:
    """Walk the troubleshooting list: does memory leak, why has throughput fallen, why is the output wrong.

    Reads status, spec and the engines' pages of DEPLOYMENT for a while through the API server, or what was saved. Each
    step is ok, suspect or unknown, with its numbers, what is true about the usual advice, and the cure. Nothing is changed.
    """
    if source is not None or objects is not None:
        scenes = [_saved(deployment, namespace, source, objects, window)]
    else:
        wait = 60.0 if window is None else window
        if output == "table":
            click.echo(f"Watching for {wait:g} s …", err=True)
        scenes = asyncio.run(_live(deployment, namespace, wait, every, kubeconfig, context))
    reports = [diagnosed(scene, symptoms or tuple(LISTS)) for scene in scenes]
    if output == "json":
        click.echo(json.dumps({"deployments": reports}, indent=2, ensure_ascii=False))
        return
    for index, report in enumerate(reports):
        if index:
            click.echo()
        for line in diagnosis_lines(report):
            click.echo(printable(line))


def _saved(
    deployment: str | None,
    namespace: str | None,
    source: Path | None,
    objects: Path | None,
    window: float | None,
) -> Scene:
    traffic = None if source is None else _traffic_in(source, window)
    if objects is None:
        return Scene(deployment or "", traffic=traffic)
    found = objects_in(objects, deployment, namespace)
    if len(found) > 1:
        names = ", ".join(case.full_name for case, _ in found)
        raise Unusable(f"{objects}: holds several deployments ({names}): name one")
    ((case, raw),) = found
    return Scene(case.full_name, case, raw, traffic)


def _traffic_in(source: Path, window: float | None) -> Mapping[str, PoolTraffic]:
    reader = traffic_reader()
    glances: dict[str, list[Glance]] = {}
    try:
        for page in pages_in(source):
            seen = glance(reader, page.instance, Page(page.text, page.time))
            glances.setdefault(page.pool, []).append(seen)
    except (SavedInvalid, OSError) as error:
        raise Unusable(str(error)) from error
    if not glances:
        raise Unusable(f"{source}: there is no page in it")
    return {pool: pool_traffic(pool, seen, window) for pool, seen in sorted(glances.items())}


async def _live(
    deployment: str | None,
    namespace: str | None,
    window: float,
    every: float,
    kubeconfig: str | None,
    context: str | None,
) -> list[Scene]:
    try:
        configuration = load_configuration(kubeconfig, context)
    except (kubernetes.config.ConfigException, OSError) as error:
        raise Unusable(
            f"no cluster to read: {str(error).rstrip('.')}. Name one with --kubeconfig, or give --from or -f"
        ) from error
    clock, client = SystemClock(), KubeClient(configuration)
    cluster = KubeCluster(client, clock.now, (namespace,) if namespace else ())

    def wanted(key: Key) -> bool:
        return deployment is None or key.name == deployment

    watched: list[Watched] = []
    troubles: list[str] = []
    try:
        try:
            watched = await watch_traffic(cluster, PodPages(client), clock, wanted, window, every)
        except Forbidden as error:
            troubles.append(f"pages: {error}. Reading engines needs `get` on pods/proxy, and `list` on pods")
        traffic = {each.key: each.traffic() for each in watched}
        scenes = [
            await _scene(cluster, raw, traffic, troubles)
            for raw in await cluster.list_deployments()
            if wanted(_key(raw))
        ]
    except (PortError, OSError) as error:
        raise Unusable(trouble(error)) from error
    finally:
        await client.close()
    if not scenes:
        where = f"namespace {namespace}" if namespace else "any namespace"
        raise Unusable(f"there is no DeepSeekV4Deployment {deployment or ''} in {where}".replace("  ", " "))
    return scenes


async def _scene(
    cluster: KubeCluster,
    raw: Mapping[str, Any],
    traffic: Mapping[Key, Mapping[str, PoolTraffic]],
    troubles: list[str],
) -> Scene:
    case = await read_case(cluster, raw, None, troubles)
    return Scene(case.full_name, case, raw, traffic.get(_key(raw)))


def _key(raw: Mapping[str, Any]) -> Key:
    metadata = raw.get("metadata") or {}
    return Key(str(metadata.get("namespace", "")), str(metadata.get("name", "")))
