"""A Prometheus server's newest word on pods, through prometheus-api-client: one short, bounded question a time.

The address stands in an object that users write, so an answer is never followed elsewhere, and nothing of it is ever
shown: what is said of a failure is our own words.
"""

import asyncio
import os
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import Any, Final

import requests
from prometheus_api_client import PrometheusConnect
from prometheus_api_client.exceptions import PrometheusApiClientException
from urllib3.exceptions import HTTPError
from urllib3.util.retry import Retry

from kintsugi.core.measured import measured_of, query
from kintsugi.core.snapshot import Measured
from kintsugi.ports.blocking import run_blocking_on
from kintsugi.ports.errors import Forbidden, Invalid, PortError, Unavailable
from kintsugi.ports.measurements import Source

CONNECT_SECONDS: Final = 3.0
READ_SECONDS: Final = 10.0
"""Between two bytes, and for the whole answer: an instant query over a few hundred series takes milliseconds."""
MOST_BYTES: Final = 8 * 2**20
"""500 pods of 8 GPUs are 13,000 series of some 400 bytes each."""
THREADS: Final = 4
"""A server that hangs holds one of these, never the operator's other threads."""


class PrometheusLive:
    """Asks Prometheus servers; one thread pool of its own, and no retries, since the next minute asks again."""

    def __init__(self, mono: Callable[[], float] = monotonic) -> None:
        self._mono = mono
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="prometheus")

    async def measure(
        self, source: Source, namespace: str, deployment: str, pods: Collection[str]
    ) -> Mapping[str, Measured]:
        """By pod name, what is known now. Raises PortError."""
        asked = run_blocking_on(self._threads, self._ask, source, query(namespace, deployment, source.prefix))
        try:
            result = await asyncio.wait_for(asked, timeout=3 * (CONNECT_SECONDS + READ_SECONDS))
        except TimeoutError:
            raise Unavailable("gives no answer in time") from None
        return measured_of(result, pods, self._mono(), source.prefix)

    async def close(self) -> None:
        """Give up what is under way; a question on the wire ends by its own limit."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _ask(self, source: Source, promql: str) -> list[Mapping[str, Any]]:
        headers = {"Authorization": f"Bearer {source.token}"} if source.token else None
        with _Bounded() as session:
            try:
                server = PrometheusConnect(
                    source.url.rstrip("/"), headers, retry=Retry(total=0, redirect=False), session=session
                )
                answer = server.custom_query(promql, timeout=(CONNECT_SECONDS, READ_SECONDS))
            except PrometheusApiClientException as error:
                raise _refusal(str(error)) from None
            except (requests.RequestException, HTTPError) as error:
                raise Unavailable(f"gives no answer ({type(error).__name__})") from None
            except (ValueError, KeyError, TypeError):
                raise Unavailable("answers, but not as Prometheus does") from None
        if not isinstance(answer, list):
            raise Unavailable("answers, but not as Prometheus does")
        return [each for each in answer if isinstance(each, dict)]


class _Bounded(requests.Session):
    """A session whose answers are bounded in bytes and in time, and are never redirected. It takes no credentials from
    the machine's own files, so that no address in an object can draw them out."""

    def __init__(self) -> None:
        super().__init__()
        self.trust_env = False
        self.verify = os.environ.get("REQUESTS_CA_BUNDLE") or True

    def request(self, *args: Any, **kwargs: Any) -> requests.Response:
        """As `requests.Session.request`. Raises RequestException where the answer is too long or too slow."""
        kwargs |= {"stream": True, "allow_redirects": False}
        end = monotonic() + READ_SECONDS
        answer = super().request(*args, **kwargs)
        body = bytearray()
        # What has come by now, byte by byte where it drips: a read of a whole block would wait for its last byte.
        while chunk := answer.raw.read1(65_536, decode_content=True):
            body += chunk
            if len(body) > MOST_BYTES or monotonic() > end:
                answer.close()
                raise requests.exceptions.ContentDecodingError("too long or too slow")
        whole = requests.Response()
        whole.status_code, whole.headers, whole.url = answer.status_code, answer.headers, answer.url
        whole._content = bytes(body)
        return whole


def _refusal(said: str) -> PortError:
    for code in ("401", "403"):
        if f"Code {code}" in said:
            return Forbidden(f"refuses ({code})")
    if "Code 4" in said:
        return Invalid(f"refuses the query ({_code(said)})")
    return Unavailable(f"answers {_code(said)}")


def _code(said: str) -> str:
    words = said.partition("Code ")[2]
    return words[:3] if words[:3].isdigit() else "with an error"
