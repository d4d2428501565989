"""Kubernetes Events, as objects. When to post one, and how often, is the caller's business."""

from collections.abc import Mapping
from typing import Any, Final

from kintsugi.adapters.kube.parse import rfc3339, rfc3339_micro
from kintsugi.core import names

MESSAGE_LIMIT: Final = 1024
REASON_LIMIT: Final = 128
"""Bounds of the API server's own validation of Events, in bytes of UTF-8."""


def event(
    regarding: Mapping[str, Any],
    event_type: str,
    reason: str,
    message: str,
    action: str,
    now: float,
    instance: str,
) -> dict[str, Any]:
    """A core/v1 Event. `regarding` has kind, namespace, name, and uid where known; over-long texts are cut.

    `now` in epoch seconds; `instance` names this process among the operator's replicas.
    """
    about = {
        key: regarding[key]
        for key in ("apiVersion", "kind", "namespace", "name", "uid")
        if regarding.get(key)
    }
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "namespace": str(regarding.get("namespace") or "default"),
            "generateName": f"{regarding.get('name') or 'kintsugi'}.",
        },
        "involvedObject": about,
        "type": event_type,
        "reason": _cut(reason, REASON_LIMIT),
        "message": _cut(message, MESSAGE_LIMIT),
        "action": _cut(action, REASON_LIMIT) or "Observe",
        "source": {"component": names.FIELD_MANAGER},
        "reportingComponent": f"{names.GROUP}/operator",
        "reportingInstance": _cut(instance, REASON_LIMIT) or "unknown",
        "firstTimestamp": rfc3339(now),
        "lastTimestamp": rfc3339(now),
        "eventTime": rfc3339_micro(now),
        "count": 1,
    }


def _cut(text: str, limit: int) -> str:
    """`text` in at most `limit` bytes; an ellipsis says where it was cut."""
    whole = text.encode()
    if len(whole) <= limit:
        return text
    return whole[: limit - len("…".encode())].decode(errors="ignore") + "…"
