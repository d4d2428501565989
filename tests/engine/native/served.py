"""A native server as a process of the tests."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

START_SECONDS: Final = 240.0
PATIENCE_SECONDS: Final = 120.0


@dataclass
class Served:
    """A running server."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def get(self, path: str) -> tuple[int, str]:
        """(status, body)."""
        return _open(urllib.request.Request(self.url(path)))

    def post(self, path: str, body: Any, **headers: str) -> tuple[int, Any]:
        """(status, JSON of the answer)."""
        sent = {"Content-Type": "application/json"} | headers
        request = urllib.request.Request(self.url(path), json.dumps(body).encode(), sent, method="POST")
        status, text = _open(request)
        return status, json.loads(text)

    def page(self) -> dict[str, float]:
        """`/metrics` as name with labels -> number."""
        found = {}
        for line in self.get("/metrics")[1].splitlines():
            if line and not line.startswith("#"):
                series, _, number = line.rpartition(" ")
                found[series] = float(number)
        return found

    def sum(self, name: str) -> float:
        """All series of one name, added."""
        return sum(number for series, number in self.page().items() if series.partition("{")[0] == name)

    def engine(self) -> int:
        """Process id of the child that computes."""
        for task in Path(f"/proc/{self.process.pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes():
                    return int(child)
        raise RuntimeError(f"the server has no engine: {self.words()}")

    def words(self) -> str:
        """The end of its log."""
        return self.log.read_text(errors="replace")[-4000:]

    def ready(self) -> bool:
        """Raises RuntimeError with its log where it has ended."""
        if self.process.poll() is not None:
            raise RuntimeError(f"the server ended with {self.process.returncode}:\n{self.words()}")
        try:
            return self.get("/health")[0] == 200
        except OSError:
            return False

    def stop(self) -> None:
        """End it and everything that it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def _open(request: urllib.request.Request) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def command(python: Path, model: Path, port: int, *words: str) -> list[str]:
    """How the server is started."""
    fixed = ["--model", str(model), "--served-model-name", "tiny", "--host", "127.0.0.1", "--port", str(port)]
    return [str(python), "-m", "kintsugi_engine.cli", "native", *fixed, *words]


def environment(package: Path) -> dict[str, str]:
    """What it is started in."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("VLLM_", "PYTHON"))}
    return kept | {"PYTHONPATH": str(package), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}


def free_port() -> int:
    """A port of the loopback that nobody has now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start(python: Path, package: Path, model: Path, scratch: Path, *words: str) -> Served:
    """A server that is on its way."""
    port, log = free_port(), scratch / "native.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command(python, model, port, *words), stdout=output, stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL, env=environment(package), cwd=scratch, start_new_session=True,
        )  # fmt: skip
    return Served(process, port, log)


@contextlib.contextmanager
def serve(python: Path, package: Path, model: Path, scratch: Path, *words: str) -> Iterator[Served]:
    """A server that answers; ended at the end."""
    served = start(python, package, model, scratch, *words)
    try:
        until(served.ready, START_SECONDS, "the server is ready")
        yield served
    finally:
        served.stop()


def until(true: Any, seconds: float, what: str) -> None:
    """Wait until `true()`. Raises TimeoutError with `what` was waited for."""
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds:g} s: {what}")
        time.sleep(0.2)
