"""What the verbs of a person (approve, reset, pause, resume) have in common."""

import asyncio
import getpass
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

import click

from kintsugi.adapters.kube.hand import Hand
from kintsugi.cli.trouble import trouble
from kintsugi.ports.errors import PortError

C = TypeVar("C", bound=Callable[..., Any])
Json = dict[str, Any]

CLUSTER_OPTIONS: Final = (
    click.option("-n", "--namespace", help="Namespace to look in. Default: all."),
    click.option(
        "--kubeconfig", type=click.Path(exists=True, dir_okay=False), help="Default: the usual one."
    ),
    click.option("--context", help="Context of the kubeconfig."),
)


class NotDone(click.ClickException):
    """Nothing was changed, and why."""

    exit_code = 2


def on_a_cluster(command: C) -> C:
    """The options that name a cluster and a namespace."""
    for option in reversed(CLUSTER_OPTIONS):
        command = option(command)
    return command


def carry_out(
    kubeconfig: str | None, context: str | None, work: Callable[[Hand], Coroutine[Any, Any, None]]
) -> None:
    """Run `work` against the cluster; what goes wrong there is told in one line."""

    async def run() -> None:
        async with Hand(kubeconfig, context) as hand:
            await work(hand)

    try:
        asyncio.run(run())
    except (PortError, OSError) as error:
        raise NotDone(trouble(error)) from error


def the_one(found: list[Json], kind: str, name: str, namespace: str | None) -> Json:
    """The only object of that name; NotDone where there is none, or one in each of several namespaces."""
    if len(found) == 1:
        return found[0]
    if found:
        where = ", ".join(sorted(identity(each)[0] for each in found))
        raise NotDone(f"{kind} {name} is in several namespaces ({where}): say which with -n")
    raise NotDone(
        f"there is no {kind} {name} in {f'namespace {namespace}' if namespace else 'any namespace'}"
    )


def identity(raw: Json) -> tuple[str, str]:
    """(namespace, name) of an object."""
    metadata = raw.get("metadata") or {}
    return str(metadata.get("namespace") or ""), str(metadata.get("name") or "")


def me() -> str:
    """Who runs the command, as the machine knows them."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "somebody"
