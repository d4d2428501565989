"""Moved to `core.pod`: what stands here is for callers that have not moved yet."""

from kintsugi.core.pod.merge import merged
from kintsugi.core.pod.owned import owned_fields

__all__ = ["merged", "owned_fields"]
