"""`kintsugi pause` and `kintsugi resume`: hold healing for a named reason, so that nobody ends another's pause."""

import re
from typing import Final

import click

from kintsugi.adapters.clock import SystemClock
from kintsugi.adapters.kube.hand import Hand
from kintsugi.api.model import format_timestamp
from kintsugi.cli.verbs import Json, NotDone, carry_out, identity, me, on_a_cluster, the_one
from kintsugi.core.moment import moment
from kintsugi.core.names import DEPLOYMENT_KIND, DEPLOYMENT_PLURAL, PAUSE_ANNOTATION_PREFIX

REASON: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,55}[A-Za-z0-9])?")
"""What may follow `pause.` in the name of an annotation (Kubernetes documentation, "Annotations")."""


@click.command()
@click.argument("deployment")
@click.option("--reason", required=True, help="Name of the reason, one word; only its own resume ends it.")
@on_a_cluster
def pause(
    deployment: str, reason: str, namespace: str | None, kubeconfig: str | None, context: str | None
) -> None:
    """Begin nothing new in DEPLOYMENT until the reason is gone. What is under way is finished."""
    if not REASON.fullmatch(reason):
        raise NotDone(
            f"--reason {reason!r}: letters, digits, '-', '_' and '.', 57 at most, such as maintenance-42"
        )

    async def work(hand: Hand) -> None:
        found = the_one(await hand.deployments(namespace, deployment), DEPLOYMENT_KIND, deployment, namespace)
        space, name = identity(found)
        now = format_timestamp(moment(SystemClock().now()))
        value = f"by {me()} at {now}"
        await hand.annotate(DEPLOYMENT_PLURAL, space, name, {f"{PAUSE_ANNOTATION_PREFIX}{reason}": value})
        click.echo(
            f"{space}/{name}: healing is paused ({reason}). End it: kintsugi resume {name} -n {space} --reason {reason}"
        )

    carry_out(kubeconfig, context, work)


@click.command()
@click.argument("deployment")
@click.option(
    "--reason", default=None, help="Name of the reason that is gone. Default: list those that hold."
)
@on_a_cluster
def resume(
    deployment: str, reason: str | None, namespace: str | None, kubeconfig: str | None, context: str | None
) -> None:
    """Take one reason for the pause of DEPLOYMENT away; healing goes on when none is left."""

    async def work(hand: Hand) -> None:
        found = the_one(await hand.deployments(namespace, deployment), DEPLOYMENT_KIND, deployment, namespace)
        space, name = identity(found)
        annotated, written = _reasons(found)
        if reason is None:
            _tell(f"{space}/{name}", annotated, written)
            return
        if reason in written:
            raise NotDone(
                f"{reason} stands in spec.healing.pauseRequests: take it out where the manifest is kept"
            )
        if reason not in annotated:
            held = ", ".join([*annotated, *written]) or "none"
            raise NotDone(f"{space}/{name} is not paused for {reason}; reasons that hold: {held}")
        await hand.annotate(DEPLOYMENT_PLURAL, space, name, {f"{PAUSE_ANNOTATION_PREFIX}{reason}": None})
        left = [each for each in [*annotated, *written] if each != reason]
        rest = f"still paused: {', '.join(left)}" if left else "healing goes on"
        click.echo(f"{space}/{name}: {reason} is gone; {rest}")

    carry_out(kubeconfig, context, work)


def _reasons(raw: Json) -> tuple[list[str], list[str]]:
    """Reasons by annotation, and those in the spec."""
    annotations = (raw.get("metadata") or {}).get("annotations") or {}
    prefix = PAUSE_ANNOTATION_PREFIX
    healing = (raw.get("spec") or {}).get("healing") or {}
    return (
        sorted(key.removeprefix(prefix) for key in annotations if key.startswith(prefix)),
        sorted(healing.get("pauseRequests") or ()),
    )


def _tell(name: str, annotated: list[str], written: list[str]) -> None:
    if not annotated and not written:
        click.echo(f"{name}: healing is not paused")
    for each in annotated:
        click.echo(f"{name}: paused for {each}; end it with --reason {each}")
    for each in written:
        click.echo(f"{name}: paused for {each}, in spec.healing.pauseRequests")
