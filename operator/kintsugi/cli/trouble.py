"""What went wrong with a cluster, in one short line with the cure."""

from collections.abc import Iterator
from typing import Final

import urllib3.exceptions

from kintsugi.core.names import DEPLOYMENT_KIND, DEPLOYMENT_PLURAL
from kintsugi.ports.errors import NotFound

UNREACHABLE_CURE: Final = (
    "Is it running, and is it the one you mean? Name another with --kubeconfig or --context"
)


def trouble(error: BaseException) -> str:
    """The line for a PortError or OSError: server and cause where nobody answered, else what was answered."""
    if isinstance(error, NotFound) and str(error).startswith(f"list {DEPLOYMENT_PLURAL}"):
        return (
            f"the cluster knows no {DEPLOYMENT_KIND} (404): is Kintsugi installed in this cluster? "
            "Install its chart, or name another cluster with --kubeconfig or --context"
        )
    met = list(_causes(error))
    for each in met:
        if isinstance(each, urllib3.exceptions.HTTPError):
            return f"{_server(each)} can't be reached: {_said(met)}. {UNREACHABLE_CURE}"
    return str(error)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An error and what lies beneath it, the deepest last."""
    found: BaseException | None = error
    seen: set[int] = set()
    while found is not None and id(found) not in seen:
        seen.add(id(found))
        yield found
        reason = getattr(found, "reason", None)
        inner = next((each for each in found.args if isinstance(each, BaseException)), None)
        found = (
            found.__cause__ or (reason if isinstance(reason, BaseException) else inner) or found.__context__
        )


def _server(error: urllib3.exceptions.HTTPError) -> str:
    pool = getattr(error, "pool", None)
    scheme, host, port = (getattr(pool, name, None) for name in ("scheme", "host", "port"))
    shown = f"[{host}]" if ":" in str(host) else host
    return f"{scheme}://{shown}:{port}" if host else "the API server"


def _said(met: list[BaseException]) -> str:
    """The cause in the system's own words, else the deepest error's without the object's address."""
    for each in reversed(met):
        if isinstance(each, urllib3.exceptions.TimeoutError):
            return "no answer in time"
        if isinstance(each, OSError):
            words = getattr(each, "verify_message", "") or each.strerror or str(each)
            return str(words).rstrip(".")
    return str(met[-1]).split(": ", 1)[-1].rstrip(".")
