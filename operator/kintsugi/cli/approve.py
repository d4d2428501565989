"""`kintsugi approve`: let one recommended remediation go ahead, or take the word back."""

from typing import Any, Final

import click

from kintsugi.adapters.kube.hand import Hand
from kintsugi.cli.verbs import NotDone, carry_out, identity, me, on_a_cluster, the_one
from kintsugi.core.approval import APPROVER_LENGTH, REFUSALS
from kintsugi.core.explain.text import printable
from kintsugi.core.names import APPROVE_ANNOTATION, REMEDIATION_KIND, REMEDIATION_PLURAL

WAITS: Final = "AwaitingApproval"


@click.command()
@click.argument("name", required=False)
@click.option("--by", default=None, help="Who approves it. Default: the user of this machine.")
@click.option("--revoke", is_flag=True, help="Take the approval back; what was begun is not undone.")
@on_a_cluster
def approve(
    name: str | None,
    by: str | None,
    revoke: bool,
    namespace: str | None,
    kubeconfig: str | None,
    context: str | None,
) -> None:
    """Approve the Remediation NAME, which mode Recommend has prepared. Without NAME: list those that wait.

    The approval is of this one attempt. It expires when the trigger clears, and every gate is asked again before
    anything is done.
    """
    who = me() if by is None else by.strip()
    if who.lower() in REFUSALS or len(who) > APPROVER_LENGTH:
        raise NotDone(f"--by must name a person in 1 to {APPROVER_LENGTH} characters, not {who!r}")

    async def work(hand: Hand) -> None:
        if name is None:
            _list([raw for raw in await hand.remediations(namespace) if _phase(raw) == WAITS])
            return
        found = the_one(await hand.remediations(namespace, name), REMEDIATION_KIND, name, namespace)
        space, _ = identity(found)
        if _phase(found) != WAITS:
            raise NotDone(f"{space}/{name} does not wait for approval: {_stands(found)}")
        await hand.annotate(REMEDIATION_PLURAL, space, name, {APPROVE_ANNOTATION: None if revoke else who})
        instance = (found.get("spec") or {}).get("instance", {}).get("name", "")
        if revoke:
            click.echo(f"{space}/{name}: the approval is taken back; {instance} is left as it is")
        else:
            click.echo(
                f"{space}/{name}: approved by {who}. Every gate is asked again before {instance} is touched"
            )

    carry_out(kubeconfig, context, work)


def _phase(raw: dict[str, Any]) -> str:
    return str((raw.get("status") or {}).get("phase") or "")


def _stands(raw: dict[str, Any]) -> str:
    status = raw.get("status") or {}
    outcome = f" ({status['outcome']})" if status.get("outcome") else ""
    said = f": {status['message']}" if status.get("message") else ""
    return f"it is {status.get('phase') or 'not begun'}{outcome}{said}"


def _list(found: list[dict[str, Any]]) -> None:
    if not found:
        click.echo("No remediation waits for approval.")
        return
    for raw in sorted(found, key=identity):
        spec, status = raw.get("spec") or {}, raw.get("status") or {}
        space, name = identity(raw)
        victim = (spec.get("instance") or {}).get("name", "")
        why = status.get("why") or spec.get("trigger", "")
        click.echo(printable(f"{space}/{name}: {spec.get('remedy', '')} of {victim}: {why}"))
    click.echo("\nApprove one with: kintsugi approve NAME -n NAMESPACE")
