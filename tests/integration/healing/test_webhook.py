"""The admission webhook as the chart installs it, asked by a real API server through its Service (S34)."""

import base64
import http.client
import json
import secrets
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import yaml

from kintsugi.core import names
from tests.cluster.kube import wait_for
from tests.demo.venue import kubectl_of
from tests.integration.fleet import NAME, manifest
from tests.integration.installed import NAMESPACE, RELEASE, Release

pytestmark = pytest.mark.cluster

WEBHOOK = f"{RELEASE}-webhook"
PATIENCE = 60.0
CONFIGURATION = f"validatingwebhookconfiguration/{WEBHOOK}"
WRONG_PATH = "spec.podTemplate.spec.restartPolicy"
ALLOWED = ["UnknownFlag"]
"""The simulated engine has flags of its own."""

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class User:
    """Somebody with kubectl in a namespace of his own."""

    release: Release
    namespace: str

    def tries(self, *arguments: str, **document: Any) -> subprocess.CompletedProcess[str]:
        """What kubectl says, refusals included; keywords are a manifest for its standard input."""
        return subprocess.run(
            [*kubectl_of(self.release.cluster), "-n", self.namespace, *arguments],
            input=yaml.safe_dump(document) if document else None,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    def does(self, *arguments: str, **document: Any) -> str:
        """The same, where it must work; what it prints, warnings included."""
        done = self.tries(*arguments, **document)
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    def is_refused(self, *arguments: str, **document: Any) -> str:
        """The words of a refusal that must come."""
        done = self.tries(*arguments, **document)
        assert done.returncode != 0, f"accepted: {done.stdout}"
        return done.stderr

    def fleet(self, **spec: Any) -> Json:
        """A fleet that asks for no GPU; `spec` replaces single fields of it."""
        made = manifest(self.release.image, {"short": 1}, **{"hardware": {"gpusPerInstance": 0}, **spec})
        made["metadata"]["namespace"] = self.namespace
        made["spec"].setdefault("validation", {"allow": ALLOWED})
        return made

    def wrong(self) -> Json:
        """One whose pod template contradicts the operator."""
        made = self.fleet()
        made["spec"]["podTemplate"]["spec"]["restartPolicy"] = "Never"
        return made

    def get(self, what: str) -> Json:
        found: Json = json.loads(self.does("get", what, "-o", "json"))
        return found

    def condition(self, kind: str) -> str:
        """Status of a condition of the fleet; '' while there is none."""
        conditions = self.get(f"dsv4/{NAME}").get("status", {}).get("conditions", ())
        return next((str(c["status"]) for c in conditions if c["type"] == kind), "")

    def engines(self) -> list[Json]:
        """Pods that were made for the fleet."""
        return [pod for pod in self.get("pods")["items"] if names.POOL_LABEL in pod["metadata"]["labels"]]


@pytest.fixture
def user(installed: Release) -> Iterator[User]:
    namespace = f"test-{secrets.token_hex(4)}"
    installed.cluster.kubectl("create", "namespace", namespace)
    yield User(installed, namespace)
    installed.cluster.kubectl("delete", "namespace", namespace, "--wait=false")


@pytest.fixture
def stopped(user: User) -> Iterator[User]:
    """The same, while no operator runs."""
    user.release.scale(0)
    wait_for("nobody answers", lambda: not addresses(user.release), PATIENCE)
    yield user
    user.release.scale(1)


@pytest.fixture
def gone(installed: Release) -> Iterator[Release]:
    """The release, uninstalled for as long as the test takes."""
    installed.uninstall()
    yield installed
    installed.install()


def addresses(release: Release) -> set[str]:
    """Where the webhook's Service leads to."""
    listed = release.cluster.reader.json(
        f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices"
        f"?labelSelector=kubernetes.io%2Fservice-name%3D{WEBHOOK}"
    )
    assert listed is not None
    return {
        address
        for each in listed["items"]
        for endpoint in each.get("endpoints") or ()
        if endpoint["conditions"].get("ready")
        for address in endpoint["addresses"]
    }


def bundle(release: Release) -> str:
    """What the API server knows the webhook by."""
    (hook,) = release.cluster.get("validatingwebhookconfiguration", WEBHOOK)["webhooks"]
    return base64.b64decode(hook["clientConfig"].get("caBundle", "")).decode()


def asks(release: Release, address: str, review: Json) -> Json:
    """The answer of one replica to a review, over TLS as the API server speaks it."""
    trust = ssl.create_default_context(cadata=bundle(release))
    port = release.cluster.expose(address, 9443)
    connection = http.client.HTTPSConnection("127.0.0.1", port, context=trust, timeout=20)
    connection.sock = trust.wrap_socket(
        socket.create_connection(("127.0.0.1", port), 20),
        server_hostname=f"{WEBHOOK}.{NAMESPACE}.svc",
    )
    connection.request("POST", "/preflight", json.dumps(review))
    response: Json = json.loads(connection.getresponse().read())["response"]
    connection.close()
    return response


def test_a_wrong_fleet_is_refused_with_the_field_and_accepted_once_it_is_right(user: User) -> None:
    said = user.is_refused("apply", "-f", "-", **user.wrong())
    assert WRONG_PATH in said
    assert "is invalid" in said
    assert not user.tries("get", f"dsv4/{NAME}").stdout, "nothing was stored"
    assert WRONG_PATH in user.is_refused("create", "--dry-run=server", "-f", "-", **user.wrong())
    user.does("apply", "-f", "-", **user.fleet())
    wait_for("the fleet is accepted", lambda: user.condition("SpecAccepted") == "True", PATIENCE)
    advised = user.does("apply", "-f", "-", **user.fleet(validation={"allow": [*ALLOWED, "Bogus"]}))
    assert "Warning: spec.validation.allow" in advised
    assert "Bogus" in advised
    edit = {"spec": {"podTemplate": {"spec": {"restartPolicy": "Never"}}}}
    assert WRONG_PATH in user.is_refused("patch", f"dsv4/{NAME}", "--type=merge", "-p", json.dumps(edit))
    user.does("delete", f"dsv4/{NAME}")


@pytest.mark.slow
def test_while_no_operator_runs_nothing_is_held_up_and_what_slipped_in_gets_no_pod(stopped: User) -> None:
    user = stopped
    user.does("create", "service", "clusterip", "other", "--tcp=80")
    user.does("run", "other", f"--image={user.release.image}", "--command", "--", "sleep", "60")
    user.does("delete", "service/other")
    user.does("delete", "pod/other", "--now", "--wait=false")
    user.does("apply", "-f", "-", **user.wrong())
    user.does("annotate", f"dsv4/{NAME}", "kintsugi.dev/pause.night=true")
    second = user.wrong()
    second["metadata"]["name"] = "second"
    user.does("apply", "-f", "-", **second)
    user.does("delete", "dsv4/second", "--cascade=foreground")

    user.release.scale(1)
    wait_for("it is said to be wrong", lambda: user.condition("SpecAccepted") == "False", PATIENCE)
    said = next(c for c in user.get(f"dsv4/{NAME}")["status"]["conditions"] if c["type"] == "SpecAccepted")
    assert said["reason"] == "ConfigInvalid"
    assert WRONG_PATH in said["message"]
    assert user.engines() == []

    # It can be operated, and its error is told again; only a new one is refused.
    pause = json.dumps({"spec": {"healing": {"pauseRequests": ["night"]}}})
    assert f"still an error, so no pod is made: {WRONG_PATH}" in user.does(
        "patch", f"dsv4/{NAME}", "--type=merge", "-p", pause
    )
    user.does("annotate", f"dsv4/{NAME}", "kintsugi.dev/pause.night-")
    user.does("scale", f"dsv4/{NAME}", "--replicas=2")
    worse = json.dumps({"spec": {"podTemplate": {"spec": {"restartPolicy": "OnFailure"}}}})
    user.tries("patch", f"dsv4/{NAME}", "--type=merge", "-p", worse)
    assert user.engines() == []
    user.does("delete", f"dsv4/{NAME}")


@pytest.mark.slow
def test_with_fail_and_no_operator_fleets_wait_and_nothing_else_does(stopped: User) -> None:
    user, cluster = stopped, stopped.release.cluster
    user.does("apply", "-f", "-", **user.fleet())
    policy = '[{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "%s"}]'
    cluster.kubectl("patch", CONFIGURATION, "--type=json", "-p", policy % "Fail")
    try:
        wait_for(
            "the API server has heard of it",
            lambda: "failed calling webhook" in user.tries("apply", "-f", "-", **user.wrong()).stderr,
            PATIENCE,
        )
        user.does("create", "service", "clusterip", "other", "--tcp=80")
        user.does("annotate", f"dsv4/{NAME}", "note=here")
        user.does("scale", f"dsv4/{NAME}", "--replicas=3")
        user.does("delete", f"dsv4/{NAME}", "--cascade=foreground")
    finally:
        cluster.kubectl("patch", CONFIGURATION, "--type=json", "-p", policy % "Ignore")


@pytest.mark.slow
def test_a_deleted_secret_and_an_emptied_bundle_are_back_within_seconds_without_a_restart(user: User) -> None:
    cluster = user.release.cluster
    before, known = user.release.pod()["metadata"]["uid"], bundle(user.release)
    cluster.kubectl("-n", NAMESPACE, "delete", "secret", WEBHOOK)
    began = time.monotonic()
    wait_for("another certificate is trusted", lambda: bundle(user.release) != known, PATIENCE)
    assert WRONG_PATH in user.is_refused("apply", "-f", "-", **user.wrong())
    assert time.monotonic() - began < 30.0

    emptied = [{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]
    cluster.kubectl("patch", CONFIGURATION, "--type=json", "-p", json.dumps(emptied))
    wait_for("it is trusted again", lambda: bundle(user.release) != "", PATIENCE)
    wait_for(
        "wrong fleets are refused again",
        lambda: WRONG_PATH in user.tries("apply", "--dry-run=server", "-f", "-", **user.wrong()).stderr,
        PATIENCE,
    )
    assert user.release.pod()["metadata"]["uid"] == before
    assert user.release.restarts() == 0


@pytest.mark.slow
def test_every_replica_answers_whoever_leads(user: User) -> None:
    release = user.release
    release.cluster.kubectl("-n", NAMESPACE, "scale", f"deployment/{RELEASE}", "--replicas=2")
    try:
        wait_for("both take requests", lambda: len(addresses(release)) == 2, PATIENCE)
        review = {
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "request": {"uid": "u", "operation": "CREATE", "object": user.wrong()},
        }
        answers = [asks(release, address, review) for address in addresses(release)]
        assert [answer["allowed"] for answer in answers] == [False, False]
    finally:
        release.scale(1)
        wait_for("one is left", lambda: len(release.pods()) == 1 and release.is_ready(), PATIENCE)


@pytest.mark.slow
def test_uninstalling_leaves_nothing_of_it_behind(user: User, gone: Release) -> None:
    cluster = user.release.cluster
    assert WEBHOOK not in cluster.kubectl("get", "validatingwebhookconfigurations", "-o", "name")
    assert WEBHOOK not in cluster.kubectl("-n", NAMESPACE, "get", "services", "-o", "name")
    wait_for(
        "the key is gone",
        lambda: WEBHOOK not in cluster.kubectl("-n", NAMESPACE, "get", "secrets", "-o", "name"),
        PATIENCE,
    )
    user.does("apply", "-f", "-", **user.wrong())
    user.does("delete", f"dsv4/{NAME}")
