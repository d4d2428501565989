"""What the advisor says, and when it may say anything: enough data, a change worth making, a steady answer."""

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from kintsugi.core.advisor.traffic import PoolTraffic

Confidence = Literal["low", "medium", "high"]

MIN_SECONDS: Final = 60.0
MIN_LOOKS: Final = 6
MIN_REQUESTS: Final = 20.0
"""Below any of these (a window, pages of each instance, finished requests) nothing is suggested: assumed, chosen so that
one burst does not pass for the traffic."""
MEDIUM: Final = (600.0, 200.0)
HIGH: Final = (3600.0, 1000.0)
"""Seconds and finished requests from which on confidence is medium, or high: a share of 1,000 requests is known to about
three points, one of 200 to seven."""
DEAD_BAND: Final = 0.15
"""Changes smaller than this share of the present value are not suggested, so that two windows of the same traffic do not
contradict each other."""


@dataclass(frozen=True, slots=True)
class Suggestion:
    """One change that a person may make. Nobody makes it for them."""

    pool: str
    path: str
    """JSON path of the field to write."""
    current: float | None
    """None: not known, or left to the engine."""
    suggested: float
    why: str
    """The arithmetic in words."""
    confidence: Confidence
    samples: int
    """Pages that it rests on."""
    requests: int
    """Finished requests that it rests on."""
    window_seconds: float


@dataclass(frozen=True, slots=True)
class Missing:
    """Why nothing can be said about a field."""

    pool: str
    path: str
    why: str


Answer: TypeAlias = Suggestion | Missing | None
"""None: the field is fine as it is, as far as the traffic tells."""


def lacking(traffic: PoolTraffic) -> str:
    """What is missing before anything may be said of a pool; '' where nothing is."""
    if not traffic.instances:
        return "no instance could be read" if traffic.left_out else "no instance was looked at"
    if traffic.seconds < MIN_SECONDS:
        return f"the window is {traffic.seconds:.0f} s, at least {MIN_SECONDS:.0f} s are needed"
    if traffic.looks_each < MIN_LOOKS:
        return f"{traffic.looks_each} pages of an instance, at least {MIN_LOOKS} are needed"
    if traffic.requests < MIN_REQUESTS:
        return f"{traffic.requests:.0f} requests ended in the window, at least {MIN_REQUESTS:.0f} are needed"
    return ""


def confidence_of(traffic: PoolTraffic) -> Confidence:
    """How much the window and the number of requests carry."""
    for name, (seconds, requests) in (("high", HIGH), ("medium", MEDIUM)):
        if traffic.seconds >= seconds and traffic.requests >= requests:
            return "high" if name == "high" else "medium"
    return "low"


def worth_it(current: float, suggested: float) -> bool:
    """Whether the change is outside the dead band."""
    return abs(suggested - current) >= DEAD_BAND * current


def suggestion(
    traffic: PoolTraffic,
    path: str,
    current: float | None,
    suggested: float,
    why: str,
    confidence: Confidence | None = None,
) -> Suggestion:
    """A suggestion that rests on `traffic`."""
    return Suggestion(
        pool=traffic.pool,
        path=path,
        current=current,
        suggested=suggested,
        why=why,
        confidence=confidence or confidence_of(traffic),
        samples=traffic.looks,
        requests=round(traffic.requests),
        window_seconds=round(traffic.seconds, 1),
    )
