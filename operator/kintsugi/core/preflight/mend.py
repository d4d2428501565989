"""What is left of an object without the fields that can't be read, so that one slip does not hide the others."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from kintsugi.api.objects import DeepSeekV4Deployment, SpecInvalid, parse_deployment
from kintsugi.core.preflight.paths import Location, locate

ROUNDS: Final = 3
_NEEDED: Final = (("spec",), ("spec", "model"), ("spec", "model", "id"))


def without(raw: Mapping[str, Any], paths: Sequence[str]) -> DeepSeekV4Deployment | None:
    """The deployment without the fields at `paths`; None where too little is left to say anything."""
    left = json.loads(json.dumps(raw, default=str))  # parts may be shared: each place gets its own
    for _ in range(ROUNDS):
        places = [location for path in paths if (found := locate(left, path))[1] and (location := found[0])]
        if not places or any(place in _NEEDED or isinstance(place[-1], int) for place in places):
            return None  # a list without one of its items would give the others new places
        for place in sorted(set(places), key=len, reverse=True):
            _drop(left, place)
        try:
            return parse_deployment(left)
        except SpecInvalid as error:
            paths = [problem.path for problem in error.problems]
    return None


def _drop(node: Any, place: Location) -> None:
    for step in place[:-1]:
        node = node[step]
    node.pop(place[-1])
