"""Requests to one API server: raw JSON, worker threads, timeouts, errors of `ports.errors`, one log line per write.

The official client finds the server, its certificates and our credentials; its models are not used.
"""

import asyncio
import binascii
import json
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from time import perf_counter
from typing import Any, Final, TypeAlias
from urllib.parse import quote, urlencode

import kubernetes.client
import kubernetes.config
import urllib3
import yaml
from kubernetes.config import KUBE_CONFIG_DEFAULT_LOCATION

from kintsugi import __version__
from kintsugi.adapters.kube.errors import error_of
from kintsugi.core import names
from kintsugi.core.secrecy import sendable
from kintsugi.ports.audit import ATTEMPT
from kintsugi.ports.blocking import run_blocking_on
from kintsugi.ports.errors import PortError, Unavailable

Json: TypeAlias = dict[str, Any]
Observer: TypeAlias = Callable[[str, str, str, float], None]
"""Called after each request with (verb, resource, outcome, seconds)."""
Listener: TypeAlias = Callable[[float, float], None]
"""Called with (the server's time in epoch seconds, seconds its answer took) on the thread of the request."""

JSON_TYPE: Final = "application/json"
MERGE_PATCH: Final = "application/merge-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"
METADATA_LIST: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"

NOT_SENDABLE: Final = "it holds a line break, or another character that no token has"

CONNECT_TIMEOUT: Final = 5.0
REQUEST_TIMEOUT: Final = 15.0
"""Seconds without a byte; a whole call, its wait for a thread included, may take twice as long."""
THREADS: Final = 16
"""Calls at once. Budgets limit healing, not the client (safety rule 28)."""

_READ_RETRY: Final = urllib3.Retry(
    1, status=0, redirect=0, raise_on_status=False, respect_retry_after_header=False
)

log = logging.getLogger("kintsugi.kube")
_QUIET_RESOURCES: Final = frozenset({"leases"})
"""Renewed every few seconds: their writes are logged at DEBUG."""


@dataclass(frozen=True, slots=True)
class Request:
    """One call. `verb` and `resource` as RBAC names them; `path` quoted, without query."""

    method: str
    path: str
    verb: str
    resource: str
    namespace: str = ""
    name: str = ""
    query: tuple[tuple[str, str], ...] = ()
    body: Json | None = None
    content_type: str = JSON_TYPE
    accept: str = JSON_TYPE

    @property
    def write(self) -> bool:
        return self.method != "GET"

    def __str__(self) -> str:
        where = "/".join(part for part in (self.namespace, self.name) if part)
        return f"{self.verb} {self.resource} {where}".rstrip()


def load_configuration(
    kubeconfig: str | None = None, context: str | None = None
) -> kubernetes.client.Configuration:
    """In-cluster credentials where there are any and no kubeconfig is named; else the kubeconfig.

    Raises `kubernetes.config.ConfigException` where neither is to be had, or the kubeconfig is damaged.
    """
    configuration = kubernetes.client.Configuration()
    if kubeconfig is None:
        try:
            kubernetes.config.load_incluster_config(client_configuration=configuration)
            return configuration
        except kubernetes.config.ConfigException:
            log.debug("not in a cluster, so a kubeconfig is looked for")
    where = kubeconfig or KUBE_CONFIG_DEFAULT_LOCATION
    try:
        kubernetes.config.load_kube_config(
            kubeconfig, context, client_configuration=configuration, persist_config=False
        )
    except (yaml.YAMLError, ValueError, TypeError, AttributeError, LookupError) as error:
        raise kubernetes.config.ConfigException(
            f"{where} can't be read as a kubeconfig ({_fault(error)})"
        ) from None
    if not _sendable(configuration):
        raise kubernetes.config.ConfigException(f"{where} holds a token that can't be sent: {NOT_SENDABLE}")
    return configuration


def _fault(error: Exception) -> str:
    """What is wrong with a kubeconfig, in words that hold nothing of its text: secrets stand in it."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"line {error.problem_mark.line + 1}: no YAML"
    if isinstance(error, yaml.YAMLError | UnicodeError):
        return "no text, or no YAML"
    if isinstance(error, binascii.Error):
        return "a certificate or key in it is no base64"
    return "its fields are not those of one"


def _sendable(configuration: kubernetes.client.Configuration) -> bool:
    settings: Mapping[str, Any] = configuration.auth_settings()
    words = [word for each in settings.values() for word in str(each["value"] or "").split(" ") if word]
    return all(sendable(word) for word in words)


class KubeClient:
    """A connection pool and its threads. Every method raises `PortError`s only."""

    def __init__(
        self,
        configuration: kubernetes.client.Configuration,
        timeout: float = REQUEST_TIMEOUT,
        threads: int = THREADS,
        observer: Observer | None = None,
        listener: Listener | None = None,
    ) -> None:
        configuration.connection_pool_maxsize = threads
        # urllib3 would otherwise sleep out a Retry-After on our threads, and repeat writes.
        configuration.retries = False
        # A middlebox that forgets an idle connection is noticed by the kernel, not by a write that hangs.
        configuration.keep_alive = True
        self._configuration = configuration
        self._pool = kubernetes.client.ApiClient(configuration).rest_client.pool_manager
        self._threads = ThreadPoolExecutor(threads, "kube")
        self._timeout = timeout
        self._observer = observer
        self._listener = listener
        self._warned: set[str] = set()

    async def close(self) -> None:
        """Give the threads and connections back; calls under way are waited for by nobody."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._pool.clear()

    async def call(self, request: Request) -> Json:
        """The JSON object that the server answers."""
        raw = await self._measured(request)
        try:
            answer = json.loads(raw)
        except ValueError as error:
            raise Unavailable(f"{request}: the answer is not JSON: {error}") from error
        if not isinstance(answer, dict):
            raise Unavailable(f"{request}: the answer is no JSON object")
        return answer

    async def text(self, request: Request) -> str:
        """The text that the server answers."""
        return (await self._measured(request)).decode("utf-8", "replace")

    async def _measured(self, request: Request) -> bytes:
        began, outcome = perf_counter(), "unknown"
        try:
            async with asyncio.timeout(2 * self._timeout):
                answer = await run_blocking_on(self._threads, self._send, request)
            outcome = "ok"
            return answer
        except TimeoutError:
            outcome = Unavailable.__name__
            raise Unavailable(f"{request}: no answer within {2 * self._timeout:.0f} s") from None
        except PortError as error:
            outcome = type(error).__name__
            raise
        finally:
            if request.write:
                self._audit(request, outcome)
            if self._observer is not None:
                self._observer(request.verb, request.resource, outcome, perf_counter() - began)

    def _send(self, request: Request) -> bytes:
        """One request on the calling thread; a read that meets a connection just closed is done once more."""
        url = self._configuration.host + request.path
        if request.query:
            url += "?" + urlencode(request.query)
        headers = {
            "Accept": request.accept,
            "User-Agent": f"{names.FIELD_MANAGER}/{__version__}",
            **self._credentials(),
        }
        body = None
        if request.body is not None:
            headers["Content-Type"] = request.content_type
            body = json.dumps(request.body, separators=(",", ":")).encode()
        began = perf_counter()
        try:
            answer = self._pool.request(
                request.method,
                url,
                body=body,
                headers=headers,
                timeout=urllib3.Timeout(connect=CONNECT_TIMEOUT, read=self._timeout),
                retries=False if request.write else _READ_RETRY,
            )
        except urllib3.exceptions.HTTPError as error:
            raise Unavailable(f"{request}: {type(error).__name__}: {error}") from error
        if (
            self._listener is not None and answer.status < 500
        ):  # beyond, a proxy may speak, by a clock of its own
            _tell(self._listener, answer.headers, perf_counter() - began)
        if answer.status >= 300:
            raise error_of(answer.status, answer.data, answer.headers, str(request), request.write)
        self._heed(request, answer.headers)
        data: bytes = answer.data
        return data

    def _credentials(self) -> dict[str, str]:
        """The Authorization header; a token near its end is read again by the official client's own hook."""
        settings: Mapping[str, Any] = self._configuration.auth_settings()
        if not _sendable(self._configuration):
            raise Unavailable(f"our token can't be sent: {NOT_SENDABLE}")
        return {each["key"]: each["value"] for each in settings.values() if each["value"]}

    def _heed(self, request: Request, headers: Mapping[str, str]) -> None:
        """Log what the server warns of (unknown fields, deprecated versions), each wording once."""
        warning = headers.get("Warning")
        if warning and warning not in self._warned and len(self._warned) < 1000:
            self._warned.add(warning)
            log.warning("the API server warns", extra={"call": str(request), "warning": warning})

    def _audit(self, request: Request, outcome: str) -> None:
        level = logging.DEBUG if request.resource in _QUIET_RESOURCES else logging.INFO
        log.log(
            level,
            "write",
            extra={
                "verb": request.verb,
                "resource": request.resource,
                "namespace": request.namespace,
                "object": request.name,
                "attempt": ATTEMPT.get() or _attempt_of(request.body),
                "outcome": outcome,
            },
        )


def path(api_version: str, plural: str, namespace: str = "", name: str = "", subresource: str = "") -> str:
    """The URL path of a resource; core resources are under /api, the others under /apis."""
    root = "/api/v1" if api_version == "v1" else f"/apis/{api_version}"
    parts = ["namespaces", namespace, plural] if namespace else [plural]
    parts += [part for part in (name, subresource) if part]
    return root + "".join("/" + quote(part, safe="") for part in parts)


def _tell(listener: Listener, headers: Mapping[str, str], took: float) -> None:
    """What the server's clock said when it answered; a `Date` that is none says nothing."""
    try:
        said = parsedate_to_datetime(headers.get("Date", ""))
    except (ValueError, OverflowError):
        return
    if said.tzinfo is not None:
        listener(said.timestamp(), took)


def _attempt_of(body: Json | None) -> str:
    meta = (body or {}).get("metadata") or {}
    return str((meta.get("annotations") or {}).get(names.ATTEMPT_ANNOTATION) or "")
