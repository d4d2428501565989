"""What was written to a cluster, and by whom: the API server's own record."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Write:
    """One answered write request. `user` is a ServiceAccount's as `system:serviceaccount:NAMESPACE:NAME`; `at` is RFC 3339."""

    at: str
    user: str
    verb: str
    resource: str
    """With its subresource: `pods/eviction`."""
    namespace: str
    name: str
    code: int
    """The HTTP status of the answer: 409 is a write that was refused."""


def writes(log: Path, user: str | None = None) -> list[Write]:
    """All writes in the order in which they were answered, or those of one user. A line being written is left out."""
    return [write for write in _read(log) if user in (None, write.user)]


def _read(log: Path) -> Iterator[Write]:
    for line in log.read_text(encoding="utf-8").split("\n")[:-1]:
        record = json.loads(line)
        target = record.get("objectRef", {})
        parts = (target.get("resource", ""), target.get("subresource", ""))
        yield Write(
            at=record["requestReceivedTimestamp"],
            user=record["user"]["username"],
            verb=record["verb"],
            resource="/".join(part for part in parts if part),
            namespace=target.get("namespace", ""),
            name=target.get("name", ""),
            code=record.get("responseStatus", {}).get("code", 0),
        )
