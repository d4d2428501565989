"""On whose behalf a write is done: set by whoever acts, read by whoever logs the call."""

from contextvars import ContextVar

ATTEMPT: ContextVar[str] = ContextVar("kintsugi_attempt", default="")
"""Id of the remediation attempt that the current task is carrying out, or ''."""
