"""What Kubernetes says of a pod that does not get as far as its engine."""

import pytest

from kintsugi.core.classify import Retry, StartFacts, Told, classify

POOL = {"pool": "spec.pools[1]", "own": ("engine.image",)}


def waits(reason: str, message: str = "", **more: object) -> StartFacts:
    return StartFacts(waiting_reason=reason, waiting_message=message, **more)  # type: ignore[arg-type]


PULL = 'Back-off pulling image "nowhere/vllm:1": ErrImagePull: not found'


@pytest.mark.parametrize(
    ("start", "kind", "field"),
    [
        (waits("ImagePullBackOff", PULL), "ImagePull", "spec.engine.image"),
        (waits("ImagePullBackOff", PULL, **POOL), "ImagePull", "spec.pools[1].engine.image"),
        (waits("ErrImagePull", "unauthorized"), "ImagePull", "spec.engine.image"),
        (waits("InvalidImageName", 'couldn\'t parse image name "A:B:C"'), "ImagePull", "spec.engine.image"),
        (waits("ErrImageNeverPull"), "ImagePull", "spec.engine.image"),
        (waits("CreateContainerConfigError", 'secret "keys" not found'), "SecretNotFound", "spec.engine"),
        (
            waits(
                "CreateContainerConfigError",
                'secret "keys" not found',
                references=(("engine.apiKeySecretRef", "keys"),),
            ),
            "SecretNotFound",
            "spec.engine.apiKeySecretRef",
        ),
        (waits("CreateContainerConfigError", 'configmap "c" not found'), "ConfigMapNotFound", "spec.engine"),
        (
            waits(
                "CreateContainerConfigError",
                "couldn't find key token in Secret llm/keys",
                references=(("model.source.hub.tokenSecretRef", "keys"),),
            ),
            "KeyNotFound",
            "spec.model.source.hub.tokenSecretRef",
        ),
        (
            waits("CreateContainerConfigError", "container has runAsNonRoot and image will run as root"),
            "ContainerConfig",
            "spec.podTemplate",
        ),
        (
            waits("RunContainerError", 'exec: "vlm": executable file not found in $PATH: unknown'),
            "ConfigInvalid",
            "spec.podTemplate",
        ),
    ],
)
def test_a_container_that_waits_says_for_what(start: StartFacts, kind: str, field: str) -> None:
    found = classify(start)
    assert found is not None
    assert (found.kind, found.field) == (kind, field)
    assert not found.recreate_helps
    assert field in found.cure


def test_the_secret_and_its_key_are_named() -> None:
    found = classify(waits("CreateContainerConfigError", "couldn't find key token in Secret llm/keys"))
    assert found is not None
    assert found.reason == "Secret keys has no key token"


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        (
            '0/3 nodes are available: persistentvolumeclaim "models" not found. preemption: not helpful',
            "PVCNotFound",
        ),
        ("0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims.", "PVCUnbound"),
        (
            "0/3 nodes are available: 3 Insufficient nvidia.com/gpu. No preemption victims found",
            "Unschedulable",
        ),
        ("0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector.", "Unschedulable"),
    ],
)
def test_a_pod_without_a_node_waits_and_is_not_recreated(message: str, kind: str) -> None:
    """S50: a claim that does not exist yet."""
    found = classify(StartFacts(scheduled=False, phase_reason="Unschedulable", phase_message=message))
    assert found is not None
    assert (found.kind, found.retry, found.recreate_helps) == (kind, Retry.BY_KUBELET, False)
    assert "models" in found.reason or kind != "PVCNotFound"


@pytest.mark.parametrize(
    ("event", "kind"),
    [
        (
            Told(
                "FailedAttachVolume",
                'Multi-Attach error for volume "pvc-1" Volume is already used by pod(s) chat-short-1',
            ),
            "MultiAttach",
        ),
        (
            Told(
                "FailedMount", 'Unable to attach or mount volumes: persistentvolumeclaim "models" not found'
            ),
            "PVCNotFound",
        ),
        (
            Told("FailedMount", 'MountVolume.SetUp failed for volume "c" : secret "certs" not found'),
            "SecretNotFound",
        ),
        (
            Told("FailedMount", 'MountVolume.SetUp failed for volume "c" : mount failed: exit status 32'),
            "MountFailed",
        ),
    ],
)
def test_a_pod_that_can_not_mount_waits_and_is_not_recreated(event: Told, kind: str) -> None:
    """S50: Multi-Attach is nobody's crash."""
    found = classify(waits("ContainerCreating", events=(Told("Scheduled", "ok"), event)))
    assert found is not None
    assert (found.kind, found.retry, found.recreate_helps) == (kind, Retry.BY_KUBELET, False)


@pytest.mark.parametrize("after", ["SuccessfulAttachVolume", "Pulling", "Pulled"])
def test_a_mount_that_worked_in_the_end_is_no_failure_while_the_image_is_pulled(after: str) -> None:
    before = Told("FailedMount", "MountVolume.SetUp failed: timed out")
    assert classify(waits("ContainerCreating", events=(before, Told(after, "on its way")))) is None
    again = classify(waits("ContainerCreating", events=(Told(after, "on its way"), before)))
    assert again is not None
    assert again.kind == "MountFailed"


def test_a_node_that_can_not_set_the_pod_up_is_named_as_such() -> None:
    event = Told("FailedCreatePodSandBox", 'plugin type="calico" failed (add): no addresses left')
    found = classify(waits("ContainerCreating", events=(event,)))
    assert found is not None
    assert found.kind == "SandboxFailed"


def test_the_two_words_of_a_failed_pull_say_the_same() -> None:
    """They take turns, and what status says must not."""
    detail = 'rpc error: code = NotFound desc = failed to pull image "r/x:1": not found'
    words = [
        waits("ErrImagePull", detail),
        waits("ImagePullBackOff", f'Back-off pulling image "r/x:1": ErrImagePull: {detail}'),
    ]
    first, second = map(classify, words)
    assert first == second
    bare = classify(waits("ImagePullBackOff", 'Back-off pulling image "r/x:1"'))
    assert bare is not None
    assert bare.reason == 'image "r/x:1" can\'t be pulled'


@pytest.mark.parametrize(
    ("reason", "message", "kind"),
    [
        ("Evicted", "The node was low on resource: ephemeral-storage. Threshold quantity: 1Gi", "DiskFull"),
        (
            "Evicted",
            "Pod ephemeral local storage usage exceeds the total limit of containers 1Gi.",
            "DiskFull",
        ),
        ("Evicted", "The node was low on resource: memory.", "Evicted"),
        ("UnexpectedAdmissionError", "Allocate failed due to no healthy devices present", "NodeRefused"),
        ("OutOfnvidia.com/gpu", "Node didn't have enough resource: nvidia.com/gpu", "NodeRefused"),
        ("NodeAffinity", "Pod was rejected", "NodeRefused"),
    ],
)
def test_a_pod_that_its_node_gave_up_says_why(reason: str, message: str, kind: str) -> None:
    found = classify(StartFacts(phase="Failed", phase_reason=reason, phase_message=message))
    assert found is not None
    assert found.kind == kind


@pytest.mark.parametrize(
    "start",
    [
        StartFacts(),
        StartFacts(scheduled=False),
        StartFacts(scheduled=False, phase_reason="SchedulingGated", phase_message="gated"),
        waits("ContainerCreating"),
        waits("PodInitializing", events=(Told("Pulling", "Pulling image"),)),
        StartFacts(phase="Running", events=(Told("Unhealthy", "Startup probe failed: refused", 90),)),
        waits("CrashLoopBackOff", "back-off 10s restarting failed container"),
    ],
    ids=lambda start: start.waiting_reason or start.phase_reason or start.phase,
)
def test_a_pod_on_its_way_has_not_failed(start: StartFacts) -> None:
    assert classify(start) is None


@pytest.mark.parametrize(
    ("words", "kind", "says"),
    [
        ("init container preflight: weights are missing", "InitContainerFailed", "weights are missing"),
        (
            "init container fetch: 429 Client Error: Too Many Requests for url: x",
            "ModelFetchThrottled",
            "429",
        ),
        ("container proxy: Error: no such file: envoy.yaml", "SidecarFailed", "envoy.yaml"),
        ("container proxy: CUDA out of memory", "SidecarFailed", "proxy"),
    ],
)
def test_another_container_that_fails_is_named(words: str, kind: str, says: str) -> None:
    start = waits(
        "CrashLoopBackOff", "back-off 10s", exit_code=1, ended_message=words, log=("ValueError: engine",)
    )
    found = classify(start)
    assert found is not None
    assert found.kind == kind
    assert says in found.reason


def test_an_image_of_another_container_is_not_the_engines() -> None:
    found = classify(waits("ImagePullBackOff", 'container proxy: Back-off pulling image "nowhere/proxy:1"'))
    assert found is not None
    assert (found.kind, found.field) == ("ImagePull", "spec.podTemplate")
    secret = classify(waits("CreateContainerConfigError", 'container proxy: secret "tls" not found'))
    assert secret is not None
    assert secret.field == "spec.podTemplate"


def test_a_claim_of_the_hubs_cache_is_looked_for_where_it_was_written() -> None:
    start = StartFacts(
        scheduled=False,
        phase_reason="Unschedulable",
        phase_message='persistentvolumeclaim "cache" not found',
        claims=(("model.source.hub.cache.claimName", "cache"),),
    )
    found = classify(start)
    assert found is not None
    assert found.field == "spec.model.source.hub.cache.claimName"
