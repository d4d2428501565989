"""The demo's clients: real requests from inside the cluster's network, a new connection each, every one accounted for."""

import json
import subprocess
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Sent:
    """One request that ended; `error` empty where it went well. `started` in epoch seconds."""

    id: str
    pool: str
    started: float
    error: str


@dataclass(frozen=True, slots=True)
class Count:
    """The requests of one scenario."""

    requests: int
    failed: int
    lost: int
    errors: tuple[str, ...]
    """What the failed ones met, at most five."""


def account(
    sent: Iterable[Sent], pools: Iterable[str], begin: float, end: float, swallowed: set[str]
) -> Count:
    """Count the requests to `pools` that were sent in [begin, end).

    Lost are those that went wrong and whose ids are in `swallowed`; everything else that went wrong has failed.
    """
    mine = [one for one in sent if one.pool in set(pools) and begin <= one.started < end]
    wrong = [one for one in mine if one.error]
    lost = [one for one in wrong if one.id in swallowed]
    errors = tuple(f"{one.id}: {one.error}" for one in wrong if one.id not in swallowed)
    return Count(len(mine), len(errors), len(lost), errors[:5])


def swallowed_by(log: Iterable[str], until: float) -> set[str]:
    """Request ids that an engine's own log names: inside when it hung, or swallowed up to `until` (epoch seconds)."""
    ids: set[str] = set()
    for line in log:
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if not isinstance(entry, dict):
            continue
        if entry.get("event") == "hung":
            ids.update(entry.get("in_flight", ()))
        elif entry.get("event") == "swallowed" and not entry.get("canary") and entry["time"] <= until:
            ids.add(entry["request_id"])
    return ids


@dataclass(frozen=True, slots=True)
class Source:
    """A running sender: the process whose standard output is its report, and how to ask it to send no more."""

    process: "subprocess.Popen[str]"
    end: Callable[[], None]


def arguments(services: Mapping[str, str], rates: Mapping[str, float], model: str) -> list[str]:
    """The command line of `kintsugi.testing.traffic`: to each pool's Service, until it is told to stop."""
    targets = [word for pool, url in services.items() for word in ("--target", f"{pool}={url}")]
    pace = [word for pool, rate in rates.items() for word in ("--rate", f"{pool}={rate}")]
    return [
        *(*targets, *pace, "--model", model),
        *("--output-tokens", "30-80", "--duration", "3600", "--grace", "50"),
    ]


class Traffic:
    """Follows a sender's report until `stop`. `sent` grows as requests end."""

    def __init__(self, source: Source) -> None:
        self.sent: list[Sent] = []
        self._source = source
        self._trouble: Exception | None = None
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def stop(self, patience: float) -> list[Sent]:
        """Send nothing more, wait at most `patience` seconds for what is under way, and give all that was sent.

        Raises RuntimeError where the report could not be read: then nobody knows what became of the requests.
        """
        self._source.end()
        self._reader.join(patience)
        self.kill()
        if self._trouble is not None:
            raise RuntimeError("the traffic's report can't be read") from self._trouble
        return self.sent

    def kill(self) -> None:
        """End at once, whatever is under way."""
        if self._source.process.poll() is None:
            self._source.process.kill()
        self._source.process.wait()
        self._reader.join()
        if self._source.process.stdout is not None:
            self._source.process.stdout.close()

    @property
    def running(self) -> bool:
        return self._source.process.poll() is None

    def _read(self) -> None:
        assert self._source.process.stdout is not None
        try:
            for line in self._source.process.stdout:
                document: dict[str, Any] = json.loads(line)
                if document["type"] == "request":
                    self.sent.append(
                        Sent(document["id"], document["target"], document["started"], document["error"])
                    )
        except (ValueError, KeyError) as trouble:
            self._trouble = trouble
