"""The only file that knows kopf: a doorbell. It watches our kind and touches the scheduler, and writes nothing."""

import asyncio
import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, cast

import kopf

from kintsugi.adapters.kube.client import load_configuration
from kintsugi.core.names import DEPLOYMENT_PLURAL, GROUP, VERSION
from kintsugi.core.snapshot import Key

log = logging.getLogger("kintsugi.doorbell")

Ring = Callable[[Key, bool], None]
"""Called with a deployment and whether it is gone."""
AGAIN_SECONDS: Final = 5.0
"""Between the end of a watch and the next; every pass reads for itself meanwhile."""
END_SECONDS: Final = 10.0
"""How long the end of a watch is waited for; its thread holds no process up."""


def registry_for(ring: Callable[[Key, bool], object]) -> kopf.OperatorRegistry:
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
    """Watch deployments until `stop` is set. `identity` is told to kopf, which would else ask for the user's name.

    kopf runs in a thread and a loop of its own. Where a watch is refused (410 Gone at its very start) it gives up, and ends
    every task of its loop with it: here that is its own alone, and it begins again.
    """
    loop = asyncio.get_running_loop()
    bell = _Doorbell(lambda key, gone: loop.call_soon_threadsafe(ring, key, gone), namespaces, identity)
    bell.start()
    try:
        await stop.wait()
    finally:
        bell.end()
        await asyncio.to_thread(bell.join, END_SECONDS)


class _Doorbell(threading.Thread):
    """Runs kopf, again and again, until `end`."""

    def __init__(
        self, ring: Callable[[Key, bool], object], namespaces: tuple[str, ...], identity: str
    ) -> None:
        super().__init__(name="doorbell", daemon=True)
        self._ring = ring
        self._namespaces = namespaces
        self._identity = identity
        self._ended = threading.Event()
        self._flag: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None

    def run(self) -> None:
        while not self._ended.is_set():
            try:
                asyncio.run(self._listen())
            except Exception:
                log.exception("the watch ended by an error, and begins again")
            self._ended.wait(AGAIN_SECONDS)

    def end(self) -> None:
        """Ask it to end; returns at once."""
        self._ended.set()
        if self._flag is not None:
            loop, flag = self._flag
            with suppress(RuntimeError):  # it has just ended by itself
                loop.call_soon_threadsafe(flag.set)

    async def _listen(self) -> None:
        flag = asyncio.Event()
        self._flag = asyncio.get_running_loop(), flag
        if self._ended.is_set():
            return
        await kopf.operator(
            registry=registry_for(self._ring),
            settings=operator_settings(),
            clusterwide=not self._namespaces,
            namespaces=self._namespaces,
            standalone=True,
            stop_flag=flag,
            identity=cast(Any, self._identity),
        )
