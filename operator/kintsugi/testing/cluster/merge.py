"""How a write changes an object: RFC 7386 merge patches, and server-side apply by a single manager."""

from collections.abc import Mapping
from typing import Any

Json = dict[str, Any]


def merge_patch(target: Any, patch: Any) -> Any:
    """RFC 7386: null removes a key, objects merge, anything else replaces. The arguments stay as they are."""
    if not isinstance(patch, Mapping):
        return patch
    merged = dict(target) if isinstance(target, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged


def apply(live: Any, last: Any, new: Any) -> Any:
    """`new` applied over `live` by a manager whose last applied manifest was `last`.

    Fields of `last` that `new` omits are removed, fields of others stay. Lists are replaced whole: true of atomic
    lists, and of keyed ones (containers, ports) as long as only one manager writes to them.
    """
    if not isinstance(new, Mapping):
        return new
    merged = dict(live) if isinstance(live, Mapping) else {}
    before = last if isinstance(last, Mapping) else {}
    for key in before:
        if key not in new:
            if isinstance(before[key], Mapping) and isinstance(merged.get(key), Mapping):
                merged[key] = apply(merged[key], before[key], {})
                if not merged[key]:
                    del merged[key]
            else:
                merged.pop(key, None)
    for key, value in new.items():
        merged[key] = apply(merged.get(key), before.get(key), value)
    return merged
