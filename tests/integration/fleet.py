"""One fleet of simulated engines on a real cluster: applied, given faults and requests, and watched."""

import copy
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import yaml
from kubernetes import config

from kintsugi.api.objects import parse_deployment
from kintsugi.core import names
from kintsugi.core.times import Times, effective_times
from tests.cluster.cluster import Cluster
from tests.demo.engines import Engines
from tests.demo.stage import FLEET as EXAMPLE
from tests.demo.stage import environment
from tests.demo.traffic import Sent, Source, Traffic, arguments
from tests.integration.installed import make_namespace
from tests.integration.sight import Json, Seen, Sight

NAME: Final = "chat"
SPEED_UP: Final = 40
"""Ten minutes of evidence are 15 s, and the widest gap between readings that count is 0.75 s: faster, and a busy
machine's pauses would be taken for blindness."""
HEALING: Final[Json] = {
    "mode": "Act",
    "rehearsal": {"speedUp": SPEED_UP},
    "ladder": ["Recreate"],
    "budget": {"maxPerPoolPer30Minutes": 50, "maxPerHour": 200},
    "triggers": {"stall": {"removeAfterSeconds": 120}},
    "storm": {"holdSeconds": 60},
    "probationSeconds": 60,
}
CALM_SPEED_UP: Final = 30
"""For stories about memory, whose evidence is a window without a gap: gaps of 1 s are allowed then."""
SCRAPE_SECONDS: Final = 16
"""Divided too: a reading each 0.4 s, which leaves room for passes that are late."""
PATIENCE: Final = 60.0
"""Seconds that any one step may take on a slow machine beyond what its own times say."""
MARGIN: Final = 1.5
"""Seconds added to a time of the judge that is waited for: its passes and ours do not fall together."""


def manifest(
    image: str, pools: Mapping[str, int], healing: Mapping[str, Any] | None = None, **spec: Any
) -> Json:
    """The fleet of `examples/demo.yaml` with these pools and replicas; `healing` and `spec` replace single fields."""
    made: Json = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))
    made["metadata"]["name"] = NAME
    wanted = made["spec"]
    wanted["engine"] |= {"image": image, "imagePullPolicy": "IfNotPresent"}
    wanted["pools"] = [{"name": pool, "replicas": replicas} for pool, replicas in pools.items()]
    wanted["healing"] = copy.deepcopy(HEALING) | dict(healing or {})
    wanted["monitoring"] = {"scrapeIntervalSeconds": SCRAPE_SECONDS}
    wanted |= spec
    return made


class Fleet:
    """A DeepSeekV4Deployment named `chat` in a namespace of its own, gone with it on `close`."""

    def __init__(self, cluster: Cluster, image: str) -> None:
        self.cluster = cluster
        self.image = image
        self.namespace = f"test-{secrets.token_hex(4)}"
        self.manifest: Json = {}
        make_namespace(cluster, self.namespace)
        api = config.new_client_from_config(str(cluster.kubeconfig), context=cluster.context)
        self.sight = Sight(api, self.namespace)
        self.engines = Engines(api, self.namespace)

    def close(self) -> None:
        """The deployment goes before its namespace, which Kubernetes empties only after half of the longest grace period of
        its pods: minutes in which the operator would still look after the fleet."""
        try:
            self.sight.close()
        finally:
            self.kubectl("delete", "dsv4", "--all", "--wait=false")
            self.kubectl("delete", "namespace", self.namespace, "--wait=false", "--ignore-not-found")

    def kubectl(self, *arguments: str, input: str | None = None) -> str:
        """kubectl in the fleet's namespace."""
        return self.cluster.kubectl("-n", self.namespace, *arguments, input=input)

    # -- as a user -------------------------------------------------------------------------------------------

    def apply(self, pools: Mapping[str, int], healing: Mapping[str, Any] | None = None, **spec: Any) -> None:
        """`kubectl apply` of the fleet with these pools, see `manifest`."""
        self.manifest = manifest(self.image, pools, healing, **spec)
        self.kubectl("apply", "-f", "-", input=yaml.safe_dump(self.manifest))

    def edit(self, **spec: Any) -> None:
        """Apply the fleet again with these fields of its spec replaced."""
        self.manifest["spec"] |= spec
        self.kubectl("apply", "-f", "-", input=yaml.safe_dump(self.manifest))

    @property
    def times(self) -> Times:
        return effective_times(parse_deployment(self.manifest).spec)

    @property
    def size(self) -> int:
        return sum(pool["replicas"] for pool in self.manifest["spec"]["pools"])

    # -- what is ---------------------------------------------------------------------------------------------

    def pods(self, pool: str | None = None) -> list[Json]:
        """Pods of engines that are not ending, the oldest first."""
        found = [
            pod
            for pod in self.sight.now("pods").values()
            if names.POOL_LABEL in pod["metadata"].get("labels", {})
            and pool in (None, pod["metadata"]["labels"][names.POOL_LABEL])
            and not pod["metadata"].get("deletionTimestamp")
        ]
        return sorted(found, key=lambda pod: (pod["metadata"]["creationTimestamp"], pod["metadata"]["name"]))

    def uids(self) -> set[str]:
        return {pod["metadata"]["uid"] for pod in self.pods()}

    @property
    def status(self) -> Json:
        found: Json = self.sight.now("deepseekv4deployments").get(NAME, {})
        status: Json = found.get("status", {})
        return status

    def condition(self, kind: str) -> Json:
        """The condition of that type; {} where the status has none."""
        return next((c for c in self.status.get("conditions", ()) if c["type"] == kind), {})

    def instance(self, pod: str) -> Json:
        """What the status says of that pod; {} where it says nothing."""
        return next((i for i in self.status.get("instances", ()) if i["name"] == pod), {})

    def withheld(self, pod: str) -> str:
        """The gate that keeps the operator from acting on that pod; '' where none does."""
        entries = self.status.get("remediations", {}).get("withheld", ())
        return next((str(entry["gate"]) for entry in entries if entry["instance"] == pod), "")

    def mends(self) -> list[Json]:
        """The Remediations, in the order in which they were made."""
        found = self.sight.now("remediations").values()
        return sorted(found, key=lambda m: (m["metadata"]["creationTimestamp"], m["metadata"]["name"]))

    def events(self) -> set[str]:
        """The reasons of all Events about the fleet."""
        return {
            str(event["reason"])
            for event in self.sight.now("events").values()
            if event["involvedObject"]["kind"] == names.DEPLOYMENT_KIND
        }

    def addresses(self, pool: str) -> set[str]:
        """Where the pool's Service sends new requests."""
        slices = self.sight.now("endpointslices").values()
        return {a for one in slices if service_of(one) == f"{NAME}-{pool}" for a in ready_addresses(one)}

    # -- waiting ---------------------------------------------------------------------------------------------

    def wait_until_ready(self, seconds: float = PATIENCE) -> list[Json]:
        """All engines are Ready and said to be available; their pods."""
        self.sight.wait(
            "all engines are Ready",
            lambda: len(self.pods()) == self.size and all(map(is_ready, self.pods())),
            seconds,
        )
        self.sight.wait("Available", lambda: self.condition("Available").get("status") == "True", seconds)
        return self.pods()

    def wait_until_warm(self, *, calm: bool = False) -> list[Json]:
        """All engines are warmed up, so that what befalls them is judged; `calm`: and their calm state is known."""
        pods = self.wait_until_ready()
        until = max(self.ready_at(pod["metadata"]["uid"]) for pod in pods) + self.times.warm_up + MARGIN
        if calm:
            until += self.times.fragmentation_reference
        time.sleep(max(0.0, until - time.time()))
        return pods

    def wait_until_withdrawn(self, pod: Json, seconds: float = PATIENCE) -> float:
        """When the pod was seen to leave rotation."""
        uid = pod["metadata"]["uid"]
        return self.sight.wait(
            f"{pod['metadata']['name']} is withdrawn", lambda: self.withdrawn_at(uid), seconds
        )

    def wait_until_phase(self, *phases: str, seconds: float = PATIENCE) -> Json:
        """The newest Remediation, once it is in one of these phases."""

        def reached() -> Json | None:
            found = self.mends()
            return found[-1] if found and found[-1].get("status", {}).get("phase") in phases else None

        return self.sight.wait(f"a Remediation is {' or '.join(phases)}", reached, seconds)

    def wait_until_done(self, seconds: float | None = None) -> Json:
        """The newest Remediation, once it has ended."""
        times = self.times
        return self.wait_until_phase(
            "Done", seconds=seconds or PATIENCE + times.hold + times.warm_up + 2 * times.probation
        )

    # -- when it was -----------------------------------------------------------------------------------------

    def ready_at(self, uid: str) -> float:
        """When the pod was first seen Ready."""
        found = self.sight.first("pods", lambda seen: seen.uid == uid and is_ready(seen.object))
        assert found is not None, f"{uid} was never Ready"
        return found

    def created_at(self, uid: str) -> float:
        """When the pod was first seen."""
        found = self.sight.first("pods", lambda seen: seen.uid == uid)
        assert found is not None, f"{uid} was never seen"
        return found

    def withdrawn_at(self, uid: str) -> float | None:
        """When the pod was first seen out of rotation."""
        return self.sight.first("pods", lambda seen: seen.uid == uid and not in_rotation(seen.object))

    def ending_at(self, uid: str) -> float | None:
        """When the pod was first seen to be ending, or to be gone."""

        def ends(seen: Seen) -> bool:
            ending = seen.change == "DELETED" or seen.object["metadata"].get("deletionTimestamp")
            return seen.uid == uid and bool(ending)

        return self.sight.first("pods", ends)

    def least_serving(self, since: float) -> int:
        """The smallest number of engines that were Ready and in rotation at any moment after `since`."""
        serving: set[str] = set()
        least = self.size
        for seen in self.sight.seen("pods"):
            usable = seen.change != "DELETED" and is_ready(seen.object) and in_rotation(seen.object)
            serving = serving | {seen.uid} if usable else serving - {seen.uid}
            if seen.at >= since:
                least = min(least, len(serving))
        return least

    def ended(self) -> set[str]:
        """UIDs of all engines that were ever seen to end."""
        seen = [
            one for one in self.sight.seen("pods") if names.POOL_LABEL in one.object["metadata"]["labels"]
        ]
        return {one.uid for one in seen if self.ending_at(one.uid) is not None}

    def sick_at(self, uid: str) -> float | None:
        """When the status was first seen to call the pod Sick."""

        def sick(seen: Seen) -> bool:
            instances = seen.object.get("status", {}).get("instances", ())
            return any(i["uid"] == uid and i["verdict"] == "Sick" for i in instances)

        return self.sight.first("deepseekv4deployments", sick)

    def out_of_endpoints_at(self, pod: Json, pool: str) -> float | None:
        """When the pool's Service was first seen to send nothing new to the pod, after having done so."""
        address, served = pod["status"]["podIP"], False
        for seen in self.sight.seen("endpointslices"):
            if service_of(seen.object) != f"{NAME}-{pool}":
                continue
            serves = address in ready_addresses(seen.object)
            if served and not serves:
                return seen.at
            served = serves
        return None

    # -- requests --------------------------------------------------------------------------------------------

    @contextmanager
    def traffic(self, **rates: float) -> Iterator[list[Sent]]:
        """Requests to the pools' Services, so many a second, each on a new connection; the list is full at the end."""
        services = {}
        for pool in rates:
            spec = self.cluster.get("service", f"{NAME}-{pool}", self.namespace)["spec"]
            services[pool] = f"http://{spec['clusterIP']}:{spec['ports'][0]['port']}"

        model = self.manifest["spec"]["model"]["servedNames"][0]
        process = self.cluster.popen_inside(
            [sys.executable, "-m", "kintsugi.testing.traffic", *arguments(services, rates, model)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            env=environment(),
        )
        sender = Traffic(Source(process, process.terminate))
        try:
            yield sender.sent
            assert sender.running, "the traffic ended by itself, so its figures mean nothing"
            sender.stop(30.0)
        finally:
            sender.kill()


def is_ready(pod: Json) -> bool:
    return any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions", ()))


def in_rotation(pod: Json) -> bool:
    return bool(pod["metadata"].get("labels", {}).get(names.ROTATION_LABEL) == names.ROTATION_IN)


def service_of(endpoint_slice: Json) -> str:
    return str(endpoint_slice["metadata"]["labels"].get("kubernetes.io/service-name"))


def ready_addresses(endpoint_slice: Json) -> set[str]:
    return {
        address
        for endpoint in endpoint_slice.get("endpoints") or ()
        if endpoint["conditions"].get("ready")
        for address in endpoint["addresses"]
    }
