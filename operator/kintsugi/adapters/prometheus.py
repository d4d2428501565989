"""History out of a Prometheus server, through prometheus-api-client: raw samples, stretch by stretch."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

import requests
from prometheus_api_client import PrometheusConnect
from prometheus_api_client.exceptions import PrometheusApiClientException
from urllib3.exceptions import HTTPError
from urllib3.util.retry import Retry

from kintsugi.core.advisor.saved import LATEST, SavedPage
from kintsugi.core.backtest.scraped import Scraped, query
from kintsugi.core.secrecy import shown
from kintsugi.ports.errors import Forbidden, Invalid, PortError, Unavailable

STRETCH_SECONDS: Final = 900.0
"""History asked for at a time: 180 scrapes of 100 engines are 20 MB of JSON, and below the server's own limit of 50
million samples (`--query.max-samples`) by two digits."""
TIMEOUT_SECONDS: Final = 120
"""The server's own `--query.timeout` is 2 minutes by default."""
ODD: Final = "gives no answer that Prometheus would give"
WEB_PAGE: Final = (
    "it answers a web page, not JSON: is that the Prometheus server's own address, not a login page?"
)


class PrometheusHistory:
    """Reads what a server scraped of engines. `prefix` is what relabelling put before their metric names."""

    def __init__(self, url: str, prefix: str = "", token: str = "") -> None:
        headers = {"Authorization": f"Bearer {token}"} if token else None
        self._token = token
        self._url = shown(url.rstrip("/"))
        self._answer = b""
        self.notes: list[str] = []
        """What the server warned of, each wording once."""
        session = requests.Session()
        session.hooks["response"].append(self._heard)
        again = Retry(total=2, backoff_factor=0.5, status_forcelist=[502, 503, 504])
        self._server = PrometheusConnect(
            url.rstrip("/"), headers, retry=again, session=session, timeout=TIMEOUT_SECONDS
        )
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

    def _heard(self, response: requests.Response, *_: Any, **__: Any) -> None:
        self._answer = response.content

    def _ask(self, promql: str, at: float) -> list[Mapping[str, Any]]:
        self._answer = b""
        try:
            answer = self._server.custom_query(promql, params={"time": f"{at:.3f}"})
        except PrometheusApiClientException as error:
            raise self._refusal(self._hidden(str(error))) from error
        except (OSError, HTTPError, ValueError, LookupError, TypeError, AttributeError) as error:
            # requests' own errors are OSErrors; an answer that is no JSON, or another's JSON, gives one of the others.
            raise Unavailable(f"{self._url} {ODD}: {self._fault(error)}") from error
        if not isinstance(answer, list) or not all(map(_is_series, answer)):
            raise Unavailable(f"{self._url} {ODD}: its result is no list of series with samples")
        if b'"warnings"' in self._answer:
            self._note(json.loads(self._answer).get("warnings"))
        return [each for each in answer if "values" in each]

    def _fault(self, error: Exception) -> str:
        if self._answer.lstrip()[:1] == b"<":
            return WEB_PAGE
        if self._answer:
            return "it answers something else than a query's result"
        # Of a failed connection, its cause alone: before it stands the whole query.
        return self._hidden(str(error).rpartition("(Caused by ")[2])[:500]

    def _note(self, warnings: Any) -> None:
        for each in warnings if isinstance(warnings, list) else ():
            said = f"{self._url} warns: {self._hidden(str(each))[:300]}"
            if said not in self.notes and len(self.notes) < 10:
                self.notes.append(said)

    def _hidden(self, said: str) -> str:
        return shown(said.replace(self._token, "…") if self._token else said)

    def _refusal(self, said: str) -> PortError:
        for status in ("401", "403"):
            if f"Code {status}" in said:
                return Forbidden(
                    f"{self._url} refuses this token ({said[:200]})"
                    if self._token
                    else f"{self._url} lets nobody in without a token: give --token-file ({said[:200]})"
                )
        if "Code 4" in said:
            return Invalid(f"{self._url} refuses the query: {said[:500]}")
        return Unavailable(f"{self._url}: {said[:300]}")


def _is_series(each: Any) -> bool:
    """Whether it is one series of a matrix, as Prometheus writes it."""
    if not isinstance(each, dict) or not isinstance(labels := each.get("metric"), dict):
        return False
    values = each.get("values", [] if "histograms" in each else None)
    return (
        all(isinstance(label, str) for label in labels.values())
        and isinstance(values, list)
        and all(map(_is_sample, values))
    )


def _is_sample(sample: Any) -> bool:
    if not isinstance(sample, list) or len(sample) != 2 or not isinstance(sample[1], str):
        return False
    at, value = sample
    try:
        float(value)
    except ValueError:
        return False
    return isinstance(at, int | float) and 0 <= at <= LATEST
