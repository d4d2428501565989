"""The `http_*` part of a page. Few series, whose labels are only known once requests have come in."""

from collections.abc import Iterable, Sequence
from itertools import accumulate

from kintsugi.testing.engine.counters import Histogram
from kintsugi.testing.engine.front import HttpCounters


def _head(name: str, kind: str, text: str) -> str:
    return f"# HELP {name} {text}\n# TYPE {name} {kind}\n"


def _created(name: str, text: str, labels: Sequence[str], created: str) -> str:
    # As the client library does: no sample, no family.
    if not labels:
        return ""
    return _head(name, "gauge", text) + "".join(f"{name}{one} {created}\n" for one in labels)


def _histogram(name: str, pairs: Sequence[str], histogram: Histogram) -> Iterable[str]:
    edges = [*map(repr, histogram.edges), "+Inf"]
    for edge, value in zip(edges, accumulate(histogram.buckets), strict=True):
        labels = ",".join(sorted([*pairs, f'le="{edge}"']))
        yield f"{name}_bucket{{{labels}}} {value}.0\n"
    plain = "{" + ",".join(pairs) + "}" if pairs else ""
    yield f"{name}_count{plain} {histogram.count}.0\n"
    yield f"{name}_sum{plain} {histogram.total!r}\n"


def http_section(http: HttpCounters, created: str) -> str:
    """The families that count HTTP requests; `created` is the rendered creation time."""
    text = "HTTP requests by method, status and handler."
    parts = [_head("http_requests_total", "counter", text)]
    labels = [
        f'{{handler="{handler}",method="{method}",status="{status}"}}'
        for handler, method, status in http.requests
    ]
    parts += [
        f"http_requests_total{one} {n}.0\n" for one, n in zip(labels, http.requests.values(), strict=True)
    ]
    parts.append(_created("http_requests_created", text, labels, created))
    for name, sizes in (
        ("http_request_size_bytes", http.request_bytes),
        ("http_response_size_bytes", http.response_bytes),
    ):
        text = "Body bytes by handler."
        parts.append(_head(name, "summary", text))
        for handler, (count, total) in sizes.items():
            parts.append(f'{name}_count{{handler="{handler}"}} {count}.0\n')
            parts.append(f'{name}_sum{{handler="{handler}"}} {total}.0\n')
        parts.append(_created(f"{name}_created", text, [f'{{handler="{h}"}}' for h in sizes], created))
    text = "Seconds of all requests."
    parts.append(_head("http_request_duration_highr_seconds", "histogram", text))
    parts += _histogram("http_request_duration_highr_seconds", (), http.highr)
    parts.append(_created("http_request_duration_highr_seconds_created", text, [""], created))
    text = "Seconds of requests by handler."
    parts.append(_head("http_request_duration_seconds", "histogram", text))
    labels = []
    for (handler, method), histogram in http.durations.items():
        pairs = [f'handler="{handler}"', f'method="{method}"']
        labels.append("{" + ",".join(pairs) + "}")
        parts += _histogram("http_request_duration_seconds", pairs, histogram)
    parts.append(_created("http_request_duration_seconds_created", text, labels, created))
    return "".join(parts)
