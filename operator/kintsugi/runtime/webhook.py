"""The validating webhook's HTTPS server: AdmissionReview v1 in, AdmissionReview v1 out.

A fault of ours never becomes a refusal: the object is allowed with a warning, and the reconciler checks it again before
it makes a pod. Anybody in the cluster can connect, so what one request may take is bounded.
"""

import asyncio
import json
import logging
import ssl
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from aiohttp import web

from kintsugi.core import admission, names
from kintsugi.core.admission import Answer, Check, Verdict
from kintsugi.core.preflight.finding import Finding
from kintsugi.ports.blocking import run_blocking_on
from kintsugi.ports.clock import Clock
from kintsugi.runtime.webhook_certificate import LOOK_SECONDS, CertificateKeeper, keep

log = logging.getLogger("kintsugi.webhook")

PATH: Final = "/preflight"
LARGEST_BODY: Final = 8 * 1024 * 1024
"""Bytes: an update carries the object twice, and the API server takes objects of up to 3 MiB (its request limit)."""
LARGEST_CHECKED: Final = 512 * 1024
"""Bytes of a review that are checked, object and old object together: a thousand times a usual fleet. Checking holds the
interpreter, and with it the operator; the reconciler says what is wrong with a larger one in its own time."""
AT_ONCE: Final = 4
"""Requests read and checked at the same time: bodies of strangers must not fill the operator's memory."""
CHECK_SECONDS: Final = 4.0
"""Below the chart's timeout of 5 s, so that an answer comes even where the check does not."""
READ_SECONDS: Final = 4.0
CLOSE_SECONDS: Final = 3.0
"""For requests under way at the end."""

Note = Callable[[str, str], None]
"""Told of each request: operation and verdict."""


class TooLarge(Exception):
    """The review is more than may be checked while the API server waits."""


REVIEW: Final[Mapping[str, str]] = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}


class Webhook:
    """Answers reviews by `check`. One value per process."""

    def __init__(self, check: Check, note: Note) -> None:
        self._check = check
        self._note = note
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._threads = ThreadPoolExecutor(AT_ONCE, "webhook")
        """Of its own: a check that hangs must hold up nobody else."""

    async def serve(self, port: int, context: ssl.SSLContext) -> web.AppRunner:
        """Serve until the runner is cleaned up. Raises OSError where the port can't be had."""
        app = web.Application(client_max_size=LARGEST_BODY)
        app.router.add_post(PATH, self._post)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=CLOSE_SECONDS)
        await runner.setup()
        try:
            await web.TCPSite(runner, "0.0.0.0", port, ssl_context=context).start()
        except OSError:
            await runner.cleanup()
            raise
        return runner

    async def _post(self, http: web.Request) -> web.Response:
        async with self._slots:
            try:
                async with asyncio.timeout(READ_SECONDS):
                    body = await http.read()
            except TimeoutError:
                return web.Response(status=408, text="the request did not arrive in time")
            request = _request_of(body)
            if request is None:
                return web.Response(status=400, text="not an AdmissionReview of admission.k8s.io/v1")
            given = await self._answered(request, len(body))
        return web.json_response({**REVIEW, "response": response_of(request, given)})

    async def _answered(self, request: Mapping[str, Any], size: int) -> Answer:
        operation = str(request.get("operation"))
        check = self._check if size <= LARGEST_CHECKED else _too_large
        about = {"fleet": f"{request.get('namespace', '')}/{request.get('name', '')}", "operation": operation}
        try:
            async with asyncio.timeout(CHECK_SECONDS):
                given = await run_blocking_on(
                    self._threads,
                    admission.answer,
                    operation,
                    _object(request, "object"),
                    _object(request, "oldObject"),
                    check,
                )
        except TimeoutError:
            log.error("admission check took too long", extra=about)
            given = admission.unchecked("the check took too long")
        except TooLarge:
            log.warning("too large for an admission check", extra={**about, "bytes": size})
            given = admission.unchecked(f"{size // 1024} KiB are too much for it")
        except Exception:
            log.exception("admission check failed", extra=about)
            given = admission.unchecked("internal fault")
        self._note(operation if operation in ("CREATE", "UPDATE") else "other", given.verdict.value)
        if given.verdict is Verdict.DENIED:
            said = {**about, "user": _user(request), "rules": sorted({each.rule for each in given.causes})}
            log.info("refused", extra=said)
        return given


class WebhookService:
    """The server and its certificate together: up as soon as there is one, for as long as `run` runs."""

    def __init__(self, webhook: Webhook, keeper: CertificateKeeper, clock: Clock, port: int) -> None:
        self._webhook = webhook
        self._keeper = keeper
        self._clock = clock
        self._port = port
        self._runner: web.AppRunner | None = None

    def health(self) -> str:
        """'' when requests can be answered, or when nobody would send any; else why not."""
        if self._keeper.unneeded or (self._runner is not None and self._keeper.ready):
            return ""
        return "the webhook has no certificate that the API server trusts"

    async def run(self) -> None:
        """Serve until cancelled. A port that can't be had is tried again: fleets are healed without a webhook too."""
        keeping = asyncio.create_task(keep(self._keeper, self._clock), name="webhook certificate")
        try:
            await self._keeper.serving.wait()
            while self._runner is None:
                try:
                    self._runner = await self._webhook.serve(self._port, self._keeper.context)
                except OSError as error:
                    log.error("webhook not served", extra={"port": self._port, "why": str(error)})
                    await self._clock.sleep(LOOK_SECONDS)
            await keeping
        finally:
            keeping.cancel()
            if self._runner is not None:
                await self._runner.cleanup()


def response_of(request: Mapping[str, Any], given: Answer) -> dict[str, Any]:
    """`response` of the AdmissionReview. Its details are what kubectl prints as a list."""
    said: dict[str, Any] = {"uid": request["uid"], "allowed": given.allowed}
    if given.warnings:
        said["warnings"] = list(given.warnings)
    if not given.allowed:
        causes = [
            {"reason": "FieldValueInvalid", "field": each.path, "message": each.text} for each in given.causes
        ]
        if given.more:
            causes.append(
                {"reason": "FieldValueInvalid", "field": "spec", "message": f"and {given.more} more errors"}
            )
        said["status"] = {
            "status": "Failure",
            "code": 422,
            "reason": "Invalid",
            "message": given.message,
            "details": {
                "group": names.GROUP,
                "kind": names.DEPLOYMENT_KIND,
                "name": str(request.get("name") or ""),
                "causes": causes,
            },
        }
    return said


def _request_of(body: bytes) -> Mapping[str, Any] | None:
    """The request of a review; None where the body is none."""
    try:
        review = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(review, dict) or any(review.get(key) != value for key, value in REVIEW.items()):
        return None
    request = review.get("request")
    return request if isinstance(request, dict) and isinstance(request.get("uid"), str) else None


def _too_large(raw: Mapping[str, Any]) -> tuple[Finding, ...]:
    raise TooLarge


def _object(request: Mapping[str, Any], key: str) -> Mapping[str, Any] | None:
    found = request.get(key)
    return found if isinstance(found, dict) else None


def _user(request: Mapping[str, Any]) -> str:
    info = request.get("userInfo")
    return str(info.get("username", "")) if isinstance(info, dict) else ""
