"""What the webhook asks of an object: the same questions as the reconciler's, without what only a cluster can tell."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from kintsugi.api.objects import SpecInvalid, parse_deployment
from kintsugi.core.accept import problems_of_spec


class _Error(NamedTuple):
    path: str
    message: str
    severity: str = "Error"
    rule: str = "SpecInvalid"
    cure: str = ""


def preflight(raw: Mapping[str, Any]) -> tuple[_Error, ...]:
    """Everything wrong with the object as the API server holds it."""
    try:
        problems = problems_of_spec(parse_deployment(raw).spec)
    except SpecInvalid as error:
        problems = error.problems
    return tuple(_Error(each.path, each.message) for each in problems)
