"""The history of `kintsugi backtest` where a Prometheus server holds it: which server, what is asked for, as whom."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import click
from click.core import ParameterSource

from kintsugi.adapters.clock import SystemClock
from kintsugi.api.effective import pools_of
from kintsugi.api.objects import DeepSeekV4Deployment
from kintsugi.core.advisor.saved import SavedPage
from kintsugi.core.secrecy import sendable, shown

OF_PROMETHEUS: Final = ("since", "until", "namespace", "selector", "token_file")


def refuse_options_of_prometheus(context: click.Context) -> None:
    """Raises UsageError where an option was given that says nothing of recorded files."""
    for parameter in context.command.params:
        given = context.get_parameter_source(str(parameter.name)) is not ParameterSource.DEFAULT
        if parameter.name in OF_PROMETHEUS and given:
            raise click.UsageError(
                f"{parameter.opts[-1]} is for --prometheus: of recorded files all is replayed"
            )


def bounds(said: dict[str, Any]) -> tuple[float, float]:
    """The history's beginning and end, in epoch seconds."""
    last = said["until"].timestamp() if said["until"] else SystemClock().now()
    return last - said["since"], last


def scraped(
    policy: DeepSeekV4Deployment, said: dict[str, Any], first: float, last: float
) -> tuple[Iterator[SavedPage], str, list[str]]:
    """(the looks, whose they are, and what is to be noted once they were read)."""
    from kintsugi.adapters.prometheus import PrometheusHistory

    configured = policy.spec.monitoring.prometheus
    url = said["prometheus"] or configured.url
    if not url:
        raise click.UsageError("say where the history is: --from FILE, or --prometheus URL")
    _check(url)
    token = _token(said["token_file"]) if said["token_file"] else ""
    selector = (said["selector"] or "").strip().strip("{}")
    if not selector:
        selector = pods_of(policy)
    namespace = said["namespace"] or policy.metadata.namespace or ""
    history = PrometheusHistory(url, configured.metric_prefix, token)
    return history.looks(first, last, namespace, selector), shown(url), history.notes


def pods_of(policy: DeepSeekV4Deployment) -> str:
    """The matcher of this deployment's pods, which their ReplicaSets name `<deployment>-<pool>-<revision>-<suffix>`.

    Another deployment's name may begin like this one's, so the pools are named.
    """
    pools = "|".join(re.escape(pool.name) for pool in pools_of(policy.spec))
    pattern = f"{re.escape(policy.metadata.name)}-({pools})-[0-9a-z]+-[0-9a-z]+"
    return f'pod=~"{pattern}"'.replace("\\", "\\\\")


def _check(url: str) -> None:
    if not re.match(r"https?://", url):
        raise click.BadParameter(
            f"{shown(url)!r} must begin with http:// or https://", param_hint="--prometheus"
        )
    try:
        parts = urlsplit(url)
        whole = bool(parts.hostname) and parts.port != 0
    except ValueError:
        whole = False
    if not whole:
        raise click.BadParameter(
            f"{shown(url)!r} is no whole URL, such as http://prometheus.monitoring:9090",
            param_hint="--prometheus",
        )


def _token(path: Path) -> str:
    """The token in a file; what stands there is never shown."""
    try:
        token = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        token = ""
    if not sendable(token):
        raise click.BadParameter(
            f"{path} holds no token: one word of ASCII letters, digits and signs", param_hint="--token-file"
        )
    return token
