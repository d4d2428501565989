"""`kintsugi record`: keeps what live engines say, for `kintsugi backtest`. It reads; it never writes to a cluster."""

import asyncio
from dataclasses import dataclass
from pathlib import Path

import click
import kubernetes.config
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from kintsugi.adapters.clock import SystemClock
from kintsugi.adapters.kube.client import KubeClient, load_configuration
from kintsugi.adapters.kube.cluster import KubeCluster
from kintsugi.adapters.kube.podpages import PodPages
from kintsugi.cli.ranges import FiniteRange
from kintsugi.cli.recordfile import RecordWriter
from kintsugi.cli.trouble import trouble
from kintsugi.core.names import DEPLOYMENT_KIND
from kintsugi.core.snapshot import Key
from kintsugi.ports.errors import Forbidden, PortError
from kintsugi.runtime.recording import Recording, Sweep


class Unusable(click.ClickException):
    """The cluster can't be read, or the file can't be written."""

    exit_code = 2


@click.command()
@click.argument("deployment", required=False)
@click.option("-n", "--namespace", help="Namespace to look in. Default: all.")
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="File to write, compressed by gzip.",
)
@click.option(
    "--for",
    "seconds",
    type=FiniteRange(min=1),
    default=3600.0,
    show_default=True,
    help="Seconds to record.",
)
@click.option(
    "--every",
    type=FiniteRange(min=1, max=30),
    default=5.0,
    show_default=True,
    help="Seconds between looks.",
)
@click.option("--kubeconfig", type=click.Path(exists=True, dir_okay=False), help="Default: the usual one.")
@click.option("--context", help="Context of the kubeconfig.")
def record(
    deployment: str | None,
    namespace: str | None,
    output: Path,
    seconds: float,
    every: float,
    kubeconfig: str | None,
    context: str | None,
) -> None:
    """Record the engines of DEPLOYMENT through the API server, for `kintsugi backtest --from FILE`.

    Keeps every page and what is known of its pod. Ctrl-C ends it early; the file can be read then, and even after
    this program was killed. DEPLOYMENT may be left out where there is one.
    """
    try:
        configuration = load_configuration(kubeconfig, context)
    except (kubernetes.config.ConfigException, OSError) as error:
        raise Unusable(f"no cluster to read: {str(error).rstrip('.')}. Name one with --kubeconfig") from error

    seen = _Seen()

    async def run() -> None:
        clock, client = SystemClock(), KubeClient(configuration)
        try:
            cluster = KubeCluster(client, clock.now, (namespace,) if namespace else ())
            key = await _wanted(cluster, deployment, namespace)
            with _writer(output) as writer, _progress() as progress:
                task = progress.add_task(f"{key}", total=seconds, said="")
                begin = clock.now()

                def told(sweep: Sweep) -> None:
                    writer.flush()
                    seen.note(sweep, not progress.disable)
                    said = sweep.trouble or f"{sweep.pages} of {sweep.pods} pods read, {writer.bytes:,} bytes"
                    progress.update(task, completed=sweep.at - begin, said=said)

                await Recording(cluster, PodPages(client), clock, key, writer.write).run(seconds, every, told)
        finally:
            await client.close()

    try:
        asyncio.run(run())
    except KeyboardInterrupt:
        if not seen.pages:
            raise Unusable(f"stopped before any page was read{seen.why()}") from None
        click.echo(f"stopped; {output} holds what was seen until now")
        return
    except Forbidden as error:
        raise Unusable(f"{error}. Recording needs `get` on pods/proxy, and `list` on pods") from error
    except (PortError, OSError) as error:
        raise Unusable(trouble(error)) from error
    if not seen.pages:
        raise Unusable(f"not one page was read in {seconds:.0f} s{seen.why()}")
    click.echo(f"{output}: {seen.pages} pages. Next: kintsugi backtest -f POLICY.yaml --from {output}")


@dataclass(slots=True)
class _Seen:
    """How a recording went until now."""

    pages: int = 0
    trouble: str = ""
    """The newest."""

    def note(self, sweep: Sweep, shown: bool) -> None:
        """Take in one look; the first trouble is told on stderr where no progress is `shown`."""
        said = sweep.trouble or sweep.failure
        if said and not self.trouble and not shown:
            click.echo(f"trouble, and it goes on trying: {said}", err=True)
        self.pages += sweep.pages
        self.trouble = said or self.trouble

    def why(self) -> str:
        return f": {self.trouble}" if self.trouble else ""


async def _wanted(cluster: KubeCluster, name: str | None, namespace: str | None) -> Key:
    """The deployment that is meant; its namespace and name."""
    found = []
    for raw in await cluster.list_deployments():
        meta = raw.get("metadata") or {}
        key = Key(str(meta.get("namespace", "")), str(meta.get("name", "")))
        if name in (None, key.name) and namespace in (None, key.namespace):
            found.append(key)
    where = f"namespace {namespace}" if namespace else "any namespace"
    if not found:
        raise Unusable(f"there is no {DEPLOYMENT_KIND} {name or ''} in {where}".replace("  ", " "))
    if len(found) > 1:
        raise Unusable(f"there are {len(found)} ({', '.join(map(str, found[:5]))}): name one, with -n")
    return found[0]


def _writer(path: Path) -> RecordWriter:
    try:
        return RecordWriter(path)
    except FileExistsError as error:
        raise Unusable(f"{path} is there already: name another file; backtest takes several") from error


def _progress() -> Progress:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[said]}"),
    )
    console = Console(stderr=True)
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
