"""What a person does by a verb of the command: look objects up by name, and annotate them. Nothing else is written."""

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

import kubernetes.config

from kintsugi.adapters.kube.client import MERGE_PATCH, KubeClient, Request, load_configuration, path
from kintsugi.core import names
from kintsugi.ports.errors import NotFound, Unavailable

Json = dict[str, Any]


class Hand:
    """The cluster of a kubeconfig, for one command. PortErrors where it can't be reached or does not allow it."""

    def __init__(self, kubeconfig: str | None = None, context: str | None = None) -> None:
        try:
            self._client = KubeClient(load_configuration(kubeconfig, context))
        except (kubernetes.config.ConfigException, OSError) as error:
            raise Unavailable(
                f"no cluster to talk to: {str(error).rstrip('.')}. Name one with --kubeconfig"
            ) from error

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.close()

    async def deployments(self, namespace: str | None, name: str | None = None) -> list[Json]:
        """DeepSeekV4Deployments of that name (None: of any), in that namespace (None: in all)."""
        return await self._named(names.DEPLOYMENT_PLURAL, namespace, name)

    async def remediations(self, namespace: str | None, name: str | None = None) -> list[Json]:
        """Remediations, in the same way."""
        return await self._named(names.REMEDIATION_PLURAL, namespace, name)

    async def annotate(self, plural: str, namespace: str, name: str, said: Mapping[str, str | None]) -> None:
        """Set annotations, None takes one off; nobody else's are touched."""
        where = path(names.API_VERSION, plural, namespace, name)
        body: Json = {"metadata": {"annotations": dict(said)}}
        query = (("fieldManager", f"{names.FIELD_MANAGER}-command"),)
        await self._client.call(
            Request("PATCH", where, "patch", plural, namespace, name, query, body, MERGE_PATCH)
        )

    async def _named(self, plural: str, namespace: str | None, name: str | None) -> list[Json]:
        if namespace and name:
            where = path(names.API_VERSION, plural, namespace, name)
            try:
                return [await self._client.call(Request("GET", where, "get", plural, namespace, name))]
            except NotFound:
                return []
        query = (("fieldSelector", f"metadata.name={name}"),) if name else ()
        where = path(names.API_VERSION, plural, namespace or "")
        answer = await self._client.call(Request("GET", where, "list", plural, namespace or "", query=query))
        found: list[Json] = list(answer.get("items") or ())
        return found
