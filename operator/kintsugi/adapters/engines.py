"""`ports.engines.EnginePort` over HTTP, straight to the pods.

Every call uses a connection of its own. A kept one could belong to a node that was cut off since, and would then look
connected and silent where nothing can be reached at all.
"""

import asyncio
import itertools
import json
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import aiohttp

from kintsugi.core.snapshot import (
    Answer,
    Canary,
    CanaryOutcome,
    CanaryResult,
    Failed,
    Failure,
    Page,
    Question,
    Scrape,
)
from kintsugi.ports.engines import Address
from kintsugi_engine.contract import CANARY_REQUEST_ID_PREFIX, COMPACT_PATH, RECORD_PATH

CONNECT_SECONDS: Final = 2.0
"""Connect timeout of the canary protocol (hang paper §1.3)."""
PAGE_BYTES: Final = 8 * 1024 * 1024
"""A page of a real engine has 60 KB; one beyond this is not read to its end."""
ANSWER_BYTES: Final = 256 * 1024
CONCURRENCY: Final = 256
"""Pages read at the same time."""
METRICS_DIRECTORY: Final = ", as where PROMETHEUS_MULTIPROC_DIR lies on a network volume"
"""The known cause of a `/metrics` that fails while requests are served (vLLM issue 49983)."""
CANARY_PROMPT: Final = (11, 12, 13, 14)
"""Token ids: no tokenizer is asked, and every vocabulary has them."""
CANARY_PRIORITY: Final = -100
"""First in line where the engine schedules by priority, without effect under first-come-first-served (§1.3)."""

log = logging.getLogger("kintsugi.engines")

_RANK_SERIES: Final = "\nvllm:num_requests_running{"
_MOST_REMEMBERED: Final = 10_000
_ANY_NATS: Final = 1e6
"""Beyond it a log-probability is none: infinite, not a number, or an integer that no float holds."""


class HttpEngines:
    """Reads pages and sends canaries. `mono` gives monotonic seconds. Use within one event loop, `close` at its end."""

    def __init__(self, mono: Callable[[], float], concurrency: int = CONCURRENCY) -> None:
        self._mono = mono
        self._slots = asyncio.Semaphore(concurrency)
        self._session: aiohttp.ClientSession | None = None
        self._canaries: set[asyncio.Task[None]] = set()
        self._results: list[CanaryResult] = []
        self._ranks: OrderedDict[tuple[str, int], int] = OrderedDict()
        self._numbers = itertools.count(1)

    async def close(self) -> None:
        """Abandon open canaries without a result and close every connection."""
        open_canaries = list(self._canaries)
        for task in open_canaries:
            task.cancel()
        await asyncio.gather(*open_canaries, return_exceptions=True)
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def scrape(self, addresses: Sequence[Address], timeout: float) -> list[Scrape]:
        """One `/metrics` page of each address, side by side, each within `timeout` seconds of its own start."""
        return list(await asyncio.gather(*(self._page(address, timeout) for address in addresses)))

    def send_canary(self, address: Address, canary: Canary, abandon_after: float) -> None:
        """Start a one-token request in the background; closed after `abandon_after` seconds."""
        task = asyncio.create_task(self._canary(address, canary, abandon_after), name=f"canary {canary.id}")
        self._canaries.add(task)
        task.add_done_callback(self._canaries.discard)

    def canary_results(self) -> list[CanaryResult]:
        """Canaries that ended since the last call, in order of their end."""
        ended, self._results = self._results, []
        return ended

    async def ask(self, address: Address, timeout: float) -> bool:
        """One real one-token request: True where a whole completion came back."""
        name = f"{CANARY_REQUEST_ID_PREFIX}ask-{next(self._numbers)}"
        try:
            status, body = await self._complete(address, name, "", timeout)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
            return False
        return status == 200 and _is_completion(body)

    async def can_compact(self, address: Address, timeout: float) -> bool | None:
        """Whether the engine has `COMPACT_PATH`, which answers GET with 405 where it is and with 404 where not."""
        status = await self._status("GET", address, COMPACT_PATH, timeout)
        return {200: True, 405: True, 404: False}.get(status)

    async def compact(self, address: Address, timeout: float) -> bool:
        """POST `COMPACT_PATH`: True where the engine says that it gave cached memory back."""
        return await self._status("POST", address, COMPACT_PATH, timeout) == 200

    async def record(self, address: Address, timeout: float) -> tuple[Mapping[str, Any], ...] | None:
        """GET `RECORD_PATH`: the ranks' last samples; () where the engine has no such path, None where no list came."""
        status, body = await self._answer_of("GET", address, RECORD_PATH, timeout)
        return () if status == 404 else _ranks(body) if status == 200 else None

    async def _status(self, method: str, address: Address, path: str, timeout: float) -> int:
        return (await self._answer_of(method, address, path, timeout))[0]

    async def _answer_of(self, method: str, address: Address, path: str, timeout: float) -> tuple[int, bytes]:
        """(status, body) of an answer that was read to its end; 0 where none came."""
        try:
            headers = {"Authorization": f"Bearer {address.api_key}"} if address.api_key else {}
            async with self._http().request(
                method,
                f"{_root(address)}{path}",
                timeout=_timeouts(timeout),
                headers=headers,
                allow_redirects=False,
            ) as answer:
                return answer.status, await _read(answer, ANSWER_BYTES) or b""
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
            return 0, b""

    async def models(self, address: Address, timeout: float) -> frozenset[str] | None:
        """Names in `/v1/models`, asked with the engine's key; None where no list came back."""
        try:
            headers = {"Authorization": f"Bearer {address.api_key}"} if address.api_key else {}
            async with self._http().get(
                f"{_root(address)}/v1/models",
                timeout=_timeouts(timeout),
                headers=headers,
                allow_redirects=False,
            ) as answer:
                body = await _read(answer, ANSWER_BYTES) if answer.status == 200 else None
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
            return None
        return None if body is None else _model_names(body)

    async def _page(self, address: Address, timeout: float) -> Scrape:
        if not address.ip:
            return Failed(Failure.NO_ADDRESS, "the pod has no address yet", self._mono())
        async with self._slots:
            try:
                text = await self._read_page(address, timeout)
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                failure, why = _failure_of(error, timeout)
                return Failed(failure, why, self._mono())
        if isinstance(text, Failed):
            return text
        self._remember_ranks(address, text)
        return Page(text, self._mono())

    async def _read_page(self, address: Address, timeout: float) -> str | Failed:
        url = f"{_root(address)}/metrics"
        headers = {"Accept-Encoding": "identity"}  # packing 60 KB costs the engine more than sending it
        async with self._http().get(
            url, timeout=_timeouts(timeout), headers=headers, allow_redirects=False
        ) as answer:
            if answer.status != 200:
                hint = METRICS_DIRECTORY if answer.status == 500 else ""
                return Failed(Failure.HTTP_ERROR, f"status {answer.status}{hint}", self._mono())
            body = await _read(answer, PAGE_BYTES)
        if body is None:
            return Failed(Failure.HTTP_ERROR, f"a page of more than {PAGE_BYTES} bytes", self._mono())
        return body.decode("utf-8", "replace")

    async def _canary(self, address: Address, canary: Canary, abandon_after: float) -> None:
        status, answer = 0, None
        try:
            status, body = await self._complete(
                address, canary.id, canary.rank, abandon_after, canary.question
            )
            outcome = _outcome_of_status(status)
            answer = _answer(body) if status == 200 and canary.question is not None else None
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            outcome = _outcome_of_error(error)
        except (
            ValueError
        ) as error:  # a key or an id that is no header: nothing was sent, so nothing is proved
            log.warning("canary not sent", extra={"canary": canary.id, "why": str(error)})
            outcome = CanaryOutcome.REFUSED_BY_ENGINE
        self._results.append(CanaryResult(canary, outcome, self._mono(), status, answer))

    async def _complete(
        self, address: Address, name: str, rank: str, timeout: float, question: Question | None = None
    ) -> tuple[int, bytes]:
        """(status, body) of a one-token completion; the body is read to its end."""
        headers = {"X-Request-Id": name}
        if rank.isascii() and rank.isdigit() and self._ranks.get((address.ip, address.port), 1) > 1:
            headers["X-data-parallel-rank"] = rank
        if address.api_key:
            headers["Authorization"] = f"Bearer {address.api_key}"
        body: dict[str, Any] = {
            "prompt": list(CANARY_PROMPT if question is None else question.prompt),
            "max_tokens": 1,
            "temperature": 0,
            "stream": False,
            "priority": CANARY_PRIORITY,
        }
        if question is not None:
            # A salt of its own: the answer is computed, not read from the prefix cache of an earlier one.
            body |= {"return_token_ids": True, "cache_salt": name}
            if question.margin:
                body |= {"logprobs": 2, "return_tokens_as_token_ids": True}
        if address.model:
            body["model"] = address.model
        async with self._http().post(
            f"{_root(address)}/v1/completions",
            json=body,
            headers=headers,
            timeout=_timeouts(timeout),
            allow_redirects=False,
        ) as answer:
            return answer.status, await _read(answer, ANSWER_BYTES) or b""

    def _http(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, force_close=True), cookie_jar=aiohttp.DummyCookieJar()
            )
        return self._session

    def _remember_ranks(self, address: Address, text: str) -> None:
        """How many data-parallel ranks answer at this address: with one, no rank is asked for."""
        spot = (address.ip, address.port)
        self._ranks[spot] = f"\n{text}".count(_RANK_SERIES) if "vllm:num_requests_running{" in text else 1
        self._ranks.move_to_end(spot)
        while len(self._ranks) > _MOST_REMEMBERED:
            self._ranks.popitem(last=False)


async def _read(answer: aiohttp.ClientResponse, limit: int) -> bytes | None:
    """The whole body, or None where it is longer than `limit` bytes."""
    chunks, size = [], 0
    async for chunk in answer.content.iter_any():
        size += len(chunk)
        if size > limit:
            answer.close()
            return None
        chunks.append(chunk)
    return b"".join(chunks)


def _root(address: Address) -> str:
    host = f"[{address.ip}]" if ":" in address.ip else address.ip
    return f"http://{host}:{address.port}"


def _timeouts(total: float) -> aiohttp.ClientTimeout:
    """A deadline for all, and an earlier one for the connection, so that the two can be told apart."""
    return aiohttp.ClientTimeout(total=total, sock_connect=min(CONNECT_SECONDS, total / 2))


def _failure_of(error: Exception, timeout: float) -> tuple[Failure, str]:
    """Which failure of a scrape an error is. Only SILENT means: connected, and then nothing."""
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return Failure.CONNECT_TIMEOUT, "no connection in time"
    if isinstance(error, TimeoutError):
        return Failure.SILENT, f"connected, and no whole page within {timeout:g} s"
    if isinstance(error, aiohttp.ClientConnectorError):
        if isinstance(error.os_error, ConnectionRefusedError):
            return Failure.REFUSED, "connection refused"
        return Failure.CONNECT_TIMEOUT, f"not reachable: {error.os_error}"
    return Failure.HTTP_ERROR, f"{type(error).__name__}: {error}"[:200]


def _outcome_of_status(status: int) -> CanaryOutcome:
    if status == 200:
        return CanaryOutcome.ANSWERED
    if status == 503:
        return CanaryOutcome.ADMISSION_FULL
    return CanaryOutcome.SERVER_ERROR if status >= 500 else CanaryOutcome.REFUSED_BY_ENGINE


def _outcome_of_error(error: Exception) -> CanaryOutcome:
    """A connection that closes without an answer is an engine that ends: the business of `dead`, as a refused one."""
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return CanaryOutcome.CONNECT_TIMEOUT
    if isinstance(error, TimeoutError):
        return CanaryOutcome.ABANDONED
    if isinstance(error, aiohttp.ClientConnectorError) and not isinstance(
        error.os_error, ConnectionRefusedError
    ):
        return CanaryOutcome.CONNECT_TIMEOUT
    return CanaryOutcome.CONNECTION_REFUSED


def _is_completion(body: bytes) -> bool:
    return bool(_first_choice(body).get("finish_reason"))


def _first_choice(body: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    choices = answer.get("choices") if isinstance(answer, dict) else None
    first = choices[0] if isinstance(choices, list) and choices else None
    return first if isinstance(first, dict) else {}


def _answer(body: bytes) -> Answer | None:
    """The token of a question's answer and its margin; None where the body tells no token."""
    choice = _first_choice(body)
    ids, text = choice.get("token_ids"), choice.get("text")
    token = f"id {ids[0]}" if isinstance(ids, list) and ids and isinstance(ids[0], int) else text
    if not isinstance(token, str) or not token:
        return None
    said = choice.get("logprobs")
    tops = said.get("top_logprobs") if isinstance(said, dict) else None
    first = tops[0] if isinstance(tops, list) and tops and isinstance(tops[0], dict) else {}
    likely = sorted(
        (p for p in first.values() if isinstance(p, float | int) and abs(p) < _ANY_NATS), reverse=True
    )
    return Answer(token, float(likely[0] - likely[1]) if len(likely) > 1 else None)


def _ranks(body: bytes) -> tuple[Mapping[str, Any], ...] | None:
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return None
    listed = answer.get("ranks") if isinstance(answer, dict) else None
    if not isinstance(listed, list):
        return None
    return tuple(each for each in listed if isinstance(each, dict))


def _model_names(body: bytes) -> frozenset[str] | None:
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return None
    listed = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(listed, list):
        return None
    return frozenset(str(each["id"]) for each in listed if isinstance(each, dict) and "id" in each)
