"""History out of a Prometheus server, through prometheus-api-client: raw samples, stretch by stretch."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from prometheus_api_client import PrometheusConnect
from prometheus_api_client.exceptions import PrometheusApiClientException
from urllib3.util.retry import Retry

from kintsugi.core.advisor.saved import SavedPage
from kintsugi.core.backtest.scraped import Scraped, query
from kintsugi.ports.errors import Forbidden, Invalid, PortError, Unavailable

STRETCH_SECONDS: Final = 900.0
"""History asked for at a time: 180 scrapes of 100 engines are 20 MB of JSON, and below the server's own limit of 50
million samples (`--query.max-samples`) by two digits."""
TIMEOUT_SECONDS: Final = 120
"""The server's own `--query.timeout` is 2 minutes by default."""


class PrometheusHistory:
    """Reads what a server scraped of engines. `prefix` is what relabelling put before their metric names."""

    def __init__(self, url: str, prefix: str = "", token: str = "") -> None:
        headers = {"Authorization": f"Bearer {token}"} if token else None
        self._url = url.rstrip("/")
        again = Retry(total=2, backoff_factor=0.5, status_forcelist=[502, 503, 504])
        self._server = PrometheusConnect(self._url, headers, retry=again, timeout=TIMEOUT_SECONDS)
        self._prefix = prefix

    def looks(
        self, first: float, last: float, namespace: str, selector: str, stretch: float = STRETCH_SECONDS
    ) -> Iterator[SavedPage]:
        """Every look from `first` to `last` (epoch seconds), by time. Raises PortError."""
        scraped = Scraped(self._prefix)
        wanted = query(namespace, selector, self._prefix)
        begin = first
        while begin < last:
            end = min(begin + stretch, last)
            # One second more, since servers before 3.0 count the first moment in and later ones do not.
            found = self._ask(f"{wanted}[{int(end - begin) + 1}s]", end)
            yield from scraped.looks(found, begin, end)
            begin = end

    def _ask(self, promql: str, at: float) -> list[Mapping[str, Any]]:
        try:
            answer = self._server.custom_query(promql, params={"time": f"{at:.3f}"})
        except PrometheusApiClientException as error:
            raise self._refusal(str(error)) from error
        except (OSError, ValueError, KeyError) as error:
            # requests' own errors are OSErrors; an answer that is no JSON, or another's JSON, is a ValueError or KeyError
            # Of a failed connection, its cause alone: before it stands the whole query.
            said = str(error).rpartition("(Caused by ")[2][:500]
            raise Unavailable(f"{self._url} gives no answer that Prometheus would give: {said}") from error
        return list(answer)

    def _refusal(self, said: str) -> PortError:
        for status in ("401", "403"):
            if f"Code {status}" in said:
                return Forbidden(
                    f"{self._url} lets nobody in without a token: give --token-file ({said[:200]})"
                )
        if "Code 4" in said:
            return Invalid(f"{self._url} refuses the query: {said[:500]}")
        return Unavailable(f"{self._url}: {said[:300]}")
