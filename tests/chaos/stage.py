"""What the stories of the chaos suite share: one cluster, several operators, a fleet for each story, and the counting.

Operators look after the fleets of their own stories alone, so that trouble with one meets no other story. Fleets of one
operator would be a storm to it if many fell sick together, which is right; so the fleets of stories that are not about
storms say that only more than all of a pool are one (`storm.percent: 100`). Windows are short and budgets raised:
twenty times the clock, fifty removals of a pool and two hundred of the operator in its half hour and hour.
"""

import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kintsugi.core.names import ROTATION_LABEL
from tests.chaos.through import ApiProxy
from tests.cluster.cluster import Cluster
from tests.cluster.kube import wait_for
from tests.demo.stage import environment
from tests.integration.fleet import Fleet, in_rotation, is_ready
from tests.integration.fleet import manifest as fleet_manifest
from tests.integration.installed import Release
from tests.integration.sight import Json

SPEED_UP: Final = 20
SCRAPE_SECONDS: Final = 30
"""A reading each second and a half: two dozen fleets share two cores here."""
CALM_STORMS: Final[Json] = {"holdSeconds": 60, "percent": 100}
HEALING: Final[Json] = {
    "rehearsal": {"speedUp": SPEED_UP},
    "storm": CALM_STORMS,
    "budget": {"maxPerPoolPer30Minutes": 50, "maxPerHour": 200},
}
STEP: Final = 120.0
"""Seconds that any one step of a story may take on a machine that is busy with all the others."""

PLACE: Final = "chaos.kintsugi.dev/place"
"""Label of nodes: `lost` are two of which one loses its power, `general` the others."""
LOST: Final = "lost"
GENERAL: Final = "general"


@dataclass(frozen=True, slots=True)
class Tally:
    """What one story came to; an entry of `build/chaos.json`."""

    name: str
    victims: int
    allowed: int
    double_actions: int
    converged: bool
    remark: str = ""
    """For people. Not written to the file."""
    seconds: float = 0.0

    @property
    def good(self) -> bool:
        return self.converged and self.victims <= self.allowed and self.double_actions == 0

    def document(self) -> dict[str, object]:
        return {
            "name": self.name,
            "victims": self.victims,
            "allowed": self.allowed,
            "doubleActions": self.double_actions,
            "converged": self.converged,
        }


@dataclass(slots=True)
class Scene:
    """Everything of one story. `others` are engines that end for another reason than healing, by UID."""

    fleet: Fleet
    operator: Release
    proxy: ApiProxy | None = None
    others: set[str] = field(default_factory=set)
    remark: str = ""

    @property
    def cluster(self) -> Cluster:
        return self.fleet.cluster

    def warm(self, *, calm: bool = False) -> list[Json]:
        """The pods of the fleet once they are judged."""
        self.fleet.wait_until_ready(2 * STEP)
        return self.fleet.wait_until_warm(calm=calm)

    def victim(self, fault: str = "hang", number: int = 0, **parameters: Any) -> Json:
        """Give one engine, the oldest, a fault; its pod."""
        found = self.fleet.pods()[number]
        self.fleet.engines.inject(found["metadata"]["name"], fault, **parameters)
        return found

    def phases(self) -> list[str]:
        return [str(m.get("status", {}).get("phase", "")) for m in self.fleet.mends()]

    def until(self, what: str, look: Callable[[], Any], seconds: float = STEP) -> None:
        self.fleet.sight.wait(what, look, seconds)

    def until_cured(self, seconds: float = 2 * STEP) -> Json:
        """The Remediation that cured, once there is one."""

        def cured() -> Json | None:
            return next(
                (m for m in self.fleet.mends() if m.get("status", {}).get("outcome") == "Cured"), None
            )

        return self.fleet.sight.wait("a Remediation is Cured", cured, seconds)

    def is_settled(self) -> bool:
        """As many engines as wanted, all of them serving, and no attempt under way."""
        pods = self.fleet.pods()
        return (
            len(pods) == self.fleet.size
            and all(is_ready(pod) and in_rotation(pod) for pod in pods)
            and set(self.phases()) <= {"Done"}
            and not self.fleet.status.get("remediations", {}).get("active")
        )

    def tally(self, name: str, allowed: int) -> Tally:
        """Count, once everything has settled or did not in time."""
        try:
            self.until("everything has settled", self.is_settled)
            settled = True
        except TimeoutError as late:
            settled, self.remark = False, f"{self.remark} {late}".strip()
        victims = self.fleet.ended() - self.others
        if len(victims) > allowed:
            self.remark = f"{self.remark} ended: {self._last_seen(victims)}".strip()
        return Tally(name, len(victims), allowed, self._doubles(victims), settled, self.remark)

    def _last_seen(self, uids: set[str]) -> str:
        """For each of these pods its node, phase and conditions when it was last seen."""
        seen = {one.uid: one.object for one in self.fleet.sight.seen("pods") if one.uid in uids}
        return json.dumps(
            {
                pod["metadata"]["name"]: [
                    pod["spec"].get("nodeName"),
                    pod["status"].get("phase"),
                    pod["status"].get("reason"),
                    [c.get("reason") for c in pod["status"].get("conditions", ()) if c.get("reason")],
                ]
                for pod in seen.values()
            }
        )

    def _doubles(self, victims: set[str]) -> int:
        """Evictions of a pod beyond its first, finished removals of an instance beyond one, replacements too many."""
        doubles = sum(count - 1 for count in evictions(self.cluster, self.fleet.namespace).values())
        carried_out = Counter(
            m["spec"]["instance"]["uid"]
            for m in self.fleet.mends()
            if m.get("status", {}).get("outcome") not in (None, "Cancelled")
        )
        doubles += sum(count - 1 for count in carried_out.values())
        created = {seen.uid for seen in self.fleet.sight.seen("pods") if is_engine(seen.object)}
        gone = len(victims | (self.others & created))
        return doubles + max(0, len(created) - self.fleet.size - gone)


def is_engine(pod: Json) -> bool:
    return ROTATION_LABEL in pod["metadata"].get("labels", {})


def evictions(cluster: Cluster, namespace: str) -> Counter[str]:
    """Granted evictions in that namespace, by pod, as the API server's audit log has them."""
    found: Counter[str] = Counter()
    with cluster.audit_log.open(encoding="utf-8") as lines:
        for line in lines:
            if namespace not in line or "eviction" not in line or not line.endswith("\n"):
                continue
            record = json.loads(line)
            target = record["objectRef"]
            granted = record.get("responseStatus", {}).get("code") == 201
            if (target.get("subresource"), target.get("namespace"), granted) == ("eviction", namespace, True):
                found[target["name"]] += 1
    return found


def wanted(image: str, pools: Mapping[str, int], healing: Json, place: Mapping[str, str]) -> Json:
    """Keyword arguments for `Fleet.apply`: this suite's times, and engines on nodes with these labels."""
    template = fleet_manifest(image, pools)["spec"]["podTemplate"]
    template["spec"]["nodeSelector"] = dict(place)
    return {
        "healing": {**HEALING, **healing},
        "monitoring": {"scrapeIntervalSeconds": SCRAPE_SECONDS},
        "podTemplate": template,
    }


@dataclass(frozen=True, slots=True)
class Case:
    """One story: what it is called, who looks after its fleet, what it may cost, and how it goes."""

    name: str
    operator: str
    allowed: int
    story: Callable[[Scene], None]
    replicas: int = 2
    healing: Json = field(default_factory=dict)
    place: Mapping[str, str] = field(default_factory=lambda: {PLACE: GENERAL})


class Operators:
    """The operators of the suite, each with its own namespace and, where wanted, its own way to the API server."""

    FIRST_PORT: Final = 7440

    def __init__(self, cluster: Cluster, image: str) -> None:
        self._cluster = cluster
        self._image = image
        self._proxies: list[ApiProxy] = []
        self._lock = threading.Lock()

    def install(
        self, name: str, namespaces: list[str], *, through_proxy: bool = False, **values: Any
    ) -> tuple[Release, ApiProxy | None]:
        """An operator for these namespaces; returns when it is Ready."""
        proxy = None
        said: Json = {
            "watchNamespaces": namespaces,
            "crds": {"enabled": False},
            "webhook": {"enabled": False},
            "nodeSelector": {PLACE: GENERAL},
            **values,
        }
        if through_proxy:
            with self._lock:
                proxy = ApiProxy(self._cluster, self.FIRST_PORT + len(self._proxies))
                self._proxies.append(proxy)
            said |= proxy.values
        release = Release(self._cluster, self._image, f"chaos-{name}", said)
        self._cluster.kubectl("create", "namespace", release.name)
        release.install()
        return release, proxy

    def close(self) -> None:
        for proxy in self._proxies:
            proxy.close()


def stream(fleet: Fleet, pod: Json, tokens: int) -> "subprocess.Popen[str]":
    """One long request straight to the pod; its process ends with 0 if it got all its tokens."""
    target = f"victim=http://{pod['status']['podIP']}:8000"
    return fleet.cluster.popen_inside(
        [
            *(sys.executable, "-m", "kintsugi.testing.traffic", "--target", target, "--even"),
            *("--rate", "1", "--duration", "1.5", "--output-tokens", str(tokens)),
            *("--model", "deepseek-v4", "--grace", "180", "--progress-seconds", "0"),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        env=environment(),
    )


def lines(release: Release) -> Iterator[Json]:
    """What the operator has said since its last start."""
    yield from release.said()


def wait_for_line(release: Release, what: str, look: Callable[[Json], bool], seconds: float = STEP) -> None:
    """Return once the operator has said something that `look` likes."""
    wait_for(what, lambda: any(map(look, lines(release))), seconds, every_seconds=2.0)
