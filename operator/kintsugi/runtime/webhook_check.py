"""What the webhook asks of an object: the rules of `kintsugi lint`, without what only a cluster can tell.

The reconciler asks the same rules again, and what else stops this version from running a spec.
"""

from collections.abc import Mapping
from typing import Any

from kintsugi.core.preflight.check import check
from kintsugi.core.preflight.finding import Finding


def preflight(raw: Mapping[str, Any]) -> tuple[Finding, ...]:
    """Everything wrong with what users wrote of the object.

    Not its status: one that a newer operator left is no fault of who edits the spec. Fields that the API server has
    dropped already are found in the annotation in which `kubectl apply` keeps what it was given.
    """
    return check({key: value for key, value in raw.items() if key != "status"})
