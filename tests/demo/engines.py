"""The simulated engines of the fleet, reached through the API server: faults in, levels out, their logs followed."""

import json
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import urllib3
from kubernetes.client import ApiClient

from kintsugi_engine.contract import GPU_FRAGMENTATION
from tests.demo.facts import Facts

ADMIN_PORT, PORT = 8001, 8000
AGAIN = urllib3.Retry(
    3, status=0, redirect=0, allowed_methods=None, backoff_factor=0.5, raise_on_status=False
)
"""For connections that break on a busy machine. To ask twice does no harm: a second fault of a name replaces the first."""


class EngineError(RuntimeError):
    """The API server or the engine refused; the message says which and why."""


class Engines:
    """Talks to the pods of one namespace by name. Raises EngineError, or urllib3's HTTPError where nobody answers."""

    def __init__(self, api: ApiClient, namespace: str) -> None:
        self._api = api
        self._namespace = namespace

    def inject(self, pod: str, fault: str, **parameters: Any) -> None:
        """Switch a fault on."""
        self._call("POST", pod, ADMIN_PORT, "simulator/faults", {"fault": fault, **parameters})

    def clear(self, pod: str) -> None:
        """Switch all faults off."""
        self._call("DELETE", pod, ADMIN_PORT, "simulator/faults")

    def page(self, pod: str) -> str:
        """The engine's `/metrics`."""
        return self._call("GET", pod, PORT, "metrics")

    def _call(
        self, method: str, pod: str, port: int, path: str, body: Mapping[str, Any] | None = None
    ) -> str:
        where = f"/api/v1/namespaces/{self._namespace}/pods/{pod}:{port}/proxy/{path}"
        answer: urllib3.BaseHTTPResponse = self._api.rest_client.pool_manager.request(
            method,
            self._api.configuration.host + where,
            body=None if body is None else json.dumps(body),
            headers={"Content-Type": "application/json"},
            timeout=5.0,
            retries=AGAIN,
        )
        text = answer.data.decode()
        if answer.status != 200:
            raise EngineError(f"{method} {path} of {pod}: {answer.status} {text[:200]}")
        return text


class Levels:
    """A figure for each engine, read every two seconds on a thread: what a person would look up in a dashboard."""

    def __init__(self, engines: Engines, facts: Facts) -> None:
        self._engines = engines
        self._facts = facts
        self._now: dict[str, str] = {}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()

    def now(self) -> dict[str, str]:
        return dict(self._now)

    def _read(self) -> None:
        while not self._stopped.wait(2.0):
            for pod in self._facts.alive():
                try:
                    self._now[pod.name] = figures(self._engines.page(pod.name))
                except (EngineError, urllib3.exceptions.HTTPError):
                    self._now[pod.name] = "no metrics"


def figures(page: str) -> str:
    """Fragmentation and running requests of one page, in words."""
    found = {"fragmented": 0.0, "running": 0.0}
    for line in page.splitlines():
        if line.startswith(GPU_FRAGMENTATION + "{"):
            found["fragmented"] = max(found["fragmented"], float(line.rpartition(" ")[2]))
        elif line.startswith("vllm:num_requests_running{"):
            found["running"] += float(line.rpartition(" ")[2])
    return f"{100 * found['fragmented']:.0f} % fragmented, {found['running']:.0f} running"


class LogFollower:
    """Keeps an engine's log from now on, since its pod takes it along. `lines` after `stop`."""

    def __init__(self, kubectl: list[str], namespace: str, pod: str, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", encoding="utf-8") as file:
            self._process = subprocess.Popen(
                [*kubectl, "logs", "--follow", "--namespace", namespace, pod],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.DEVNULL,
            )

    def stop(self) -> list[str]:
        """Everything that the engine said, from its start to its end."""
        if self._process.poll() is None:
            self._process.terminate()
        self._process.wait()
        return self._path.read_text(encoding="utf-8", errors="replace").splitlines()
