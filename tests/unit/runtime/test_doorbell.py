"""The watch in its own thread: it rings in the operator's loop, survives its own errors, and ends when told to."""

import asyncio
import threading
from typing import Any

import kopf
import pytest

from kintsugi.core.snapshot import Key
from kintsugi.runtime import handlers


async def until(done: asyncio.Event) -> None:
    async with asyncio.timeout(10):
        await done.wait()


async def test_a_watch_that_fails_begins_again_and_takes_nothing_of_ours_with_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    began: list[threading.Thread] = []

    async def kopf_operator(*, registry: Any, stop_flag: asyncio.Event, **_: Any) -> None:
        began.append(threading.current_thread())
        if len(began) == 1:
            for task in asyncio.all_tasks() - {asyncio.current_task()}:  # as kopf does when it gives up
                task.cancel()
            raise RuntimeError("410 Gone")
        (handler,) = registry._watching.get_all_handlers()
        ring: Any = handler.fn
        await ring(namespace="llm", name="chat", type="DELETED")
        await stop_flag.wait()

    rung: list[tuple[Key, bool]] = []
    heard, stop = asyncio.Event(), asyncio.Event()

    def ring(key: Key, gone: bool) -> None:
        assert threading.current_thread() is threading.main_thread()
        rung.append((key, gone))
        heard.set()

    monkeypatch.setattr(kopf, "operator", kopf_operator)
    monkeypatch.setattr(handlers, "AGAIN_SECONDS", 0.01)
    bystander = asyncio.create_task(asyncio.sleep(60))
    watching = asyncio.create_task(handlers.watch(ring, ("llm",), stop, "me"))
    await until(heard)
    assert rung == [(Key("llm", "chat"), True)]
    assert "begins again" in caplog.text
    assert not bystander.done()
    stop.set()
    await asyncio.wait_for(watching, 10)
    assert len(began) == 2
    assert not began[-1].is_alive()
    bystander.cancel()


async def test_it_ends_at_once_when_it_is_told_to_before_it_began(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(**_: Any) -> None:
        raise AssertionError("nobody listens any more")

    monkeypatch.setattr(kopf, "operator", never)
    bell = handlers._Doorbell(lambda key, gone: None, (), "me")
    bell.end()
    bell.start()
    await asyncio.to_thread(bell.join, 10)
    assert not bell.is_alive()
