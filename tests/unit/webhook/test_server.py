"""The server over real TLS on loopback, asked as an API server asks."""

import asyncio
import io
import json
import logging
import ssl
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import aiohttp
import pytest

from kintsugi.adapters.clock import SystemClock
from kintsugi.core.preflight.finding import Finding
from kintsugi.ports.errors import Unavailable
from kintsugi.runtime import liveness
from kintsugi.runtime import webhook as server
from kintsugi.runtime.webhook import PATH, Webhook, WebhookService
from kintsugi.runtime.webhook_certificate import CertificateKeeper
from tests.unit.webhook.objects import NAME, NAMESPACE, Objects

Json = dict[str, Any]
Check = Callable[[Mapping[str, Any]], tuple[Finding, ...]]

WRONG = Finding("Error", "MaxModelLen", "spec.model", "spec.model.id: no such model", "take another")


def review(operation: str = "CREATE", new: Json | None = None, old: Json | None = None, **more: Any) -> Json:
    found = {"metadata": {"name": "chat", "namespace": "llm"}, "spec": {"model": {"id": "m"}}}
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "u-1",
            "operation": operation,
            "namespace": "llm",
            "name": "chat",
            "userInfo": {"username": "ann"},
            "object": found if new is None else new,
            "oldObject": old,
            **more,
        },
    }


class Asked:
    """A service that is up, and a client that trusts what the API server trusts."""

    def __init__(self) -> None:
        self.check: Check = lambda raw: ()
        self.counted: list[tuple[str, str]] = []
        self.objects = Objects()
        clock = SystemClock()
        self.keeper = CertificateKeeper(self.objects, clock, NAMESPACE, NAME, lambda name, until: None)
        self.webhook = Webhook(lambda raw: self.check(raw), lambda *labels: self.counted.append(labels))
        self.service = WebhookService(self.webhook, self.keeper, clock, 0)

    @property
    def port(self) -> int:
        runner = self.service._runner
        assert runner is not None
        return int(runner.addresses[0][1])

    async def post(self, body: Any, path: str = PATH) -> tuple[int, Any]:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        trust = ssl.create_default_context(cadata=self.objects.trusted.decode())
        async with (
            aiohttp.ClientSession() as session,
            session.post(
                f"https://127.0.0.1:{self.port}{path}",
                data=io.BytesIO(data),
                ssl=trust,
                server_hostname=f"{NAME}.{NAMESPACE}.svc",
            ) as answer,
        ):
            text = await answer.text()
            return answer.status, json.loads(text) if text.startswith("{") else text

    async def ask(self, body: Any) -> Json:
        status, answer = await self.post(body)
        assert status == 200
        assert (answer["apiVersion"], answer["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
        response: Json = answer["response"]
        assert response["uid"] == "u-1"
        return response


async def until(condition: Callable[[], object]) -> None:
    """Return once it holds; fails after ten seconds."""
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise TimeoutError


@pytest.fixture
async def asked() -> AsyncIterator[Asked]:
    made = Asked()
    running = asyncio.create_task(made.service.run())
    await until(lambda: not made.service.health())
    yield made
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_good_object_is_allowed(asked: Asked) -> None:
    assert await asked.ask(review()) == {"uid": "u-1", "allowed": True}
    assert asked.counted == [("CREATE", "Allowed")]


async def test_a_refusal_names_field_and_cure_in_words_and_in_causes(
    asked: Asked, caplog: pytest.LogCaptureFixture
) -> None:
    asked.check = lambda raw: (WRONG,)
    with caplog.at_level(logging.INFO, "kintsugi.webhook"):
        response = await asked.ask(review())
    assert response["allowed"] is False
    status = response["status"]
    assert (status["code"], status["reason"]) == (422, "Invalid")
    assert status["message"] == "spec.model.id: no such model (take another) [MaxModelLen]"
    assert status["details"]["causes"] == [
        {
            "reason": "FieldValueInvalid",
            "field": "spec.model.id",
            "message": "no such model (take another) [MaxModelLen]",
        }
    ]
    (line,) = [record for record in caplog.records if record.message == "refused"]
    assert (line.__dict__["fleet"], line.__dict__["user"]) == ("llm/chat", "ann")
    assert asked.counted == [("CREATE", "Denied")]


async def test_a_check_that_breaks_allows_says_so_and_counts(
    asked: Asked, caplog: pytest.LogCaptureFixture
) -> None:
    def breaks(raw: Mapping[str, Any]) -> tuple[Finding, ...]:
        raise KeyError("spec")

    asked.check = breaks
    response = await asked.ask(review())
    assert response["allowed"] is True
    assert "internal fault" in response["warnings"][0]
    assert "admission check failed" in caplog.text
    assert asked.counted == [("CREATE", "Unchecked")]


async def test_a_check_that_hangs_allows_in_time_and_holds_nobody_up(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "CHECK_SECONDS", 0.2)
    asked.check = lambda raw: time.sleep(1.0) or ()  # type: ignore[func-returns-value]
    began = time.monotonic()
    answers = await asyncio.gather(*(asked.ask(review()) for _ in range(12)))
    assert all(answer["allowed"] for answer in answers)
    assert all("too long" in answer["warnings"][0] for answer in answers)
    assert time.monotonic() - began < 5.0


async def test_deletions_are_allowed_whatever_the_check_says(asked: Asked) -> None:
    asked.check = lambda raw: (WRONG,)
    old: Json = {"metadata": {}, "spec": {}}
    assert (await asked.ask(review("DELETE", old=old, object=None)))["allowed"]
    assert asked.counted == [("other", "Skipped")]


@pytest.mark.parametrize(
    "request_",
    [
        {"uid": "u-1"},
        {"uid": "u-1", "operation": "CREATE", "object": 5},
        {"uid": "u-1", "operation": "UPDATE", "object": {}, "oldObject": []},
        {"uid": "u-1", "operation": ["CREATE"], "object": {"spec": None, "metadata": 7}, "userInfo": 3},
    ],
)
async def test_an_odd_request_is_answered(asked: Asked, request_: Json) -> None:
    assert (await asked.ask({**review(), "request": request_}))["allowed"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"\xff\xfe",
        b'{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview","request":{"uid":"u"}}',
        b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}',
        b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":7}}',
        b"[" * 100_000,
    ],
    ids=["empty", "cut", "list", "no text", "old version", "no request", "no uid", "deep"],
)
async def test_what_is_no_review_is_a_bad_request_and_the_server_lives_on(asked: Asked, body: bytes) -> None:
    status, _ = await asked.post(body)
    assert status == 400
    assert (await asked.ask(review()))["allowed"]


async def test_a_body_larger_than_any_object_is_refused_and_one_of_the_largest_objects_is_read(
    asked: Asked,
) -> None:
    status, _ = await asked.post(b" " * (server.LARGEST_BODY + 1))
    assert status == 413
    large = {"metadata": {}, "spec": {"x": "y" * (3 * 1024 * 1024)}}
    asked.check = lambda raw: (WRONG,)
    said = await asked.ask(review("UPDATE", large, {**large, "spec": {}}))
    assert said["allowed"]
    assert said["warnings"][0].startswith("not checked: 3072 KiB are too much for it.")
    assert asked.counted == [("UPDATE", "Unchecked")]
    assert (await asked.ask(review("UPDATE", large, large))) == {"uid": "u-1", "allowed": True}


async def test_nothing_else_is_served(asked: Asked) -> None:
    assert (await asked.post(review(), "/"))[0] == 404


async def test_a_body_that_does_not_come_is_not_waited_for(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "READ_SECONDS", 0.2)
    trust = ssl.create_default_context(cadata=asked.objects.trusted.decode())
    open_ = [
        await asyncio.open_connection(
            "127.0.0.1", asked.port, ssl=trust, server_hostname=f"{NAME}.{NAMESPACE}.svc"
        )
        for _ in range(8)
    ]
    for _, writer in open_:
        writer.write(f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n".encode())
    assert (await asked.ask(review()))["allowed"], "strangers who keep silent keep nobody out"
    for reader, writer in open_:
        assert (await reader.readline()).startswith(b"HTTP/1.1 408")
        writer.close()


async def test_a_renewed_certificate_is_served_without_a_restart(asked: Asked) -> None:
    before = asked.keeper.expires_at
    asked.objects.secret = None
    await asked.keeper.look()
    while asked.keeper.expires_at == before:
        await asyncio.sleep(1.1)  # the end is written in whole seconds
        asked.objects.secret = None
        for _ in range(4):
            await asked.keeper.look()
    assert (await asked.ask(review()))["allowed"]


async def test_a_port_that_is_taken_is_tried_again_and_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(server, "LOOK_SECONDS", 0.1)
    taken = await asyncio.start_server(lambda r, w: None, "0.0.0.0", 0)
    made = Asked()
    made.service._port = taken.sockets[0].getsockname()[1]
    running = asyncio.create_task(made.service.run())
    await until(lambda: "webhook not served" in caplog.text)
    assert made.service.health()
    taken.close()
    await taken.wait_closed()
    await until(lambda: not made.service.health())
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_it_is_not_ready_before_the_api_server_trusts_it(caplog: pytest.LogCaptureFixture) -> None:
    made = Asked()
    made.objects.trouble = Unavailable("no answer")
    running = asyncio.create_task(made.service.run())
    await until(lambda: "no answer" in caplog.text)
    assert "no certificate" in made.service.health()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_readiness_is_told_beside_liveness_and_can_differ_from_it() -> None:
    why = {"live": "", "ready": "no certificate"}
    runner = await liveness.serve(0, lambda: why["live"], lambda: why["ready"], lambda: b"metrics")
    root = f"http://127.0.0.1:{runner.addresses[0][1]}"
    async with aiohttp.ClientSession() as session:

        async def seen(path: str) -> tuple[int, str]:
            async with session.get(root + path) as answer:
                return answer.status, await answer.text()

        assert await seen("/healthz") == (200, "ok")
        assert await seen("/readyz") == (503, "no certificate")
        why["ready"] = ""
        assert await seen("/readyz") == (200, "ok")
        assert await seen("/metrics") == (200, "metrics")
    await runner.cleanup()
