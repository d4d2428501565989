"""A real vLLM that serves a tiny model on this machine's CPUs, as a process of the tests."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from kintsugi_engine import contract

BLOCK: Final = 32
"""Tokens in a block: the smallest that vLLM's attention on the CPU takes."""

MAX_MODEL_LEN: Final = 2048

START_SECONDS: Final = 240.0

TELEMETRY: Final = {
    "kv_connector": contract.TELEMETRY_CONNECTOR,
    "kv_connector_module_path": contract.TELEMETRY_MODULE,
    "kv_role": contract.TELEMETRY_ROLE,
}

SETTINGS: Final = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "OMP_NUM_THREADS": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
}
"""The last one lets the worker live in the engine core, as on one GPU: two processes, and half the start-up."""


def arguments(model: Path, *more: str, telemetry: Mapping[str, Any] | None = TELEMETRY) -> list[str]:
    """What vLLM's server is told, without host and port."""
    words = [
        *("--model", str(model), "--served-model-name", "tiny"),
        *("--max-model-len", str(MAX_MODEL_LEN), "--block-size", str(BLOCK)),
        *("--kv-cache-memory-bytes", "67108864"),
        *("--max-num-seqs", "16", "--enforce-eager"),
    ]
    if telemetry is not None:
        words += ["--kv-transfer-config", json.dumps(telemetry)]
    return [*words, *more]


@dataclass
class Engine:
    """A running server. `files`: the folder of its per-rank files."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path
    files: Path
    _pages: list[str] = field(default_factory=list)

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def get(self, path: str, timeout: float = 30.0) -> str:
        with urllib.request.urlopen(self.url(path), timeout=timeout) as answer:
            return str(answer.read().decode())

    def page(self) -> dict[str, float]:
        """`/metrics` as name with labels -> number; a series in the order of its labels on the page."""
        found = {}
        for line in self.get("/metrics").splitlines():
            if line and not line.startswith("#"):
                series, _, number = line.rpartition(" ")
                found[series] = float(number)
        return found

    def ours(self) -> dict[str, float]:
        """Only the telemetry's series, without the labels that all have."""
        return {
            series.replace('engine="0",model_name="tiny"', "").replace("{}", "").replace("{,", "{"): number
            for series, number in self.page().items()
            if series.startswith("kintsugi_")
        }

    def complete(self, prompt: str | list[int], tokens: int, timeout: float = 120.0) -> dict[str, Any]:
        """One completion of exactly that many tokens."""
        body = {
            "model": "tiny",
            "prompt": prompt,
            "max_tokens": tokens,
            "ignore_eos": True,
            "temperature": 0,
        }
        request = urllib.request.Request(
            self.url("/v1/completions"),
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return dict(json.load(answer))

    def core(self) -> int:
        """The process id of the engine core: the server's child that has its name, cut to 15 letters."""
        for task in Path(f"/proc/{self.process.pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                if "EngineCor" in Path(f"/proc/{child}/comm").read_text():
                    return int(child)
        raise RuntimeError(f"the server has no engine core; its log: {self.words()}")

    def words(self) -> str:
        """The end of its log."""
        return self.log.read_text(errors="replace")[-4000:]

    def ready(self) -> bool:
        """Whether it serves. Raises RuntimeError with its log where it has ended."""
        if self.process.poll() is not None:
            raise RuntimeError(f"the engine ended with {self.process.returncode}:\n{self.words()}")
        try:
            self.get("/health", timeout=5)
        except OSError:
            return False
        return True

    def stop(self) -> None:
        """End it and everything that it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


SERVER: Final = ("-m", "vllm.entrypoints.openai.api_server")


def start(
    python: Path,
    package: Path | None,
    scratch: Path,
    words: list[str],
    server: Sequence[str] = SERVER,
    **settings: str,
) -> Engine:
    """Start a server; it does not serve yet. `package`: the folder with `kintsugi_engine`, None for a stock engine."""
    scratch.mkdir(parents=True, exist_ok=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    files = scratch / "telemetry"
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("VLLM_", "PYTHON"))
    }
    environment |= SETTINGS | {contract.TELEMETRY_DIR_VARIABLE: str(files)} | settings
    if package is not None:
        environment["PYTHONPATH"] = str(package)
    log = scratch / "engine.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [
                str(python),
                *server,
                *("--host", "127.0.0.1", "--port", str(port)),
                *words,
            ],
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env=environment,
            cwd=scratch,
            start_new_session=True,
        )
    return Engine(process, port, log, files)


def wait_ready(*engines: Engine) -> None:
    """Wait until all serve. Raises RuntimeError with the log of one that does not within `START_SECONDS`."""
    deadline = time.monotonic() + START_SECONDS
    for engine in engines:
        while not engine.ready():
            if time.monotonic() > deadline:
                raise RuntimeError(f"the engine does not serve after {START_SECONDS:g} s:\n{engine.words()}")
            time.sleep(0.5)


@contextlib.contextmanager
def serving(
    python: Path, package: Path | None, scratch: Path, words: list[str], **settings: str
) -> Iterator[Engine]:
    """A server that serves, ended afterwards."""
    engine = start(python, package, scratch, words, **settings)
    try:
        wait_ready(engine)
        yield engine
    finally:
        engine.stop()
