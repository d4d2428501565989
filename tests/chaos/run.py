"""Runs all stories side by side on one cluster, and keeps what each came to."""

import threading
import time
import traceback
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Final

from tests.chaos.cases import CASES, LAST, ONE_AFTER_THE_OTHER, PROXIED, TWICE
from tests.chaos.stage import GENERAL, LOST, PLACE, Case, Operators, Scene, Tally, wanted
from tests.chaos.stories_of_fleets import ROOM
from tests.chaos.through import ApiProxy
from tests.cluster.cluster import Cluster
from tests.cluster.kube import wait_for
from tests.integration.fleet import Fleet
from tests.integration.installed import CRDS, Release

AT_ONCE: Final = 4
"""Operators and fleets that start at the same time: two cores that start all of them at once lose sight of their nodes."""
START_SECONDS: Final = 180.0


class Run:
    """All stories that were asked for, under way from `start` on."""

    def __init__(self, cluster: Cluster, image: str, cases: Iterable[Case]) -> None:
        self._cluster = cluster
        self._image = image
        self._cases = tuple(cases)
        self._operators = Operators(cluster, image)
        self._fleets: dict[str, Fleet] = {}
        self._installed: dict[str, tuple[Release, ApiProxy | None]] = {}
        self._pool = ThreadPoolExecutor(2 * len(self._cases) + 20, "chaos")
        self._over = threading.Event()
        self._starting = threading.BoundedSemaphore(AT_ONCE)
        self.tallies: dict[str, Future[Tally]] = {case.name: Future() for case in self._cases}

    def start(self) -> None:
        """Label the nodes, make the namespaces, and let each operator's stories begin as soon as it is there."""
        self._cluster.kubectl("apply", "-f", str(CRDS))
        for node in self._cluster.nodes:
            place = LOST if node.names.name in _lost(self._cluster) else GENERAL
            self._cluster.kubectl(
                "label", "node", node.names.name, f"{PLACE}={place}", *([f"{ROOM}=yes"] * (place == GENERAL))
            )
        for case, fleet in zip(self._cases, self._pool.map(self._new_fleet, self._cases), strict=True):
            self._fleets[case.name] = fleet
        for name in dict.fromkeys(case.operator for case in self._cases):
            self._pool.submit(self._of_operator, name)

    def close(self) -> None:
        """End the watches, at which every story ends that still waits for something; the cluster goes by itself."""
        self._over.set()
        for fleet in self._fleets.values():
            fleet.sight.close()
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._operators.close()

    def _new_fleet(self, case: Case) -> Fleet:
        return Fleet(self._cluster, self._image)

    def _of_operator(self, name: str) -> None:
        mine = [case for case in self._cases if case.operator == name]
        trouble = self._pool.submit(self._install, name, mine).exception()
        if trouble is not None:
            for case in mine:
                self.tallies[case.name].set_exception(trouble)
            return
        started = [(case, self._pool.submit(self._apply, case)) for case in mine if case is not LAST]
        for case, fleet in started:
            if name in ONE_AFTER_THE_OTHER:
                self._tell(case, fleet)
            else:
                self._pool.submit(self._tell, case, fleet)
        if LAST in mine:
            wait_for("all others are over", self._others_are_over, 3600, every_seconds=1.0)
            self._tell(LAST, self._pool.submit(self._apply, LAST))

    def _others_are_over(self) -> bool:
        others = [self.tallies[case.name] for case in self._cases if case is not LAST]
        return self._over.is_set() or all(other.done() for other in others)

    def _install(self, name: str, cases: Sequence[Case]) -> None:
        replicas = {"replicas": 2} if name in TWICE else {}
        namespaces = [self._fleets[case.name].namespace for case in cases]
        with self._starting:
            self._installed[name] = self._operators.install(
                name, namespaces, through_proxy=name in PROXIED, **replicas
            )

    def _apply(self, case: Case) -> None:
        """The fleet of a story, until it serves."""
        fleet = self._fleets[case.name]
        pools = {"short": case.replicas}
        with self._starting:
            fleet.apply(pools, **wanted(self._image, pools, case.healing, case.place))
            fleet.wait_until_ready(START_SECONDS)

    def _tell(self, case: Case, fleet: "Future[None]") -> None:
        """One story, once its fleet serves; whatever happens in it becomes its tally."""
        trouble = fleet.exception()
        began = time.monotonic()
        operator, proxy = self._installed[case.operator]
        scene = Scene(self._fleets[case.name], operator, proxy)
        trouble = trouble or self._pool.submit(case.story, scene).exception()
        tally = scene.tally(case.name, case.allowed)
        if trouble is not None:
            why = "".join(traceback.format_exception(trouble, limit=-3))
            tally = replace(tally, converged=False, remark=f"{tally.remark}\n{why}".strip())
        tally = replace(tally, seconds=time.monotonic() - began)
        print(
            f"{tally.seconds:5.0f} s  {'ok ' if tally.good else 'BAD'} {case.name}: {tally.remark}",
            flush=True,
        )
        self.tallies[case.name].set_result(tally)


def _lost(cluster: Cluster) -> set[str]:
    """The last two nodes."""
    return {node.names.name for node in cluster.nodes[-2:]}


def all_of(names: Iterable[str]) -> tuple[Case, ...]:
    """The cases with these names."""
    chosen = set(names)
    return tuple(case for case in (*CASES, LAST) if case.name in chosen)
