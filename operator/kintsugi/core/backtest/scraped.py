"""Samples out of a Prometheus server, put together again to the pages that they were scraped from.

All samples of one scrape carry one timestamp, so a page comes back whole, at the second at which it was read: no
look-back, no interpolation, and a scrape that failed is a gap and not a flat line. A query over a range with a step
would repeat a sample until the next, for 5 minutes where the server itself was down, and look like an engine that
stands still.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kintsugi.core.advisor.saved import SavedPage
from kintsugi.core.series import EXPECTED, TABLE
from kintsugi.core.snapshot import Failure

UP: Final = "up"
TARGET_LABELS: Final = frozenset(
    {
        *("job", "instance", "namespace", "pod", "container", "endpoint", "service", "node"),
        *(
            "prometheus",
            "prometheus_replica",
            "cluster",
            "kintsugi_dev_pool",
            "kintsugi_dev_revision",
            "pool",
        ),
    }
)
"""Labels that a scrape adds to a page's own, beside those that stand on the target's `up`."""
DOWN: Final = "Prometheus could not scrape it at this moment (up = 0)"

Target = tuple[tuple[str, str], ...]


class Ambiguous(ValueError):
    """Series that can't be told apart; the message says how to ask for fewer."""


def query(namespace: str, selector: str, prefix: str) -> str:
    """The PromQL selector of everything that the judge reads, without its range.

    Fine buckets below a second, which the judge has no use for, are left out.
    """
    names = sorted({n.metric for row in TABLE.values() for n in row.names})
    told = [UP, *names, *(prefix + name for name in names if prefix)]
    wanted = [f'__name__=~"{"|".join(told)}"', 'le!~"0[.].*"']
    if namespace:
        wanted.append(f'namespace="{_quoted(namespace)}"')
    if selector:
        wanted.append(selector)
    return "{" + ",".join(wanted) + "}"


@dataclass(slots=True)
class Scraped:
    """Turns the answers to `query` over one stretch of time after the other into looks at instances."""

    prefix: str = ""
    _engines: set[Target] = field(default_factory=set)
    _namespaces: set[str] = field(default_factory=set)

    def looks(self, result: Iterable[Mapping[str, Any]], after: float, until: float) -> Iterator[SavedPage]:
        """Looks in (`after`, `until`], epoch seconds, by time. Raises Ambiguous."""
        series = [(dict(each.get("metric") or {}), each.get("values") or ()) for each in result]
        target_labels = TARGET_LABELS.union(*(labels for labels, _ in series if labels.get("__name__") == UP))
        pages: dict[tuple[float, Target], list[str]] = {}
        down: set[tuple[float, Target]] = set()
        for labels, values in series:
            name = labels.pop("__name__", "")
            target = tuple(sorted((k, v) for k, v in labels.items() if k in target_labels))
            if name == UP:
                down |= {(float(at), target) for at, value in values if float(value) == 0.0}
                continue
            name = self._bare(name)
            if name in ENGINE_NAMES:
                self._engines.add(target)
                self._see(dict(target))
            own = ",".join(f'{k}="{_quoted(v)}"' for k, v in labels.items() if k not in target_labels)
            head = f"{name}{{{own}}}" if own else name
            for at, value in values:
                pages.setdefault((float(at), target), []).append(f"{head} {value}\n")
        for at, target in sorted({*pages, *down}):
            if target in self._engines and after < at <= until:
                yield _look(at, dict(target), pages.get((at, target)))

    def _bare(self, name: str) -> str:
        bare = name.removeprefix(self.prefix)
        return bare if bare in NAMES else name

    def _see(self, target: Mapping[str, str]) -> None:
        self._namespaces.add(target.get("namespace", ""))
        if len(self._namespaces) > 1:
            found = ", ".join(sorted(name or "none" for name in self._namespaces))
            raise Ambiguous(
                f"engines of several namespaces were found ({found}): name one with --namespace, or in the "
                "manifest's metadata.namespace"
            )


NAMES: Final = frozenset(name.metric for row in TABLE.values() for name in row.names)
ENGINE_NAMES: Final = frozenset(name.metric for signal in EXPECTED for name in TABLE[signal].names)
"""A target that shows one of these is an engine; other programs export CPU time and HTTP counts too."""


def _look(at: float, target: Mapping[str, str], lines: list[str] | None) -> SavedPage:
    pod = target.get("pod") or target.get("kubernetes_pod_name") or target.get("instance") or "unknown"
    pool = target.get("kintsugi_dev_pool") or target.get("pool") or ""
    facts = {"revision": target["kintsugi_dev_revision"]} if "kintsugi_dev_revision" in target else {}
    if lines is None:
        return SavedPage(pool, pod, at, "", {**facts, "failed": Failure.PENDING.value, "said": DOWN})
    return SavedPage(pool, pod, at, "".join(lines), facts)


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
