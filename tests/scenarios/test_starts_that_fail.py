"""Starts that fail: each says its cause and cure, and nobody makes a pod that would fail in the same way."""

from typing import Any

import pytest

from kintsugi.core.classify import kinds
from kintsugi.ports.errors import Forbidden
from kintsugi.testing.cluster import Start
from kintsugi.testing.cluster.store import Json
from tests.scenarios.stage import Scene, warm

NEVER = float("inf")
PREFIX = "(EngineCore_DP0 pid=7) ERROR 10-08 20:33:48 [core.py:708] "
TOO_LONG = PREFIX + (
    "ValueError: To serve at least one request with the model's max seq len (800000), 96.10 GiB KV cache is needed, which "
    "is larger than the available KV cache memory (24.32 GiB). Based on the available memory, the estimated maximum model "
    "length is 202496. Try increasing `gpu_memory_utilization` or decreasing `max_model_len`."
)
UNKNOWN_FLAG = (
    "usage: vllm serve [model_tag] [options]\nvllm serve: error: unrecognized arguments: --log-every-dream"
)
THROTTLED = (
    PREFIX
    + "huggingface_hub.errors.HfHubHTTPError: 429 Client Error: Too Many Requests for url: https://hub/LICENSE"
)
LOADING = "Loading safetensors checkpoint shards:  53% Completed | 34/64 [04:50<04:10,  8.4s/it]"
SHM = "OSError: [Errno 28] No space left on device: '/dev/shm/psm_d3adb33f'"
NEW_IMAGE = "vllm/vllm-openai:v0.34.0"


def dies(words: str, code: int = 1, **more: Any) -> Start:
    return Start(boot_seconds=NEVER, dies_after=30.0, exit_code=code, last_words=words, **more)


def only_new(start: Start) -> Any:
    """Pods of the new image start like this, others as ever."""

    def behaviour(pod: Json) -> Start:
        return start if pod["spec"]["containers"][0]["image"] == NEW_IMAGE else Start()

    return behaviour


def says(scene: Scene, kind: str) -> str:
    """The message of the condition of that kind."""
    return next(c.message for c in scene.status.conditions if c.type == kind)


async def failing(start: Start, seconds: float = 1800, **spec: Any) -> tuple[Scene, set[str]]:
    """A new deployment none of whose pods starts; and the pods that it had after five minutes."""
    scene = Scene(nodes=4)
    scene.cluster.on_start(lambda pod: start)
    scene.deploy({"short": 2}, **spec)
    await scene.run(300)
    first = scene.uids()
    await scene.run(seconds)
    return scene, first


async def test_a_context_that_does_not_fit_is_said_with_the_engines_own_maximum_and_no_pod_is_made_again() -> (
    None
):
    """S01."""
    scene, first = await failing(dies(TOO_LONG), 7200)
    assert scene.condition("SpecAccepted") == ("False", "ConfigInvalid")
    assert scene.condition("Degraded") == ("True", "ConfigInvalid")
    assert scene.condition("Progressing") == ("False", "ConfigInvalid")
    assert "spec.engine.args.maxModelLen" in says(scene, "SpecAccepted")
    assert "202496" in scene.status.why
    assert scene.uids() == first
    assert (scene.removals(), scene.remediations()) == ([], [])
    assert scene.told("StartFailed") == 1

    scene.cluster.on_start(lambda pod: Start())
    scene.edit(engine={"args": {"maxModelLen": 200_000}})
    await scene.run(900)
    assert scene.condition("SpecAccepted") == ("True", "Accepted")
    assert scene.condition("Degraded") == ("False", "Well")
    assert (scene.serving(), scene.status.why) == (2, "")


async def test_a_flag_that_the_new_engine_does_not_know_stops_at_one_pod_and_the_old_ones_serve() -> None:
    """S06."""
    scene = await warm({"short": 3}, seconds=300)
    old = scene.uids()
    scene.cluster.on_start(only_new(dies(UNKNOWN_FLAG, 2)))
    scene.edit(engine={"image": NEW_IMAGE, "extraArgs": ["--log-every-dream"]})
    await scene.run(3600)
    assert len(scene.uids() - old) == 1
    assert scene.serving() >= 2
    assert scene.condition("SpecAccepted") == ("False", "ConfigInvalid")
    assert scene.condition("Progressing") == ("False", "RolloutStalled")
    assert "--log-every-dream" in scene.status.why
    assert "spec.engine.extraArgs" in scene.status.why
    assert scene.removals() == []


@pytest.mark.parametrize(
    ("start", "kind", "says_so"),
    [
        (dies(THROTTLED), "ModelFetchThrottled", "spec.model.source.pvc"),
        (
            Start(boot_seconds=NEVER, probe_seconds=300.0, last_words=LOADING),
            "StartProbeTooShort",
            "34 of 64 shards",
        ),
        (Start(image_ok=False), "ImagePull", "spec.engine.image"),
        (Start(waits=("CreateContainerConfigError", 'secret "keys" not found')), "SecretNotFound", "keys"),
        (dies("", 137, end_reason="OOMKilled"), "OOMKilled", "spec.engine.resources.limits.memory"),
        (dies("OSError: [Errno 30] Read-only file system: '/.cache'"), "CacheNotWritable", "/.cache"),
        (
            dies(f"{PREFIX}ValueError: Loading lora tax failed: No adapter found for /m/tax"),
            "AdapterFailed",
            "/m/tax",
        ),
        (dies(SHM), "SharedMemoryTooSmall", "spec.engine.shm.size"),
        (dies("INFO 10-08 20:33:40 [launcher.py:1] bye", 0), "EngineExited", "exit 0"),
        (dies(f"{PREFIX}KeyError: 'layers.7'\n{'noise ' * 400}"), "EngineCrashed", "layers.7"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_a_new_fleet_that_does_not_start_says_why_and_keeps_its_pods(
    start: Start, kind: str, says_so: str
) -> None:
    """S21, S22, S51, S52, S53: no strike, no recreation, whatever the cause."""
    scene, first = await failing(start)
    assert scene.condition("Degraded") == ("True", kind)
    assert says_so in scene.status.why
    assert scene.uids() == first
    assert (scene.removals(), scene.remediations()) == ([], [])
    assert {i.reason for i in scene.status.instances} == {kind}


@pytest.mark.parametrize(
    "event",
    [
        (
            "FailedAttachVolume",
            'Multi-Attach error for volume "pvc-1" Volume is already used by pod(s) chat-short-x',
            "MultiAttach",
        ),
        (
            "FailedMount",
            'Unable to attach or mount volumes: persistentvolumeclaim "models" not found',
            "PVCNotFound",
        ),
    ],
    ids=lambda event: event[2],
)
async def test_a_pod_whose_volume_is_not_there_waits_and_is_never_recreated(
    event: tuple[str, str, str],
) -> None:
    """S50."""
    reason, message, kind = event
    scene = Scene(nodes=4)
    scene.cluster.on_start(lambda pod: Start(waits=("ContainerCreating", "")))
    scene.deploy(
        {"short": 2},
        model={"id": "deepseek-ai/DeepSeek-V4-Flash", "source": {"pvc": {"claimName": "models"}}},
    )
    await scene.run(60)
    first = scene.uids()
    for name in scene.names_of("short"):
        scene.cluster.tell("llm", name, reason, message)
    await scene.run(1800)
    assert scene.condition("Degraded") == ("True", kind)
    assert "spec.model.source.pvc.claimName" in scene.status.why
    assert scene.uids() == first
    assert scene.removals() == []
    assert all(pod["status"]["containerStatuses"][0]["restartCount"] == 0 for pod in scene.pods())
    scene.cluster.on_start(lambda pod: Start())
    await scene.run(300)
    assert (scene.serving(), scene.status.why) == (2, "")


@pytest.mark.parametrize(
    ("words", "code", "more", "kind"),
    [
        (THROTTLED, 1, {}, "ModelFetchThrottled"),
        (TOO_LONG, 1, {}, "ConfigInvalid"),
        ("", 137, {"end_reason": "OOMKilled"}, "OOMKilled"),
        (LOADING, 143, {"probe_seconds": 60.0}, "StartProbeTooShort"),
    ],
    ids=["throttled", "config", "oom", "probe"],
)
async def test_an_engine_that_served_and_can_not_start_again_for_a_known_cause_is_not_recreated(
    words: str, code: int, more: dict[str, Any], kind: str
) -> None:
    """S51, S52 after a crash: the healing that would follow names the cause instead."""
    scene = await warm({"short": 3})
    victim, others = scene.names_of("short")[0], scene.names_of("short")[1:]
    before = scene.uids()
    dying: dict[str, Any] = {"dies_after": 40.0, **more}
    if "probe_seconds" in more:
        dying.pop("dies_after")
    last = Start(boot_seconds=NEVER, exit_code=code, last_words=words, **dying)
    scene.cluster.on_start(lambda pod: last if pod["metadata"]["name"] == victim else Start())
    scene.cluster.exit_container("llm", victim, code)
    await scene.run(9000)
    assert scene.uids() == before
    assert scene.removals() == []
    assert scene.withheld().get(victim) == kind
    assert scene.condition("Degraded") == ("True", kind)
    assert all(scene.serving_pod(name) for name in others)


async def test_a_start_that_failed_once_long_ago_protects_no_hung_engine() -> None:
    """The end of a run that was overcome explains nothing that comes after it."""
    scene = Scene(nodes=4)
    began: dict[str, int] = {}

    def second_time_lucky(pod: Json) -> Start:
        restarts = sum(
            c.get("restartCount", 0) for c in (pod.get("status") or {}).get("containerStatuses", ())
        )
        began[pod["metadata"]["name"]] = restarts
        return Start() if restarts else dies(THROTTLED)

    scene.cluster.on_start(second_time_lucky)
    scene.deploy({"short": 3})
    await scene.run(1800)
    assert scene.serving() == 3
    assert all(began.values())
    victim = scene.names_of("short")[0]
    scene.engines.change(victim, hung=True)
    await scene.until_removed(within=3600)
    assert scene.removals() == [victim]


async def test_an_engine_killed_for_memory_while_it_served_is_not_said_to_fail_to_start() -> None:
    scene = await warm({"short": 3})
    victim = scene.names_of("short")[0]
    scene.cluster.on_start(lambda pod: Start(boot_seconds=300.0))
    scene.cluster.exit_container("llm", victim, 137, "OOMKilled")
    await scene.run(120)
    assert scene.condition("Degraded") == ("False", "Well")
    await scene.run(600)
    assert scene.serving() == 3
    assert scene.removals() == []


LORA = {"id": "deepseek-ai/DeepSeek-V4-Flash", "loraAdapters": [{"name": "tax", "path": "/models/tax"}]}


async def test_adapters_are_there_again_after_a_replacement_and_one_that_is_not_listed_is_named() -> None:
    """S53."""
    scene = await warm({"short": 3}, model=LORA)
    victim = scene.names_of("short")[0]
    assert set(scene.engines.listed) == set(scene.names_of("short"))
    assert scene.condition("Degraded") == ("False", "Well")
    scene.engines.change(victim, hung=True)
    await scene.until_done()
    await scene.run(60)
    new = set(scene.names_of("short")) - {victim}
    assert new <= set(scene.engines.listed), "the replacement was asked for its list"
    assert scene.condition("Degraded") == ("False", "Well")

    one = scene.names_of("short")[0]
    scene.engines.change(one, forgotten=frozenset({"tax"}))
    await scene.run(600)
    assert scene.condition("Degraded") == ("True", "AdapterFailed")
    assert "tax" in scene.status.why
    assert one in scene.status.why
    assert scene.serving() == 3, "the base model is served on"
    asked = scene.engines.listed.count(one)
    await scene.run(3600)
    assert scene.engines.listed.count(one) - asked <= 25, "the questions are bounded"
    assert len(scene.removals()) == 1
    assert scene.condition("Available")[0] == "True"


async def test_an_adapter_whose_path_is_wrong_stops_at_one_pod_and_the_base_model_serves_on() -> None:
    """S53: the wrong path comes with an edit."""
    scene = await warm({"short": 3}, seconds=300, model=LORA)
    old = scene.uids()
    words = f"{PREFIX}ValueError: Loading lora tax failed: No adapter found for /models/typo"
    scene.cluster.on_start(lambda pod: dies(words) if "/models/typo" in str(pod["spec"]) else Start())
    scene.edit(model={"loraAdapters": [{"name": "tax", "path": "/models/typo"}]})
    await scene.run(1800)
    assert len(scene.uids() - old) == 1
    assert scene.serving() >= 2
    assert scene.condition("Degraded") == ("True", "AdapterFailed")
    assert "/models/typo" in scene.status.why


async def test_nothing_is_listed_where_there_are_no_adapters() -> None:
    scene = await warm({"short": 2}, seconds=300)
    assert scene.engines.listed == []


async def test_what_a_crash_left_in_shared_memory_is_cured_by_one_fresh_pod() -> None:
    """S23."""
    scene = await warm({"short": 3}, nodes=4)
    victim = scene.names_of("short")[0]
    uid = scene.uid(victim)
    scene.cluster.on_start(lambda pod: dies(SHM) if pod["metadata"]["uid"] == uid else Start())
    scene.cluster.exit_container("llm", victim, 139)
    await scene.until_done(7200)
    assert scene.removals() == [victim]
    assert scene.outcomes() == ["Cured"]
    assert scene.serving() == 3


async def test_shared_memory_of_the_node_is_not_emptied_by_a_fresh_pod() -> None:
    """S23 with hostIPC."""
    scene = await warm({"short": 3}, podTemplate={"spec": {"hostIPC": True}})
    victim = scene.names_of("short")[0]
    uid = scene.uid(victim)
    scene.cluster.on_start(lambda pod: dies(SHM) if pod["metadata"]["uid"] == uid else Start())
    scene.cluster.exit_container("llm", victim, 139)
    await scene.run(5400)
    assert scene.removals() == []
    assert scene.withheld()[victim] == kinds.SHM_TOO_SMALL.name


async def test_leftovers_are_recognised_by_an_operator_that_never_saw_the_engine_serve() -> None:
    """S23 over an operator's restart: the third failed restart shows it, not what a process remembers."""
    scene = await warm({"short": 3}, nodes=4)
    victim = scene.names_of("short")[0]
    uid = scene.uid(victim)
    scene.cluster.on_start(lambda pod: dies(SHM) if pod["metadata"]["uid"] == uid else Start())
    scene.cluster.exit_container("llm", victim, 139)
    await scene.run(60)
    scene.restart()
    await scene.until_done(9000)
    assert scene.removals() == [victim]
    assert scene.serving() == 3


async def test_many_pods_that_fail_for_one_cause_are_one_sentence() -> None:
    """Each engine's words differ by a request id."""
    scene = Scene(nodes=12)
    scene.cluster.on_start(lambda pod: dies(f"{THROTTLED} (Request ID: Root={pod['metadata']['uid']})"))
    scene.deploy({"short": 12})
    await scene.run(900)
    assert scene.status.why.count("ModelFetchThrottled") == 1
    assert "and 9 more do not start" in scene.status.why
    assert scene.status.why.count("Request ID") == 1


async def test_a_quiet_failure_causes_no_stream_of_writes() -> None:
    scene, _ = await failing(dies(TOO_LONG), 600)
    before = len(scene.cluster.writes)
    await scene.run(7200)
    told = scene.writes("status", since=before)
    assert len(told) <= 6, told


async def test_without_the_right_to_read_events_and_logs_the_message_of_the_pod_is_enough() -> None:
    scene = Scene(nodes=4)
    scene.cluster.faults.fail_next("list", "Event", Forbidden, times=10_000)
    scene.cluster.faults.fail_next("get", "Pod/log", Forbidden, times=10_000)
    scene.cluster.on_start(lambda pod: dies(TOO_LONG))
    scene.deploy({"short": 2})
    await scene.run(1200)
    assert scene.condition("Degraded") == ("True", "ConfigInvalid")
    assert "202496" in scene.status.why


async def test_healthy_pods_are_not_asked_about() -> None:
    scene = await warm({"short": 3}, seconds=600)
    asked: list[str] = []
    find = scene.cluster.list_pod_events

    async def watched(namespace: str, name: str, uid: str) -> list[Json]:
        asked.append(name)
        return await find(namespace, name, uid)

    scene.cluster.list_pod_events = watched  # type: ignore[method-assign]
    await scene.run(600)
    assert asked == []
