"""What the API server's answers mean, by table: HTTP status → `ports.errors`.

Statuses and reasons: Kubernetes API conventions, "HTTP Status codes" and "Response Status Kind".
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from kintsugi.ports.errors import (
    AlreadyExists,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    PortError,
    Refused,
    Unavailable,
)

_BY_STATUS: Final[Mapping[int, type[PortError]]] = {
    400: Invalid,
    401: Forbidden,
    403: Forbidden,
    404: NotFound,
    405: Invalid,
    406: Invalid,
    408: Unavailable,
    409: Conflict,
    410: NotFound,
    413: Invalid,
    415: Invalid,
    422: Invalid,
    429: Refused,
}
"""All others, 5xx above all: Unavailable."""

_SEVERAL_BUDGETS: Final = "more than one PodDisruptionBudget"
"""The eviction subresource says so with a 500; it is a refusal that people must see, and no outage."""

_LONGEST_MESSAGE: Final = 600


def error_of(status: int, body: bytes, headers: Mapping[str, str], call: str, write: bool) -> PortError:
    """The error that an answer with a status of 300 or more stands for. `call` names verb and resource."""
    said = _status_object(body)
    reason, message = str(said.get("reason") or ""), str(said.get("message") or _text(body))
    words = f"{call}: {status} {reason} {message}"[:_LONGEST_MESSAGE].strip()
    if status == 429 and not write:
        return Unavailable(words)
    if status == 429 or (status >= 500 and _SEVERAL_BUDGETS in message):
        return Refused(words, _retry_after(said, headers))
    if status == 409 and reason == "AlreadyExists":
        return AlreadyExists(words)
    if status == 422 and _uid_differs(said):
        return Conflict(words)
    return _BY_STATUS.get(status, Unavailable)(words)


def _uid_differs(said: Mapping[str, Any]) -> bool:
    """A patch with another `metadata.uid` than the stored one is refused as a change of an immutable field."""
    causes = (said.get("details") or {}).get("causes") or ()
    return any(cause.get("field") == "metadata.uid" for cause in causes)


def _retry_after(said: Mapping[str, Any], headers: Mapping[str, str]) -> float | None:
    given = headers.get("Retry-After") or (said.get("details") or {}).get("retryAfterSeconds")
    try:
        return float(given) if given else None
    except ValueError:
        return None


def _status_object(body: bytes) -> Mapping[str, Any]:
    try:
        parsed = json.loads(body)
    except ValueError:
        return {}
    return parsed if isinstance(parsed, dict) else {}


def _text(body: bytes) -> str:
    return " ".join(body.decode("utf-8", "replace").split())
