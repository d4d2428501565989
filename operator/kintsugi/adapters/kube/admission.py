"""The two objects behind the webhook: the Secret with its certificate, and the configuration that names its authorities.

Both go by one name, so that the rights to them can be given by it. Of the configuration only `caBundle` is written: the
rest is the chart's.
"""

import base64
import binascii
from collections.abc import Mapping
from typing import Any, Final

from kintsugi.adapters.kube.client import Json, KubeClient, Request, path
from kintsugi.core import names
from kintsugi.ports.errors import NotFound

CONFIGURATIONS_API: Final = "admissionregistration.k8s.io/v1"
CONFIGURATIONS: Final = "validatingwebhookconfigurations"
STRATEGIC_MERGE_PATCH: Final = "application/strategic-merge-patch+json"
TLS_SECRET: Final = "kubernetes.io/tls"


class WebhookObjects:
    """Reads and writes them. Every method raises `PortError`s only."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def get_configuration(self, name: str) -> Json | None:
        """The ValidatingWebhookConfiguration, or None."""
        return await self._get(CONFIGURATIONS_API, CONFIGURATIONS, "", name)

    async def get_secret(self, namespace: str, name: str) -> Json | None:
        """The Secret, or None."""
        return await self._get("v1", "secrets", namespace, name)

    async def create_secret(
        self, namespace: str, name: str, data: Mapping[str, bytes], owner: Json | None
    ) -> None:
        """Create it; AlreadyExists where another was first."""
        body = _with(_empty(namespace, name), data, owner)
        where = path("v1", "secrets", namespace)
        await self._client.call(Request("POST", where, "create", "secrets", namespace, name, body=body))

    async def replace_secret(self, secret: Json, data: Mapping[str, bytes], owner: Json | None) -> None:
        """Replace what it holds; Conflict where anybody wrote since `secret` was read."""
        namespace, name = secret["metadata"]["namespace"], secret["metadata"]["name"]
        body = _with({"apiVersion": "v1", "kind": "Secret", **secret}, data, owner)
        where = path("v1", "secrets", namespace, name)
        await self._client.call(Request("PUT", where, "update", "secrets", namespace, name, body=body))

    async def trust(self, configuration: Json, authorities: bytes) -> None:
        """Have the API server know the webhook by these authorities (PEM), whichever of its versions it calls."""
        name = configuration["metadata"]["name"]
        bundle = base64.b64encode(authorities).decode()
        body: Json = {
            # Not onto one that was made anew since, under the same name.
            "metadata": {"uid": configuration["metadata"]["uid"]},
            "webhooks": [
                {"name": each["name"], "clientConfig": {"caBundle": bundle}}
                for each in configuration.get("webhooks") or ()
            ],
        }
        await self._client.call(
            Request(
                "PATCH",
                path(CONFIGURATIONS_API, CONFIGURATIONS, "", name),
                "patch",
                CONFIGURATIONS,
                name=name,
                query=(("fieldManager", names.FIELD_MANAGER),),
                body=body,
                content_type=STRATEGIC_MERGE_PATCH,
            )
        )

    async def _get(self, api_version: str, plural: str, namespace: str, name: str) -> Json | None:
        where = path(api_version, plural, namespace, name)
        try:
            return await self._client.call(Request("GET", where, "get", plural, namespace, name))
        except NotFound:
            return None


def secret_data(secret: Json) -> dict[str, bytes]:
    """What the Secret holds; values that are no base64 are left out."""
    found: dict[str, bytes] = {}
    for key, text in (secret.get("data") or {}).items():
        try:
            found[key] = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError, TypeError):
            continue
    return found


def is_trusted(configuration: Json, authorities: bytes) -> bool:
    """Whether the configuration names exactly these authorities for each of its webhooks."""
    bundle = base64.b64encode(authorities).decode()
    return all(
        (each.get("clientConfig") or {}).get("caBundle") == bundle
        for each in configuration.get("webhooks") or ()
    )


def owner_of(configuration: Json) -> Json:
    """The reference by which Kubernetes removes the Secret together with the configuration."""
    return {
        "apiVersion": CONFIGURATIONS_API,
        "kind": "ValidatingWebhookConfiguration",
        "name": configuration["metadata"]["name"],
        "uid": configuration["metadata"]["uid"],
    }


def is_owned(secret: Json, owner: Json) -> bool:
    """Whether the Secret goes with this owner."""
    owners = secret["metadata"].get("ownerReferences") or ()
    return any(each.get("uid") == owner["uid"] for each in owners)


def _empty(namespace: str, name: str) -> Json:
    labels = {names.MANAGED_BY_LABEL: names.MANAGED_BY}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": TLS_SECRET,
        "metadata": {"namespace": namespace, "name": name, "labels": labels},
    }


def _with(secret: Json, data: Mapping[str, bytes], owner: Json | None) -> Json:
    encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
    metadata: dict[str, Any] = dict(secret["metadata"])
    if owner is not None:
        metadata["ownerReferences"] = [owner]
    return {**secret, "metadata": metadata, "data": encoded}
