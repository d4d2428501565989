"""`/metrics` of engines through the API server's pod proxy: reachable from wherever kubectl is, and read-only."""

from kintsugi.adapters.kube.client import KubeClient, Request, path
from kintsugi.core.names import ENGINE_PORT


class PodPages:
    """Needs `get` on `pods/proxy`, which a reader's usual roles do not hold. Raises `PortError`s."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def read(self, namespace: str, pod: str, port: int = ENGINE_PORT) -> str:
        """One page of one engine, as text."""
        where = path("v1", "pods", namespace, f"{pod}:{port}", "proxy") + "/metrics"
        return await self._client.text(
            Request("GET", where, "get", "pods/proxy", namespace, pod, accept="text/plain")
        )
