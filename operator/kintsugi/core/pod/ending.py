"""What an engine's container does between the wish to end it and the signal: `preStop`."""

from typing import Any, Final

from kintsugi.api.effective import Pool
from kintsugi.core.pod.seconds import PRE_STOP_SECONDS

Json = dict[str, Any]

_INSTALLED: Final = "kintsugi-engine"
_LAID_ON: Final = "python3 -m kintsugi_engine.cli"
"""The package that lies on `PYTHONPATH` has no program of its own."""


def pre_stop(pool: Pool, drain_seconds: int, laid_on: bool) -> Json:
    """The hook: with our package there, wait until nothing runs, for `drain_seconds` at most; else just for the endpoints.

    The operator drains before it removes; this is for who does not ask it: a node that is emptied, `kubectl delete`. What
    can't be run ends at once, and then `PRE_STOP_SECONDS` are slept as without the package. The hook's time is part of the
    pod's grace period, which ends it in any case. `laid_on`: the package is beside the image and not in it.
    """
    if laid_on:
        program = _LAID_ON
    elif pool.engine.runtime == "Native" or pool.engine.telemetry == "Image":
        program = _INSTALLED
    else:
        return {"sleep": {"seconds": PRE_STOP_SECONDS}}
    deadline = max(drain_seconds, PRE_STOP_SECONDS)
    drain = f"{program} drain --least={PRE_STOP_SECONDS} --deadline={deadline}"
    return {"exec": {"command": ["/bin/sh", "-c", f"{drain} || exec sleep {PRE_STOP_SECONDS}"]}}
