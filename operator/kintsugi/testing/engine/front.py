"""What the API process of a simulated engine counts by itself: HTTP requests and its own process figures."""

from dataclasses import dataclass, field
from typing import Final

from kintsugi.testing.engine.counters import Histogram

HIGHR_EDGES: Final = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 7.5),
    *(10.0, 30.0, 60.0),
)
DURATION_EDGES: Final = (0.1, 0.5, 1.0)


class HttpCounters:
    """The `http_*` families. Like vLLM's they leave `/metrics`, `/health` and `/version` out."""

    def __init__(self) -> None:
        self.requests: dict[tuple[str, str, str], int] = {}
        self.request_bytes: dict[str, tuple[int, int]] = {}
        self.response_bytes: dict[str, tuple[int, int]] = {}
        self.highr = Histogram(HIGHR_EDGES)
        self.durations: dict[tuple[str, str], Histogram] = {}

    def record(
        self, handler: str, method: str, status: int, seconds: float, asked: int = 0, answered: int = 0
    ) -> None:
        """One request of `handler` ended with `status` after `seconds`; body sizes in bytes."""
        key = (handler, method, f"{status // 100}xx")
        self.requests[key] = self.requests.get(key, 0) + 1
        for sizes, size in ((self.request_bytes, asked), (self.response_bytes, answered)):
            count, total = sizes.get(handler, (0, 0))
            sizes[handler] = (count + 1, total + size)
        self.highr.observe(seconds)
        self.durations.setdefault((handler, method), Histogram(DURATION_EDGES)).observe(seconds)

    def reset(self) -> None:
        self.__init__()  # type: ignore[misc]


@dataclass(slots=True)
class ProcessFigures:
    """The `process_*` and `python_*` values of the API process."""

    started_at: float
    """Seconds since the epoch."""
    resident_bytes: float = 6.5e8
    virtual_bytes: float = 2.2e9
    cpu_seconds: float = 14.0
    open_fds: int = 74
    container_anonymous: float = 0.0
    """Bytes, as the container's cgroup tells them; so are the next two."""
    container_shared: float = 0.0
    container_limit: float = 0.0
    gc: tuple[int, int, int] = field(default=(1592, 144, 10))


@dataclass(slots=True)
class RankTelemetry:
    """What the in-engine telemetry of one rank says, as of its last sample. Ratios are 0 to 1."""

    fragmentation: dict[int, float]
    """By worker rank."""
    block_waste: float = 0.0
    orphaned_blocks: int = 0
    orphaned_ratio: float = 0.0
    steps: int = 0
    """Steps of the engine so far."""
    requests: int = 0
    """Requests inside."""
    sampled_at: float = 0.0
    """On the engine's own clock."""
    age: float = 0.0
