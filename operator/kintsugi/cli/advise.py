"""`kintsugi advise`: suggestions from live traffic. It reads; it never writes to a cluster."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import click
import kubernetes.config

from kintsugi.adapters.clock import SystemClock
from kintsugi.adapters.kube.client import KubeClient, load_configuration
from kintsugi.adapters.kube.cluster import KubeCluster
from kintsugi.adapters.kube.podpages import PodPages
from kintsugi.api.objects import SpecInvalid, parse_deployment
from kintsugi.cli.advise_table import show
from kintsugi.cli.manifests import Unreadable, documents
from kintsugi.cli.ranges import FiniteRange
from kintsugi.cli.savedpages import pages_in
from kintsugi.cli.trouble import trouble
from kintsugi.core.advisor.advice import Missing
from kintsugi.core.advisor.advise import Advice
from kintsugi.core.advisor.advise import advise as advice_on
from kintsugi.core.advisor.inforce import settings_of
from kintsugi.core.advisor.look import traffic_reader
from kintsugi.core.advisor.report import report
from kintsugi.core.advisor.saved import SavedInvalid, saved_head, without_heads
from kintsugi.core.advisor.settings import PoolSettings, unstated
from kintsugi.core.advisor.traffic import Glance, PoolTraffic, glance, pool_traffic
from kintsugi.core.names import DEPLOYMENT_KIND
from kintsugi.core.preflight.plain import fault_of
from kintsugi.core.snapshot import Key, Page
from kintsugi.ports.errors import Forbidden, PortError
from kintsugi.runtime.traffic import Keep, Watched, watch_traffic


class Unusable(click.ClickException):
    """What was given, or the cluster, can't be read."""

    exit_code = 2


@click.command()
@click.argument("deployment", required=False)
@click.option("-n", "--namespace", help="Namespace to look in. Default: all.")
@click.option(
    "--window",
    type=FiniteRange(min=1),
    help="Seconds to watch, or of saved pages the last so many. Default: 120; all saved pages.",
)
@click.option(
    "--every", type=FiniteRange(min=0.5), default=5.0, show_default=True, help="Seconds between pages."
)
@click.option(
    "--from",
    "source",
    type=click.Path(exists=True, path_type=Path),
    help="Saved pages (a file or a folder of files) instead of a cluster.",
)
@click.option(
    "-f",
    "--file",
    "manifest",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="With --from: the manifest whose settings were in force.",
)
@click.option(
    "--save",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Append every page read from a cluster to FILE.",
)
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
@click.option("--kubeconfig", type=click.Path(exists=True, dir_okay=False), help="Default: the usual one.")
@click.option("--context", help="Context of the kubeconfig.")
def advise(
    deployment: str | None,
    namespace: str | None,
    window: float | None,
    every: float,
    source: Path | None,
    manifest: Path | None,
    save: Path | None,
    output: str,
    kubeconfig: str | None,
    context: str | None,
) -> None:
    """Suggest settings from the traffic of a fleet. Nothing is changed.

    Reads the engines of DEPLOYMENT (default: of every one) for a while through the API server, or pages that were saved
    before, and prints suggestions with their arithmetic, and what could not be judged.
    """
    if source is not None and save is not None:
        raise click.UsageError("--save keeps what a cluster says; what --from reads is saved already")
    if source is not None:
        reports = [_from_files(source, manifest, window)]
    elif manifest is not None:
        raise click.UsageError("-f goes with --from: in a cluster the deployment itself says its settings")
    else:
        wait = 120.0 if window is None else window
        if output == "table":
            click.echo(f"Watching for {wait:g} s …", err=True)
        reports = _from_cluster(deployment, namespace, wait, every, save, kubeconfig, context)
    if output == "json":
        click.echo(json.dumps({"deployments": reports}, indent=2, ensure_ascii=False))
    else:
        show(reports)


def _from_cluster(
    deployment: str | None,
    namespace: str | None,
    window: float,
    every: float,
    save: Path | None,
    kubeconfig: str | None,
    context: str | None,
) -> list[dict[str, Any]]:
    try:
        configuration = load_configuration(kubeconfig, context)
    except (kubernetes.config.ConfigException, OSError) as error:
        raise Unusable(
            f"no cluster to read: {str(error).rstrip('.')}. Name one with --kubeconfig, or give --from"
        ) from error

    def wanted(key: Key) -> bool:
        return deployment is None or key.name == deployment

    async def watch(keep: Keep | None) -> list[Watched]:
        clock, client = SystemClock(), KubeClient(configuration)
        cluster = KubeCluster(client, clock.now, (namespace,) if namespace else ())
        try:
            return await watch_traffic(cluster, PodPages(client), clock, wanted, window, every, keep)
        finally:
            await client.close()

    try:
        if save is None:
            watched = asyncio.run(watch(None))
        else:
            with save.open("a", encoding="utf-8") as file:
                watched = asyncio.run(watch(_keeping(file)))
    except Forbidden as error:
        raise Unusable(f"{error}. Reading engines needs `get` on pods/proxy, and `list` on pods") from error
    except (PortError, OSError) as error:
        raise Unusable(trouble(error)) from error
    if not watched:
        where = f"namespace {namespace}" if namespace else "any namespace"
        raise Unusable(f"there is no DeepSeekV4Deployment {deployment or ''} in {where}".replace("  ", " "))
    return [_of_watched(each) for each in watched]


def _of_watched(watched: Watched) -> dict[str, Any]:
    """A fleet whose spec can't be read gets no advice, and keeps nobody else from theirs."""
    name, traffic = str(watched.key), watched.traffic()
    try:
        settings = settings_of(parse_deployment(watched.raw).spec)
    except SpecInvalid as error:
        why = tuple(Missing("", problem.path, problem.message) for problem in error.problems)
        return report(name, Advice((), why), traffic)
    return report(name, advice_on(settings, traffic), traffic)


def _keeping(file: IO[str]) -> Keep:
    def keep(pool: str, instance: str, time: float, text: str) -> None:
        page = without_heads(text)
        file.write(saved_head(pool, instance, time) + page + ("" if page.endswith("\n") else "\n"))

    return keep


def _from_files(source: Path, manifest: Path | None, window: float | None) -> dict[str, Any]:
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
    name, settings = _settings(manifest, glances)
    if "" in glances and len(settings) == 1 and settings[0].name not in glances:
        glances[settings[0].name] = glances.pop("")
    strange = sorted(set(glances) - {each.name for each in settings})
    if strange:
        said = f"pool {strange[0]}" if strange[0] else "no pool"
        known = ", ".join(each.name for each in settings)
        raise Unusable(f"{source}: its pages say {said}, and the manifest has {known}: say pool= as it has")
    traffic: Mapping[str, PoolTraffic] = {
        pool: pool_traffic(pool, seen, window) for pool, seen in glances.items()
    }
    return report(name, advice_on(settings, traffic), traffic)


def _settings(
    manifest: Path | None, glances: Mapping[str, Sequence[Glance]]
) -> tuple[str, tuple[PoolSettings, ...]]:
    if manifest is None:
        pools = sorted(glances)
        return "", tuple(unstated(pool, len({g.instance for g in glances[pool]})) for pool in pools)
    try:
        read = [each.raw for each in documents(manifest.read_text(encoding="utf-8-sig"))]
    except (OSError, UnicodeDecodeError, Unreadable) as error:
        raise Unusable(f"{manifest}: {error}") from error
    found = [raw for raw in read if isinstance(raw, dict) and raw.get("kind") == DEPLOYMENT_KIND]
    if len(found) != 1:
        raise Unusable(f"{manifest}: holds {len(found)} DeepSeekV4Deployments, one is needed")
    if (fault := fault_of(found[0])) is not None:
        raise Unusable(f"{manifest}: {fault[0] or '.'} {fault[1]}")
    try:
        parsed = parse_deployment(found[0])
    except SpecInvalid as error:
        raise Unusable(f"{manifest}: {error}") from error
    return parsed.metadata.name, settings_of(parsed.spec)
