"""The only file that knows kopf: a doorbell. It watches our kind and touches the scheduler, and writes nothing."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import kopf

from kintsugi.adapters.kube.client import load_configuration
from kintsugi.core.names import DEPLOYMENT_PLURAL, GROUP, VERSION
from kintsugi.core.snapshot import Key

Ring = Callable[[Key, bool], None]
"""Called with a deployment and whether it is gone."""


def registry_for(ring: Ring) -> kopf.OperatorRegistry:
    """Handlers for one operator, in a registry of their own: importing this module registers nothing."""
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    def login(**kwargs: Any) -> kopf.ConnectionInfo | None:
        inside = kopf.login_with_service_account(**kwargs)
        if inside is None:
            return kopf.login_with_kubeconfig(**kwargs)
        # kopf asks the cluster's DNS for the API server; we go where all our other calls go, with or without a DNS.
        return replace(inside, server=load_configuration().host)

    @kopf.on.event(GROUP, VERSION, DEPLOYMENT_PLURAL, registry=registry)
    async def rang(*, namespace: str | None, name: str, type: str, **_: Any) -> None:
        ring(Key(namespace or "", name), type == "DELETED")

    return registry


def operator_settings() -> kopf.OperatorSettings:
    """kopf's settings, each with its reason."""
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False  # events are ours, deduplicated by cause
    settings.scanning.disabled = True  # no watch on CRDs and namespaces: the rights for it are not needed
    settings.networking.request_timeout = 30
    settings.networking.connect_timeout = 10
    settings.watching.server_timeout = 600  # a watch that dies in silence is renewed (kopf #585, #957, #1276)
    settings.watching.client_timeout = 660
    settings.watching.connect_timeout = 10
    settings.peering.standalone = (
        True  # our Lease decides who acts, never a peering object that a stranger made
    )
    return settings


async def watch(ring: Ring, namespaces: tuple[str, ...], stop: asyncio.Event, identity: str) -> None:
    """Watch deployments until `stop` is set. `identity` is told to kopf, which would else ask for the user's name."""
    await kopf.operator(
        registry=registry_for(ring),
        settings=operator_settings(),
        clusterwide=not namespaces,
        namespaces=namespaces,
        standalone=True,
        stop_flag=stop,
        identity=cast(Any, identity),
    )
