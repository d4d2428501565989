"""`kintsugi reset`: a person lets healing begin anew after a breaker, or after the ladder has ended."""

from typing import Any

import click

from kintsugi.adapters.clock import SystemClock
from kintsugi.adapters.kube.hand import Hand
from kintsugi.api.model import format_timestamp
from kintsugi.cli.verbs import carry_out, identity, on_a_cluster, the_one
from kintsugi.core.ledger import RESET_BREAKERS_ANNOTATION
from kintsugi.core.moment import moment
from kintsugi.core.names import DEPLOYMENT_KIND, DEPLOYMENT_PLURAL, RESET_LADDERS_ANNOTATION


@click.command()
@click.argument("deployment")
@click.option("--breakers", is_flag=True, help="Only breakers (NotCured, Ambiguous, WorseAfter).")
@click.option("--ladders", is_flag=True, help="Only exhausted lines, and strikes of nodes.")
@on_a_cluster
def reset(
    deployment: str,
    breakers: bool,
    ladders: bool,
    namespace: str | None,
    kubeconfig: str | None,
    context: str | None,
) -> None:
    """Close the breakers of DEPLOYMENT and let exhausted lines begin anew.

    Whatever was seen before counts no more: the judge's evidence starts from now, so nothing is removed for a full
    window. Budgets are not given back. What is under way goes on.
    """
    both = breakers == ladders

    async def work(hand: Hand) -> None:
        found = the_one(await hand.deployments(namespace, deployment), DEPLOYMENT_KIND, deployment, namespace)
        space, name = identity(found)
        held = (found.get("status") or {}).get("remediations") or {}
        open_breakers = [_breaker(b) for b in held.get("breakers") or ()] if both or breakers else []
        ended = (
            [_line(e) for e in held.get("lineages") or () if e.get("exhausted")] if both or ladders else []
        )
        struck = [_strike(s) for s in held.get("strikes") or ()] if both or ladders else []
        told = [*open_breakers, *ended, *struck]
        if not told:
            click.echo(f"{space}/{name}: no breaker is open and no line is exhausted: nothing to reset")
            return
        now = format_timestamp(moment(SystemClock().now()))
        said: dict[str, str | None] = {}
        if both or breakers:
            said[RESET_BREAKERS_ANNOTATION] = now
        if both or ladders:
            said[RESET_LADDERS_ANNOTATION] = now
        await hand.annotate(DEPLOYMENT_PLURAL, space, name, said)
        click.echo(f"{space}/{name}: reset at {now}; evidence starts from now")
        for line in told:
            click.echo(f"  {line}")

    carry_out(kubeconfig, context, work)


def _breaker(raw: dict[str, Any]) -> str:
    return f"breaker of pool {raw.get('pool')} ({raw.get('reason')}): {raw.get('message', '')}"


def _line(raw: dict[str, Any]) -> str:
    return f"exhausted line of pod {raw.get('uid')} after {raw.get('attempts', 0)} attempts"


def _strike(raw: dict[str, Any]) -> str:
    return f"{raw.get('count', 0)} strikes of node {raw.get('node')}"
