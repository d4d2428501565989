"""Builds the operator from its parts, once, and runs it until it is told to stop."""

import asyncio
import logging
import signal
from collections.abc import Sequence
from typing import Final

from kintsugi.adapters.clock import SystemClock
from kintsugi.adapters.engines import HttpEngines
from kintsugi.adapters.kube.admission import WebhookObjects
from kintsugi.adapters.kube.client import KubeClient, load_configuration
from kintsugi.adapters.kube.cluster import KubeCluster
from kintsugi.adapters.kube.lease import Leadership
from kintsugi.adapters.prometheus_live import PrometheusLive
from kintsugi.adapters.telemetry import Telemetry
from kintsugi.core.snapshot import Key
from kintsugi.ports.errors import PortError
from kintsugi.runtime import liveness
from kintsugi.runtime.handlers import watch
from kintsugi.runtime.measuring import Measuring
from kintsugi.runtime.reconcile import Reconciler
from kintsugi.runtime.scheduler import Scheduler
from kintsugi.runtime.settings import Settings
from kintsugi.runtime.webhook import Webhook, WebhookService
from kintsugi.runtime.webhook_certificate import CertificateKeeper
from kintsugi.runtime.webhook_check import preflight

log = logging.getLogger("kintsugi.operator")

LEADER_PAUSE_SECONDS: Final = 2.0


class Operator:
    """One process: a doorbell, a scheduler, a reconciler, a lease and a port for the kubelet and Prometheus."""

    def __init__(self, settings: Settings, kubeconfig: str | None = None, context: str | None = None) -> None:
        self._settings = settings
        self._clock = SystemClock()
        self._telemetry = Telemetry()
        client = KubeClient(
            load_configuration(kubeconfig, context),
            observer=self._telemetry.called,
            listener=self._clock.heard,
        )
        self._cluster = KubeCluster(client, self._clock.now, settings.watch_namespaces, settings.pod_name)
        self._engines = HttpEngines(self._clock.mono)
        self._measuring = Measuring(
            PrometheusLive(self._clock.mono),
            self._clock,
            settings.prometheus_url,
            settings.prometheus_token_file,
        )
        self._reconciler = Reconciler(
            self._cluster, self._engines, self._clock, self._telemetry, self._measuring, settings.image
        )
        self._scheduler = Scheduler(
            self._reconciler.run, self._clock, self._telemetry.passed, settings.max_passes
        )
        self._leadership = Leadership(
            self._cluster,
            self._clock,
            self._clock.wall,
            settings.namespace,
            settings.lease_name,
            settings.pod_name,
        )
        self._webhook = self._webhook_of(settings, client) if settings.webhook_name else None
        self._known: set[Key] = set()
        self._stop = asyncio.Event()

    async def run(self) -> None:
        """Run until SIGTERM or SIGINT. In-flight remediations stand in the API, so nothing is lost by stopping."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        progress = liveness.Progress(
            now=self._clock.mono,
            last_completed=lambda: self._scheduler.last_completed,
            busy=lambda: bool(self._scheduler.keys),
            stuck_seconds=self._settings.stuck_seconds,
        )
        ready = self._webhook.health if self._webhook is not None else lambda: ""
        server = await liveness.serve(self._settings.metrics_port, progress, ready, self._telemetry.page)
        log.info("operator started", extra={"settings": self._settings.model_dump(mode="json")})
        tasks = [
            asyncio.create_task(
                watch(self.ring, self._settings.watch_namespaces, self._stop, self._settings.pod_name),
                name="watch",
            ),
            asyncio.create_task(self._relist(), name="relist"),
            asyncio.create_task(self._lead(), name="lead"),
            asyncio.create_task(self._stop.wait(), name="stop"),
        ]
        if self._webhook is not None:  # whoever leads: every replica answers
            tasks.append(asyncio.create_task(self._webhook.run(), name="webhook"))
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()  # a part that ended by an error takes the process with it: the kubelet restarts it
        finally:
            self._stop.set()
            await self._close(tasks)
            await server.cleanup()

    def _webhook_of(self, settings: Settings, client: KubeClient) -> WebhookService:
        keeper = CertificateKeeper(
            WebhookObjects(client),
            self._clock,
            settings.namespace,
            settings.webhook_name,
            self._telemetry.certified,
        )
        webhook = Webhook(preflight, self._telemetry.reviewed)
        return WebhookService(webhook, keeper, self._clock, settings.webhook_port)

    def ring(self, key: Key, gone: bool) -> None:
        """A deployment changed, or is gone."""
        if gone:
            self._known.discard(key)
            self._scheduler.forget(key)
            self._reconciler.forget(key)
            return
        self._known.add(key)
        if self._leads():
            self._scheduler.touch(key)

    def _leads(self) -> bool:
        return not self._settings.leader_election or self._leadership.leading

    async def _lead(self) -> None:
        """Start looking when the Lease is ours, and stop when it is not; evidence then starts from nothing."""
        led = False
        while not self._stop.is_set():
            if self._settings.leader_election:
                await self._leadership.keep()
            leads = self._leads()
            if leads and not led:
                log.info("leads", extra={"lease": self._settings.lease_name})
                for key in self._known:
                    self._scheduler.touch(key)
            if led and not leads:
                log.warning("leads no longer", extra={"lease": self._settings.lease_name})
                await self._scheduler.close()
                for key in self._known:
                    self._reconciler.forget(key)
                self._clock.begin_anew()
            led = leads
            await self._pause(LEADER_PAUSE_SECONDS)

    async def _relist(self) -> None:
        """The safety net under the watch: a full list now and then (S28)."""
        while not self._stop.is_set():
            try:
                found = {_key(raw) for raw in await self._cluster.list_deployments()}
            except PortError as error:
                log.warning("deployments not listed", extra={"why": str(error)})
            else:
                for key in self._known - found:
                    self.ring(key, True)
                for key in found - set(self._scheduler.keys):
                    self.ring(key, False)
            await self._pause(self._settings.relist_seconds)

    async def _pause(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._stop.wait(), seconds)
        except TimeoutError:
            return

    async def _close(self, tasks: Sequence[asyncio.Task[object]]) -> None:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._scheduler.close()
        if self._settings.leader_election:
            await self._leadership.release()
        await self._measuring.close()
        await self._engines.close()
        await self._cluster.close()


def _key(raw: dict[str, object]) -> Key:
    metadata = raw["metadata"]
    assert isinstance(metadata, dict)
    return Key(str(metadata["namespace"]), str(metadata["name"]))
