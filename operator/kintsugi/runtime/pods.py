"""Pods as instances, each version of a pod parsed once: most pods of most passes are as they were in the pass before."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kintsugi.adapters.kube import parse
from kintsugi.core.snapshot import Failed, Failure, Instance
from kintsugi.ports.cluster import Json

NOT_ASKED: Final = Failed(Failure.NO_ADDRESS, "not asked in this pass", float("-inf"))


@dataclass(frozen=True, slots=True)
class ParsedPod:
    """What a pod's own object says, whoever looks and whenever."""

    version: str
    """Its resourceVersion; '' where it has none."""
    instance: Instance
    """Without anything that is read elsewhere than in the object; its scrape is `NOT_ASKED`."""
    model: str | None
    """The name that its engine serves; None where its command says none."""


class Pods:
    """The pods of one deployment as they were last listed, by UID; those not listed any more are forgotten."""

    def __init__(self) -> None:
        self._known: dict[str, ParsedPod] = {}

    def __len__(self) -> int:
        return len(self._known)

    def parsed(self, listed: Sequence[Json]) -> list[ParsedPod]:
        """Each of `listed`, in its order. An object without UID or resourceVersion is parsed each time."""
        found = [self._one(pod) for pod in listed]
        self._known = {each.instance.uid: each for each in found}
        return found

    def _one(self, pod: Json) -> ParsedPod:
        meta = pod.get("metadata") or {}
        uid, version = str(meta.get("uid") or ""), str(meta.get("resourceVersion") or "")
        known = self._known.get(uid)
        if uid and version and known is not None and known.version == version:
            return known
        return ParsedPod(version, parse.instance(pod, NOT_ASKED), parse.served_model(pod))
