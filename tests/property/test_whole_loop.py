"""Random faults, node failures, crashes and outages over hours: the promises hold after every pass, and calm returns."""

import math
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from kintsugi.core.snapshot import Failure
from kintsugi.ports.errors import Conflict, Refused, Unavailable
from kintsugi.testing.cluster import pods
from tests.scenarios.stage import Scene, warm

PACE = 30.0
WINDOW = 1800.0
LONGEST_DRAIN = 300.0 + 4 * PACE
"""Budgets count a removal from its start; its eviction may come so much later."""
NODES = 5
STAYS_CALM = 1200.0
"""Seconds for which a calm fleet is watched: twice as long as the evidence of these faults takes."""

index = st.integers(0, 4)
faults = st.one_of(
    st.tuples(
        st.just("behave"), index, st.sampled_from([{"hung": True}, {"fragmentation": 0.4}, {"slow": 3.0}])
    ),
    st.tuples(st.just("behave"), index, st.sampled_from([{"hung": True}, {"fragmentation": 0.4}])),
    st.tuples(st.just("behave"), index, st.sampled_from([{"silent": True}, {"failure": Failure.HTTP_ERROR}])),
    st.tuples(st.just("recover"), index),
    st.tuples(st.just("exit"), index, st.sampled_from([0, 1])),
    st.tuples(st.just("fail"), index),
    st.tuples(st.just("unready"), index),
    st.tuples(st.just("remove"), index),
    st.tuples(st.just("power_off"), index),
    st.tuples(st.just("cut"), index),
    st.tuples(st.just("join"), index),
    st.tuples(st.just("gpus"), index, st.integers(0, 2)),
)
trouble = st.one_of(
    st.tuples(st.just("blind"), st.sampled_from([Failure.CONNECT_TIMEOUT, Failure.SILENT, None])),
    st.tuples(st.just("outage"), st.sampled_from([40, 200, 900])),
    st.tuples(st.just("crash"), st.integers(1, 8), st.booleans()),
    st.tuples(st.just("restart")),
    st.tuples(
        st.just("refuse"), st.sampled_from([Refused("busy", 7.0), Conflict("moved"), Unavailable("502")])
    ),
    st.tuples(st.just("lost"), st.sampled_from(["status", "patch", "evict", "create"])),
    st.tuples(st.just("pause"), st.sampled_from(["true", None])),
    st.tuples(st.just("replicas"), st.integers(2, 4)),
    st.tuples(st.just("image"), st.sampled_from(["vllm/vllm-openai:v0.33.0", "vllm/vllm-openai:v0.34.0"])),
)
waits = st.sampled_from([30.0, 90.0, 300.0, 420.0, 900.0])
stories = st.lists(st.tuples(st.one_of(faults, faults, trouble), waits), min_size=3, max_size=14)


class Audit:
    """A warm fleet, the list of all that was ever done to its pods, and the promises."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.replicas = len(scene.names_of("short"))
        self.touched: set[str] = set()
        """UIDs of pods that were ever faulty, or whose node was."""
        self.hung_since: dict[str, float] = {}
        self.uids: dict[str, str] = {}
        """Name to UID of every pod ever seen."""
        self._evicted: dict[str, float] = {}
        self._seen = 0

    async def run(self, seconds: float) -> None:
        until = self.scene.cluster.clock.mono() + seconds
        while self.scene.cluster.clock.mono() < until:
            self.scene.cluster.clock.move(PACE)
            self.uids |= {str(p["metadata"]["name"]): str(p["metadata"]["uid"]) for p in self.scene.pods()}
            await self.scene.step()
            self.check()

    def happen(self, event: tuple[Any, ...]) -> None:
        kind, *given_ = event
        if kind in ON_PODS:
            living = [p for p in self.scene.pods() if not pods.deleting(p)]
            if living:
                pod = living[given_[0] % len(living)]
                self.touched.add(str(pod["metadata"]["uid"]))
                ON_PODS[kind](self, str(pod["metadata"]["name"]), *given_[1:])
        elif kind in ON_NODES:
            node = f"node{given_[0] % NODES + 1}"
            self.touched |= {
                str(p["metadata"]["uid"]) for p in self.scene.pods() if p["spec"].get("nodeName") == node
            }
            ON_NODES[kind](self, node, *given_[1:])
        else:
            ELSEWHERE[kind](self, *given_)

    def behave(self, name: str, changes: dict[str, Any]) -> None:
        if self.scene.engines.behaviour_of(name) is not None:
            self.scene.engines.change(name, **changes)
            if changes.get("hung"):
                self.hung_since.setdefault(self.scene.uid(name), self.scene.cluster.clock.mono())

    def recover(self, name: str) -> None:
        calm = {"hung": False, "silent": False, "failure": None, "slow": 1.0, "fragmentation": 0.05}
        self.hung_since.pop(self.scene.uid(name), None)
        self.behave(name, calm)

    def exit(self, name: str, code: int) -> None:
        if self.scene.engines.behaviour_of(name) is not None:
            self.scene.cluster.exit_container("llm", name, code)

    def fail(self, name: str) -> None:
        pod = self.scene.pod(name)
        if pod is not None and pod["spec"].get("nodeName"):
            self.scene.cluster.fail_pod("llm", name)

    def blind(self, failure: Failure | None) -> None:
        for name in self.scene.names_of("short"):
            self.touched.add(self.scene.uid(name))  # what nobody can read may be anything
            self.behave(name, {"failure": failure})

    def refuse(self, error: Exception) -> None:
        self.scene.cluster.fail_next("*", "*", error, times=3)  # type: ignore[arg-type]

    def replicas_become(self, count: int) -> None:
        self.replicas = count
        self.scene.edit(pools=[{"name": "short", "replicas": count}])

    async def calm(self) -> None:
        """Whatever was wrong is right again, and nobody pauses; an hour and a half later at most all is calm, and stays so."""
        scene = self.scene
        scene.cluster.faults.spare()
        scene.annotate(**{"kintsugi.dev__pause.story": None})
        for number in range(1, NODES + 1):
            scene.cluster.join(f"node{number}")
            scene.cluster.set_gpus(f"node{number}", 1)
        for _ in range(3):
            for pod in scene.pods():
                name = str(pod["metadata"]["name"])
                self.recover(name)
                if scene.engines.behaviour_of(name) is not None:
                    scene.cluster.set_ready("llm", name, True)
            await self.run(300)
        calm_for = 0.0
        for _ in range(int(5400 / PACE)):
            await self.run(PACE)
            calm_for = calm_for + PACE if self.is_calm() else 0.0
            if calm_for >= STAYS_CALM:
                break

    def is_calm(self) -> bool:
        """Whether `check_calm` finds nothing, and no attempt is under way."""
        try:
            self.check_calm()
        except AssertionError:
            return False
        return all(a.outcome is not None for a in self.scene.status.remediations.active)

    def check(self) -> None:
        """Every promise, against the world as it is and the operator's own record."""
        scene = self.scene
        new = scene.cluster.writes[self._seen :]
        self._seen = len(scene.cluster.writes)
        now = scene.cluster.clock.mono()
        for write in new:
            uid = self.uids.get(write.name, "")
            if write.verb == "evict":
                self._evicted.setdefault(uid, now)
                assert uid in self.touched, f"{write.name} was healthy all its life and was evicted"
            withdrawn = write.verb == "patch" and '"out"' in write.detail and "attempt" in write.detail
            if withdrawn and now - self.hung_since.get(uid, now) < WINDOW:
                need = max(1, math.ceil(self.replicas / 2))
                assert scene.serving() >= need, f"{scene.serving()} serve after {write.name} was withdrawn"
        times = sorted(self._evicted.values())
        for first, third in zip(times, times[2:], strict=False):
            assert third - first > WINDOW - LONGEST_DRAIN, f"three evictions within {third - first:.0f} s"
        self.check_status()
        assert scene.cluster.pruned == []

    def check_status(self) -> None:
        status = self.scene.status
        under_way = [a for a in status.remediations.active if a.outcome is None]
        removing = [a for a in under_way if a.phase != "Quarantined"]
        assert len(removing) <= 1, f"in flight: {[a.name for a in removing]}"
        said = {entry.instance for entry in status.remediations.withheld if entry.message}
        excused = said | {a.instance for a in status.remediations.active}
        sick = {i.name for i in status.instances if i.verdict == "Sick"}
        assert sick <= excused, f"sick, and nobody says why nothing is done: {sick - excused}"

    def check_calm(self) -> None:
        """All is as the spec wants it: nobody was forgotten outside, half removed or half rolled out."""
        scene = self.scene
        living = [p for p in scene.pods() if not pods.deleting(p)]
        out = [
            p["metadata"]["name"] for p in living if p["metadata"]["labels"]["kintsugi.dev/rotation"] != "in"
        ]
        assert out == [], f"forgotten outside: {out} {scene.withheld()} {scene.status.remediations.active}"
        assert len(living) == self.replicas, scene.status
        assert scene.serving() == self.replicas
        assert len({p["spec"]["containers"][0]["image"] for p in living}) == 1


ON_PODS: dict[str, Callable[..., Any]] = {
    "behave": Audit.behave,
    "recover": Audit.recover,
    "exit": Audit.exit,
    "fail": Audit.fail,
    "unready": lambda audit, name: audit.scene.cluster.set_ready("llm", name, False),
    "remove": lambda audit, name: audit.scene.cluster.remove("Pod", "llm", name),
}
ON_NODES: dict[str, Callable[..., Any]] = {
    "power_off": lambda audit, node: audit.scene.cluster.power_off(node),
    "cut": lambda audit, node: audit.scene.cluster.cut(node),
    "join": lambda audit, node: audit.scene.cluster.join(node),
    "gpus": lambda audit, node, gpus: audit.scene.cluster.set_gpus(node, gpus),
}
ELSEWHERE: dict[str, Callable[..., Any]] = {
    "blind": Audit.blind,
    "outage": lambda audit, seconds: audit.scene.cluster.outage(seconds),
    "crash": lambda audit, count, before: audit.scene.cluster.crash_after(count, before),
    "restart": lambda audit: audit.scene.restart(),
    "refuse": Audit.refuse,
    "lost": lambda audit, verb: audit.scene.cluster.fail_next(verb, "*", Unavailable("gone"), performed=True),
    "pause": lambda audit, value: audit.scene.annotate(**{"kintsugi.dev__pause.story": value}),
    "replicas": Audit.replicas_become,
    "image": lambda audit, image: audit.scene.edit(engine={"image": image}),
}


@settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(story=stories)
async def test_no_story_breaks_a_promise_and_every_story_ends_in_calm(
    story: list[tuple[tuple[Any, ...], float]],
) -> None:
    audit = Audit(await warm({"short": 3}, nodes=NODES, pace=PACE, seconds=1320.0))
    for event, wait in story:
        note(f"{audit.scene.cluster.clock.mono():.0f}: {event}")
        audit.happen(event)
        await audit.run(wait)
    await audit.calm()
    audit.check_calm()
