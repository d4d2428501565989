"""Leader election by a Lease of coordination.k8s.io/v1: one process acts, another takes over when it falls silent.

Only a latency matter: two leaders at once are safe by the optimistic locks of every write. Expiry of another's Lease is
judged by how long *we* have seen it unchanged, never by comparing clocks of two machines (as client-go does).
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from kintsugi.adapters.kube.parse import rfc3339_micro
from kintsugi.ports.clock import Clock
from kintsugi.ports.errors import AlreadyExists, Conflict, NotFound, PortError

log = logging.getLogger("kintsugi.lease")

LEASE_SECONDS: Final = 15.0
RENEW_DEADLINE_SECONDS: Final = 10.0
"""client-go's own defaults: a leader that can't renew stops five seconds before anybody may take over."""


class LeaseApi(Protocol):
    """The three calls that a Lease needs."""

    async def get_lease(self, namespace: str, name: str) -> dict[str, Any] | None:
        """The Lease, or None."""
        ...

    async def create(self, manifest: dict[str, Any]) -> dict[str, Any]:
        """Create it; AlreadyExists where it is there."""
        ...

    async def replace_lease(self, lease: dict[str, Any]) -> dict[str, Any]:
        """Replace it; Conflict where somebody wrote since."""
        ...


class Leadership:
    """Whether this process leads. Call `keep` every two seconds or so, whoever leads.

    `wall` is the machine's own clock, in epoch seconds: it goes on where a suspended machine stops the others.
    """

    def __init__(
        self,
        api: LeaseApi,
        clock: Clock,
        wall: Callable[[], float],
        namespace: str,
        name: str,
        identity: str,
        lease_seconds: float = LEASE_SECONDS,
        renew_deadline_seconds: float = RENEW_DEADLINE_SECONDS,
    ) -> None:
        if renew_deadline_seconds >= lease_seconds:
            raise ValueError("a leader must stop before others may take over")
        self._api = api
        self._clock = clock
        self._wall = wall
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._lease_seconds = lease_seconds
        self._deadline = renew_deadline_seconds
        self._renewed: tuple[float, float] | None = None
        """Monotonic and wall time just before the last successful renewal was asked for."""
        self._seen: tuple[object, float] | None = None
        """The other's Lease as last read, and since when (monotonic) it is unchanged."""

    @property
    def leading(self) -> bool:
        """True until the deadline after the last renewal, by both clocks: a suspended machine stops one of them."""
        if self._renewed is None:
            return False
        mono, wall = self._renewed
        return self._clock.mono() - mono < self._deadline and self._wall() - wall < self._deadline

    async def keep(self) -> bool:
        """Renew, or try to acquire. What goes wrong is logged, and shows as `leading` becoming False in time."""
        began = (self._clock.mono(), self._wall())
        try:
            if await self._try():
                self._renewed = began
        except (Conflict, AlreadyExists):
            log.debug("another wrote the lease first", extra={"lease": self._name})
        except PortError as error:
            log.warning("lease not renewed", extra={"lease": self._name, "why": str(error)})
        return self.leading

    async def release(self) -> None:
        """Give the Lease back, so that another need not wait for its end. Never raises `PortError`s."""
        held, self._renewed = self._renewed, None
        if held is None:
            return
        try:
            lease = await self._api.get_lease(self._namespace, self._name)
            if lease is not None and _holder(lease) == self._identity:
                await self._api.replace_lease({**lease, "spec": {**lease["spec"], "holderIdentity": ""}})
        except PortError as error:
            log.warning("lease not given back", extra={"lease": self._name, "why": str(error)})

    async def _try(self) -> bool:
        lease = await self._api.get_lease(self._namespace, self._name)
        if lease is None:
            await self._api.create(self._manifest())
            return True
        if _holder(lease) not in ("", self._identity) and not self._expired(lease):
            self._renewed = None
            return False
        try:
            await self._api.replace_lease(self._taken(lease))
        except NotFound:
            return False
        return True

    def _expired(self, lease: Mapping[str, Any]) -> bool:
        """Whether another's Lease has stood unchanged, before our eyes, for as long as it says it lasts."""
        version, now = lease["metadata"].get("resourceVersion"), self._clock.mono()
        if self._seen is None or self._seen[0] != version:
            self._seen = (version, now)
        lasts = lease["spec"].get("leaseDurationSeconds") or self._lease_seconds
        return now - self._seen[1] >= float(lasts)

    def _taken(self, lease: Mapping[str, Any]) -> dict[str, Any]:
        spec = dict(lease.get("spec") or {})
        now = rfc3339_micro(self._clock.now())
        if spec.get("holderIdentity") != self._identity:
            spec |= {"acquireTime": now, "leaseTransitions": int(spec.get("leaseTransitions") or 0) + 1}
        spec |= {
            "holderIdentity": self._identity,
            "renewTime": now,
            "leaseDurationSeconds": int(self._lease_seconds),
        }
        return {**lease, "spec": spec}

    def _manifest(self) -> dict[str, Any]:
        now = rfc3339_micro(self._clock.now())
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"namespace": self._namespace, "name": self._name},
            "spec": {
                "holderIdentity": self._identity,
                "leaseDurationSeconds": int(self._lease_seconds),
                "acquireTime": now,
                "renewTime": now,
                "leaseTransitions": 0,
            },
        }


def _holder(lease: Mapping[str, Any]) -> str:
    return str((lease.get("spec") or {}).get("holderIdentity") or "")
