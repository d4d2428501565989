"""The webhook's two objects in memory, with resourceVersions and trouble to order."""

import base64
import copy
from collections.abc import Mapping
from typing import Any

from kintsugi.ports.errors import AlreadyExists, Conflict, PortError

Json = dict[str, Any]

NAMESPACE, NAME = "ops", "kintsugi-webhook"


class Objects:
    """Shared by all replicas of a test."""

    def __init__(self, *, configured: bool = True) -> None:
        self.configuration: Json | None = None
        self.secret: Json | None = None
        self.trouble: PortError | None = None
        """Raised by every call while set."""
        self.writes: list[str] = []
        self._version = 0
        if configured:
            self.configure()

    def configure(self) -> None:
        """Helm makes the configuration, anew."""
        self._version += 1
        self.configuration = {
            "metadata": {"name": NAME, "uid": f"uid-{self._version}"},
            "webhooks": [{"name": "preflight.kintsugi.dev", "clientConfig": {"service": {"name": NAME}}}],
        }

    @property
    def trusted(self) -> bytes:
        """What the API server would know the webhook by."""
        assert self.configuration is not None
        return base64.b64decode(self.configuration["webhooks"][0]["clientConfig"].get("caBundle", ""))

    def held(self, key: str) -> bytes:
        """What the Secret holds under `key`."""
        assert self.secret is not None
        return base64.b64decode(self.secret["data"][key])

    async def get_configuration(self, name: str) -> Json | None:
        self._ask()
        assert name == NAME
        return copy.deepcopy(self.configuration)

    async def get_secret(self, namespace: str, name: str) -> Json | None:
        self._ask()
        assert (namespace, name) == (NAMESPACE, NAME)
        return copy.deepcopy(self.secret)

    async def create_secret(
        self, namespace: str, name: str, data: Mapping[str, bytes], owner: Json | None
    ) -> None:
        self._ask()
        if self.secret is not None:
            raise AlreadyExists("secret")
        self._write("create", {"metadata": {"namespace": namespace, "name": name}}, data, owner)

    async def replace_secret(self, secret: Json, data: Mapping[str, bytes], owner: Json | None) -> None:
        self._ask()
        if (
            self.secret is None
            or self.secret["metadata"]["resourceVersion"] != secret["metadata"]["resourceVersion"]
        ):
            raise Conflict("secret")
        self._write("replace", secret, data, owner)

    async def trust(self, configuration: Json, authorities: bytes) -> None:
        self._ask()
        assert self.configuration is not None
        assert configuration["metadata"]["uid"] == self.configuration["metadata"]["uid"]
        self.writes.append("trust")
        for each in self.configuration["webhooks"]:
            each["clientConfig"]["caBundle"] = base64.b64encode(authorities).decode()

    def _ask(self) -> None:
        if self.trouble is not None:
            raise self.trouble

    def _write(self, verb: str, secret: Json, data: Mapping[str, bytes], owner: Json | None) -> None:
        self._version += 1
        self.writes.append(verb)
        metadata = {**secret["metadata"], "resourceVersion": str(self._version)}
        if owner is not None:
            metadata["ownerReferences"] = [owner]
        encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
        self.secret = {"metadata": metadata, "data": encoded}
