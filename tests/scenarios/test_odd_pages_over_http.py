"""Pages as proxies, older engines and broken exporters give them: whatever is odd costs no pod, and what can be read is.

The worst that a reader of metrics can do is to act on odd data. Each way is tried on one engine, on all of them, and on an
engine that is really frozen; the last must not be excused for ever by what is odd on a sibling.
"""

import asyncio
import gzip
import random
import re
from collections.abc import Awaitable, Callable
from itertools import count

import pytest
from aiohttp import web

from kintsugi.adapters import engines as adapter
from tests.scenarios.served import ServedScene, served
from tests.scenarios.watched import nothing_happened

Sent = Callable[[web.Request, str], Awaitable[web.StreamResponse]]
Changed = Callable[[str], str]


async def packed(_: web.Request, text: str) -> web.StreamResponse:
    return web.Response(body=gzip.compress(text.encode()), headers={"Content-Encoding": "gzip"})


async def packed_badly(_: web.Request, text: str) -> web.StreamResponse:
    return web.Response(body=gzip.compress(text.encode())[:-20], headers={"Content-Encoding": "gzip"})


async def called_packed(_: web.Request, text: str) -> web.StreamResponse:
    return web.Response(body=text.encode(), headers={"Content-Encoding": "gzip"})


async def bomb(_: web.Request, text: str) -> web.StreamResponse:
    return web.Response(body=gzip.compress(b"# " + b"x" * 2_000_000), headers={"Content-Encoding": "gzip"})


async def led_away(_: web.Request, text: str) -> web.StreamResponse:
    return web.Response(status=302, headers={"Location": "/v1/elsewhere"}, text=text)


async def led_in_circles(_: web.Request, text: str) -> web.StreamResponse:
    return web.Response(status=307, headers={"Location": "/metrics"}, text=text)


async def huge(_: web.Request, text: str) -> web.StreamResponse:
    return web.Response(text=text + "# HELP x y\n" * 60_000)


async def dripping(request: web.Request, text: str) -> web.StreamResponse:
    stream = web.StreamResponse()
    await stream.prepare(request)
    try:
        for byte in text.encode():
            await stream.write(bytes([byte]))
            await asyncio.sleep(0.05)
    except (ConnectionResetError, asyncio.CancelledError):
        pass
    return stream


async def broken_off(request: web.Request, text: str) -> web.StreamResponse:
    stream = web.StreamResponse(headers={"Content-Length": str(len(text))})
    await stream.prepare(request)
    await stream.write(text.encode()[: len(text) // 2])
    assert request.transport is not None
    request.transport.close()
    return stream


def answered(status: int, body: str = "") -> Sent:
    async def send(_: web.Request, text: str) -> web.StreamResponse:
        return web.Response(status=status, text=body or text)

    return send


UNREADABLE: dict[str, Sent] = {
    "called packed": called_packed,
    "a bomb": bomb,
    "redirected": led_away,
    "redirected to itself": led_in_circles,
    "huge": huge,
    "dripping": dripping,
    "broken off": broken_off,
    "no content": answered(204, " "),
    "its page with an error": answered(503),
    "not modified": answered(304, " "),
    "refused": answered(401),
    "forbidden": answered(403),
    "not there": answered(404),
    "too often": answered(429),
    "bad gateway": answered(502, "<html>bad gateway</html>"),
    "a login page": answered(200, "<html><body>sign in</body></html>"),
    "empty": answered(200, "\n"),
    "json": answered(200, '{"status": "success", "data": []}'),
    "binary": answered(200, "\x00\x01\ufffd" * 500),
}


async def through(scene: ServedScene, odd: list[str], seconds: float = 1_500.0) -> None:
    """Let time pass; nobody may be called sick or idle by it, be withdrawn or removed."""
    scene.forget()
    await scene.run(seconds)
    for name in odd:
        assert not {said for said, _ in scene.kept.seen[name]} & {"Sick", "Idle"}, scene.kept.seen[name]
    scene.status_json()
    nothing_happened(scene)


@pytest.mark.parametrize("everybody", [False, True], ids=["one", "all"])
@pytest.mark.parametrize("send", UNREADABLE.values(), ids=list(UNREADABLE))
async def test_a_page_that_can_not_be_had_whole_is_unknown_and_costs_nobody(
    send: Sent, everybody: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapter, "PAGE_BYTES", 300_000)
    async with served({"short": 3}) as scene:
        odd = scene.names_of("short")[: 3 if everybody else 1]
        scene.engines.on_page = dict.fromkeys(odd, send)
        await through(scene, odd)
        for name in odd:
            assert scene.verdict(name).verdict.value == "Unknown", scene.verdict(name)
            assert scene.verdict(name).running is None or not scene.verdict(name).fresh
        assert scene.condition("DataFresh")[0] == "False"
        scene.engines.on_page = {}
        await scene.run(120)
        assert scene.condition("DataFresh") == ("True", "AllRead")
        nothing_happened(scene)


def shuffled(seed: int) -> Changed:
    chance = random.Random(seed)

    def change(text: str) -> str:
        lines = text.splitlines()
        chance.shuffle(lines)
        return "".join(line + "\n" for line in lines)

    return change


def stamped(text: str) -> str:
    return re.sub(r"^([^#\s].*)$", r"\g<1> 1790000000000", text, flags=re.MULTILINE)


READABLE: dict[str, Changed] = {
    "with times": stamped,
    "with CRLF": lambda text: text.replace("\n", "\r\n"),
    "in another order": shuffled(5),
    "with comments and blanks": lambda text: "# EOF\n\n" + text.replace("\n", "\n\n# x\n"),
    "with spaces": lambda text: text.replace("} ", "}   "),
    "with more labels": lambda text: text.replace('engine="0"', 'pod="a\\"b",engine="0",z="}{, "'),
    "with foreign series": lambda text: text + "".join(f'other:x{{a="{n}"}} {n}\n' for n in range(3_000)),
    "with exponents": lambda text: re.sub(
        r" (\d+)\.0$", lambda m: f" {float(m.group(1)):.9e}", text, flags=re.MULTILINE
    ),
}


@pytest.mark.parametrize("change", READABLE.values(), ids=list(READABLE))
async def test_a_legal_page_is_read_and_a_frozen_engine_behind_it_is_found(change: Changed) -> None:
    async with served({"short": 3}, then=5) as scene:
        names = scene.names_of("short")
        scene.engines.rewrite = dict.fromkeys(names, change)
        await scene.run(120)
        assert {scene.verdict(name).verdict.value for name in names} == {"Healthy"}
        assert scene.condition("DataFresh") == ("True", "AllRead")
        scene.engines.change(names[0], hung=True, running=3.0)
        await scene.until_removed(within=400)
        assert scene.removals() == [names[0]]


async def test_a_packed_page_is_read_like_any_other() -> None:
    async with served({"short": 2}, nodes=3) as scene:
        scene.engines.on_page = dict.fromkeys(scene.names_of("short"), packed)
        await scene.run(300)
        assert {scene.verdict(name).verdict.value for name in scene.names_of("short")} == {"Healthy"}
        assert scene.condition("DataFresh") == ("True", "AllRead")


async def test_a_packed_page_that_ends_early_is_read_as_far_as_it_goes_and_costs_nobody() -> None:
    async with served({"short": 3}) as scene:
        odd = scene.names_of("short")
        scene.engines.on_page = dict.fromkeys(odd, packed_badly)
        await through(scene, odd)


async def test_a_redirect_is_followed_nowhere() -> None:
    async with served({"short": 2}, nodes=3) as scene:
        odd = scene.names_of("short")[0]
        scene.engines.on_page[odd] = led_in_circles
        before = scene.engines.pages_served
        await scene.run(300)
        assert scene.engines.pages_served - before == 2 * 10


async def test_two_engines_behind_one_address_are_neither_restarts_to_act_upon_nor_a_hang() -> None:
    async with served({"short": 3}) as scene:
        one, other = scene.names_of("short")[:2]
        turn = count()
        pages: dict[str, str] = {}

        def behind(text: str) -> str:
            pages["mine"] = text
            return pages.get("theirs", text) if next(turn) % 2 else text

        def seen(text: str) -> str:
            pages["theirs"] = text
            return text

        scene.engines.rewrite = {one: behind, other: seen}
        await through(scene, [one])


async def test_a_page_that_is_repeated_for_an_hour_is_no_hang() -> None:
    async with served({"short": 3}) as scene:
        pod = scene.names_of("short")[0]
        held: list[str] = []

        def cached(text: str) -> str:
            held.append(text)
            return held[0]

        scene.engines.rewrite[pod] = cached
        await through(scene, [pod], 3_600.0)


@pytest.mark.parametrize("share", [2, 3, 10])
async def test_an_engine_that_answers_now_and_then_is_judged_by_what_it_says(share: int) -> None:
    async with served({"short": 3}, then=5) as scene:
        pod = scene.names_of("short")[0]
        turn = count()

        async def seldom(request: web.Request, text: str) -> web.StreamResponse:
            return web.Response(text=text) if next(turn) % share == 0 else web.Response(status=503)

        scene.engines.on_page[pod] = seldom
        await through(scene, [pod], 900.0)


async def test_an_odd_sibling_does_not_excuse_a_frozen_engine() -> None:
    async with served({"short": 4}, nodes=5, then=5) as scene:
        odd, frozen = scene.names_of("short")[:2]
        scene.engines.on_page[odd] = answered(200, "<html></html>")
        await scene.run(60)
        scene.engines.change(frozen, hung=True, running=3.0)
        await scene.until_withdrawn(frozen, within=120)
        await scene.run(600)
        assert scene.removals() in ([], [frozen])
        assert scene.rotation(odd) == "in"
