"""Warm-up, drain and compaction against a simulated engine, and the command line around them."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest
from aiohttp import web

from kintsugi.testing.engine import serve_engine
from kintsugi_engine import cli, compact, drain, warm

HELPERS = ("page", "drain", "warm", "compact", "preflight", "gpus", "weights", "cli", "contract")


async def test_each_length_is_asked_once_and_never_again(tmp_path: Path) -> None:
    mark = tmp_path / "warm"
    async with serve_engine(seed=1) as server:
        words = ["--url", server.url, "--lengths", "1,200", "--mark", str(mark)]
        assert await asyncio.to_thread(warm.main, words) == 0
        assert mark.exists()
    assert warm.main(words) == 0  # the server is gone; nobody is asked


def test_an_engine_that_is_not_there_yet_is_not_warm(tmp_path: Path) -> None:
    mark = tmp_path / "warm"
    assert warm.main(["--url", "http://127.0.0.1:9", "--mark", str(mark)]) == 1
    assert not mark.exists()


async def test_an_idle_engine_is_drained_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    async with serve_engine(seed=1) as server:
        words = ["--url", server.url, "--deadline", "30", "--least", "0"]
        assert await asyncio.to_thread(drain.main, words) == 0
    assert "nothing runs" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("status", "body", "code", "said"),
    [
        (200, {"ranks": [{"rank": "0", "reservedBefore": 900, "reservedAfter": 400}]}, 0, "500 given back"),
        (200, {"ranks": []}, 0, "nothing to give back"),
        (404, {}, 1, "this engine has no such path"),
        (504, {}, 1, "status 504"),
    ],
)
async def test_compaction_says_what_came_of_it(
    capsys: pytest.CaptureFixture[str], status: int, body: dict[str, object], code: int, said: str
) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.json_response(body, status=status)

    app = web.Application()
    app.router.add_post("/kintsugi/compact", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        assert await asyncio.to_thread(compact.main, ["--url", url]) == code
    finally:
        await runner.cleanup()
    printed = capsys.readouterr()
    assert said in printed.out + printed.err


def test_an_unknown_command_is_refused_with_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["heat"])
    assert ended.value.code == 2
    assert "preflight" in capsys.readouterr().err


def test_helpers_need_nothing_but_the_standard_library() -> None:
    code = f"import json, sys\nfor name in {HELPERS!r}: __import__('kintsugi_engine.' + name)\nprint(json.dumps(sorted(sys.modules)))"
    engine = Path(cli.__file__).parent.parent
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True, cwd=engine
    )
    loaded = {name.partition(".")[0] for name in json.loads(done.stdout)}
    assert loaded <= {*sys.stdlib_module_names, "kintsugi_engine", "__main__"}
