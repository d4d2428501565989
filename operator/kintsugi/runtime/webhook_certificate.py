"""Keeps the webhook's certificate: made, shared between replicas, trusted by the API server, renewed, repaired.

Level-triggered, on every replica: each look compares what is with what should be. The Secret is written under its
resourceVersion, so that replicas agree by whoever was first.
"""

import asyncio
import logging
import ssl
import tempfile
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, TypeAlias

from kintsugi.adapters.certificates import CertificateUnreadable, ServingPair, make_pair, read_pair
from kintsugi.adapters.kube.admission import is_owned, is_trusted, owner_of, secret_data
from kintsugi.ports.clock import Clock
from kintsugi.ports.errors import AlreadyExists, Conflict, PortError

log = logging.getLogger("kintsugi.webhook")

Json: TypeAlias = dict[str, Any]

LOOK_SECONDS: Final = 10.0
"""Between looks: a Secret or a caBundle that went is back within this time."""
SOON_SECONDS: Final = 2.0
"""Until the next look where this one began something: API servers hear of new authorities within a second or so."""
CERTIFICATE_KEY, PRIVATE_KEY, AUTHORITIES_KEY = "tls.crt", "tls.key", "ca.crt"
"""Keys of the Secret: Kubernetes' own for the type kubernetes.io/tls, and cert-manager's for the third."""


class Objects(Protocol):
    """What is asked of the API server."""

    async def get_configuration(self, name: str) -> Json | None: ...

    async def get_secret(self, namespace: str, name: str) -> Json | None: ...

    async def create_secret(
        self, namespace: str, name: str, data: Mapping[str, bytes], owner: Json | None
    ) -> None: ...

    async def replace_secret(self, secret: Json, data: Mapping[str, bytes], owner: Json | None) -> None: ...

    async def trust(self, configuration: Json, authorities: bytes) -> None: ...


class CertificateKeeper:
    """One replica's share of the work. `context` always serves the certificate that was loaded last."""

    def __init__(
        self, objects: Objects, clock: Clock, namespace: str, name: str, note: Callable[[str, float], None]
    ) -> None:
        """`name` is that of the Service, of the Secret beside it, and of the configuration.

        `note` is told the Secret's name and when its certificate ends, once it is in use.
        """
        self._note = note
        self._objects = objects
        self._clock = clock
        self._namespace = namespace
        self._name = name
        self._names = (f"{name}.{namespace}.svc", f"{name}.{namespace}.svc.cluster.local")
        self._loaded: ServingPair | None = None
        self._said = ""
        self._wrote = False
        """Whether the look before this one wrote the Secret."""
        self._owners: set[str] = set()
        """Configurations that the Secret was given to: what takes it away again is not fought."""
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.serving = asyncio.Event()
        """Set from when the first certificate is loaded."""
        self.unneeded = False
        """No configuration sends anything here, so nothing is missing."""

    @property
    def expires_at(self) -> float:
        """When the certificate in use ends, epoch seconds; 0 while there is none."""
        return self._loaded.expires_at if self._loaded is not None else 0.0

    @property
    def ready(self) -> bool:
        """Whether the API server can reach a checked answer here, as far as this replica knows."""
        return self.unneeded or self._clock.now() < self.expires_at

    async def look(self) -> float:
        """One look; seconds until the next. What goes wrong is logged once and tried again."""
        try:
            delay = await self._look()
        except (Conflict, AlreadyExists):
            return SOON_SECONDS  # another replica was first: its certificate is ours too
        except PortError as error:
            self._say(f"the certificate can't be looked after: {error}")
            return LOOK_SECONDS
        return delay

    async def _look(self) -> float:
        now = self._clock.now()
        configuration = await self._objects.get_configuration(self._name)
        self.unneeded = configuration is None
        if configuration is None:
            self._say(f"ValidatingWebhookConfiguration {self._name} is gone: nothing is checked")
            return LOOK_SECONDS
        owner = owner_of(configuration)
        secret = await self._objects.get_secret(self._namespace, self._name)
        pair = self._usable(secret)
        if pair is None or not pair.serves(self._names, now):
            return await self._write(secret, make_pair(self._names, now, pair or self._loaded), owner)
        if secret is not None and not is_owned(secret, owner) and owner["uid"] not in self._owners:
            self._owners.add(owner["uid"])
            return await self._write(secret, pair, owner)
        self._wrote = False
        told = not is_trusted(configuration, pair.trusted(now))
        if told:
            await self._objects.trust(configuration, pair.trusted(now))
        if pair != self._loaded:
            if told and self._loaded is not None and now < self._loaded.expires_at:
                return SOON_SECONDS  # the old one is still trusted; not every API server has heard of the new
            self._load(pair)
        self._said = ""
        return LOOK_SECONDS

    def _usable(self, secret: Json | None) -> ServingPair | None:
        if secret is None:
            return None
        data = secret_data(secret)
        try:
            return read_pair(*(data.get(key, b"") for key in (CERTIFICATE_KEY, PRIVATE_KEY, AUTHORITIES_KEY)))
        except CertificateUnreadable as error:
            self._say(f"Secret {self._name} is written anew: {error}")
            return None

    async def _write(self, secret: Json | None, pair: ServingPair, owner: Json) -> float:
        """Have the Secret hold this pair; seconds until the next look, which finds out who was first."""
        data = {
            CERTIFICATE_KEY: pair.certificate,
            PRIVATE_KEY: pair.key,
            AUTHORITIES_KEY: pair.all_authorities,
        }
        if secret is None:
            await self._objects.create_secret(self._namespace, self._name, data, owner)
        else:
            await self._objects.replace_secret(secret, data, owner)
        log.info("webhook certificate written", extra={"secret": self._name, "until": int(pair.expires_at)})
        again, self._wrote = self._wrote, True
        return LOOK_SECONDS if again else 0.0  # somebody undoes what is written: no race with him

    def _load(self, pair: ServingPair) -> None:
        """Use it for every handshake from now on; connections that stand keep theirs."""
        # TLS reads files alone: this one is ours to read only, and gone at once.
        with tempfile.NamedTemporaryFile(prefix="kintsugi-webhook-") as file:
            file.write(pair.certificate + pair.key)
            file.flush()
            self.context.load_cert_chain(file.name)
        self._loaded = pair
        self.serving.set()
        self._note(self._name, pair.expires_at)
        log.info("webhook certificate in use", extra={"until": int(pair.expires_at)})

    def _say(self, text: str) -> None:
        """Warn, unless it was the last thing said."""
        if text != self._said:
            self._said = text
            log.warning(text)


async def keep(keeper: CertificateKeeper, clock: Clock) -> None:
    """Look for ever. Nothing that goes wrong here ends the operator: what served before serves on."""
    while True:
        try:
            delay = await keeper.look()
        except Exception:
            log.exception("webhook certificate not looked after")
            delay = LOOK_SECONDS
        await clock.sleep(delay)
