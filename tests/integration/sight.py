"""Everything that happens in one namespace, as the API server's watches tell it, with the time at which it was told."""

import json
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import urllib3
from kubernetes.client import ApiClient

T = TypeVar("T")
Json = dict[str, Any]

PATHS: Final[Mapping[str, str]] = {
    "pods": "/api/v1",
    "events": "/api/v1",
    "endpointslices": "/apis/discovery.k8s.io/v1",
    "replicasets": "/apis/apps/v1",
    "deepseekv4deployments": "/apis/kintsugi.dev/v1alpha1",
    "remediations": "/apis/kintsugi.dev/v1alpha1",
}
"""What is watched, and the group in which it is served."""
WATCH_SECONDS: Final = 300
RETRY_SECONDS: Final = 0.5
_END_OF_LIST: Final = "k8s.io/initial-events-end"


@dataclass(frozen=True, slots=True)
class Seen:
    """One change of one object, as seen `at` (epoch seconds)."""

    at: float
    kind: str
    change: str
    """ADDED, MODIFIED or DELETED."""
    object: Json

    @property
    def name(self) -> str:
        return str(self.object["metadata"]["name"])

    @property
    def uid(self) -> str:
        return str(self.object["metadata"]["uid"])


class Sight:
    """Watches one namespace until `close`. What is there at the start is seen as ADDED."""

    def __init__(self, api: ApiClient, namespace: str) -> None:
        self.history: list[Seen] = []
        self._api = api
        self._namespace = namespace
        self._now: dict[str, dict[str, Json]] = {kind: {} for kind in PATHS}
        self._changed = threading.Condition()
        self._closed = threading.Event()
        self._open: dict[str, urllib3.BaseHTTPResponse] = {}
        self._threads = [
            threading.Thread(target=self._follow, args=(kind,), name=kind, daemon=True) for kind in PATHS
        ]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """End the watches and wait for them."""
        self._closed.set()
        for response in list(self._open.values()):
            # One that has ended by itself, or is being closed by its reader just now, refuses to be shut down.
            with suppress(ValueError, RuntimeError, OSError):
                response.shutdown()
        for thread in self._threads:
            thread.join(10)
        still = [thread.name for thread in self._threads if thread.is_alive()]
        assert not still, f"watches that did not end: {still}"

    def now(self, kind: str) -> dict[str, Json]:
        """The objects of that kind as they are, by name."""
        with self._changed:
            return dict(self._now[kind])

    def seen(self, kind: str) -> list[Seen]:
        """Every change of that kind so far, oldest first."""
        with self._changed:
            return [one for one in self.history if one.kind == kind]

    def first(self, kind: str, look: Callable[[Seen], bool]) -> float | None:
        """When a change that `look` likes was first seen (epoch seconds)."""
        return next((one.at for one in self.seen(kind) if look(one)), None)

    def wait(self, what: str, look: Callable[[], T | None], seconds: float) -> T:
        """The first true answer of `look`, asked after each change. Raises TimeoutError with the state of things, which
        is soon once the watches were closed."""
        deadline = time.monotonic() + seconds
        with self._changed:
            while not (answer := look()):
                left = 0.0 if self._closed.is_set() else deadline - time.monotonic()
                if left <= 0:
                    raise TimeoutError(f"not within {seconds:.0f} s: {what}\n{self.picture()}")
                self._changed.wait(min(left, 1.0))
        return answer

    def picture(self) -> str:
        """The state of things, for a person who reads why a test failed."""
        lines = []
        for name, pod in sorted(self.now("pods").items()):
            labels = pod["metadata"].get("labels", {})
            ready = [c["status"] for c in pod["status"].get("conditions", ()) if c["type"] == "Ready"]
            going = " (ending)" if pod["metadata"].get("deletionTimestamp") else ""
            lines.append(
                f"pod {name}{going}: ready {ready}, rotation {labels.get('kintsugi.dev/rotation')}, "
                f"member {labels.get('kintsugi.dev/member')}, node {pod['spec'].get('nodeName')}"
            )
        for name, deployment in self.now("deepseekv4deployments").items():
            status = deployment.get("status", {})
            lines += [
                f"{name}: {c['type']}={c['status']} {c['reason']} {c.get('message', '')}"
                for c in status.get("conditions", ())
            ]
            lines += [
                f"{name}: {i['name']} {i['verdict']} {i.get('reason')} {[f['message'] for f in i.get('findings', ())]}"
                for i in status.get("instances", ())
            ]
            lines.append(f"{name}: {json.dumps(status.get('remediations', {}))}")
        return "\n".join(lines)

    def _follow(self, kind: str) -> None:
        """A watch that breaks begins again with a list; what went in between is then seen as DELETED."""
        group = PATHS[kind]
        url = (
            f"{self._api.configuration.host}{group}/namespaces/{self._namespace}/{kind}?watch=true"
            "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
            f"&timeoutSeconds={WATCH_SECONDS}"
        )
        while not self._closed.is_set():
            try:
                self._read(kind, url)
            except (urllib3.exceptions.HTTPError, OSError, ValueError):
                self._closed.wait(RETRY_SECONDS)

    def _read(self, kind: str, url: str) -> None:
        response = self._api.rest_client.pool_manager.request(
            "GET", url, preload_content=False, retries=False, timeout=urllib3.Timeout(connect=5, read=None)
        )
        listed: set[str] | None = set()
        self._open[kind] = response
        try:
            if self._closed.is_set():  # since before it was known to `close`, which has not shut it down then
                return
            if response.status != 200:
                raise OSError(f"{kind}: {response.status}")
            for line in response:
                if self._closed.is_set():
                    return
                event = json.loads(line)
                listed = self._take(kind, event["type"], event["object"], listed)
        finally:
            del self._open[kind]
            response.close()

    def _take(self, kind: str, change: str, thing: Json, listed: set[str] | None) -> set[str] | None:
        """Note one event; `listed` are the names of the list so far, None once it is complete."""
        if change == "BOOKMARK":
            ended = _END_OF_LIST in thing["metadata"].get("annotations", {})
            if ended and listed is not None:
                for name in set(self.now(kind)) - listed:
                    self._note(Seen(time.time(), kind, "DELETED", self._now[kind][name]))
                return None
            return listed
        if change == "ERROR":
            raise OSError(f"{kind}: {thing}")
        seen = Seen(time.time(), kind, change, thing)
        if listed is not None:
            listed.add(seen.name)
        self._note(seen)
        return listed

    def _note(self, seen: Seen) -> None:
        with self._changed:
            known = self._now[seen.kind]
            same = known.get(seen.name, {}).get("metadata", {}).get("resourceVersion")
            if seen.change == "DELETED":
                known.pop(seen.name, None)
            elif same == seen.object["metadata"]["resourceVersion"]:
                return
            else:
                known[seen.name] = seen.object
            self.history.append(seen)
            self._changed.notify_all()
