"""Environment variables: secrets in plain sight, and variables that change what the engine is (S07, S48)."""

from collections.abc import Iterator
from typing import Final

from kintsugi.core.preflight.rule import Rule, Said, example
from kintsugi.core.preflight.rules.conflicts import SECRET_FLAGS
from kintsugi.core.preflight.view import PoolView, View, by_a_person, objects

_KEYS: Final = {
    "VLLM_API_KEY": "spec.engine.apiKeySecretRef",
    "HF_TOKEN": "spec.model.source.hub.tokenSecretRef",
    "HUGGING_FACE_HUB_TOKEN": "spec.model.source.hub.tokenSecretRef",
}
_OTHER_SECRETS: Final = (
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "WANDB_API_KEY",
    "NGC_API_KEY",
    "AZURE_STORAGE_KEY",
)
_ENDINGS: Final = ("_TOKEN", "_API_KEY", "_PASSWORD", "_SECRET", "_SECRET_KEY", "_ACCESS_KEY")
_ON: Final = ("1", "true", "yes", "on")


def _secret(name: str) -> bool:
    return name in _KEYS or name in _OTHER_SECRETS or name.endswith(_ENDINGS)


def _plain_secrets(view: View) -> Iterator[Said]:
    for pool in view.pools:
        for name, entry in pool.environment.items():
            path = pool.variable_path(name)
            if not _secret(name) or not entry.get("value") or path is None:
                continue
            field = _KEYS.get(name)
            cure = (
                f"put it into a Secret and name it in {field}"
                if field
                else "put it into a Secret and use valueFrom.secretKeyRef"
            )
            extra = " (use apiKeySecretRef)" if name == "VLLM_API_KEY" else ""
            yield Said(
                path,
                f"holds {name} in plain text{extra}: everybody who may read the deployment, its pods or a backup reads it",
                cure,
            )
        for argument in pool.command.arguments:
            if argument.flag in SECRET_FLAGS and argument.values and by_a_person(argument):
                yield Said(
                    argument.origin,
                    f"gives {argument.flag} in plain text: it stands in the pod and in the process list",
                    "put it into a Secret and name it in spec.engine.apiKeySecretRef",
                )


def _vllm_port(view: View) -> Iterator[Said]:
    for pool in view.pools:
        path = pool.variable_path("VLLM_PORT")
        if path is None:
            continue
        value = pool.variable("VLLM_PORT") or ""
        if value and not value.isdecimal():
            yield Said(
                path, "sets VLLM_PORT to what is no number: the engine refuses to start", "remove it", "Error"
            )
        else:
            yield Said(
                path,
                "sets VLLM_PORT, which is the first port of the engine's inner traffic and not that of its API",
                "remove it: the API is on port 8000",
            )


_SWITCHES: Final = (
    (
        "VLLM_USE_RUST_FRONTEND",
        _ON,
        (
            "turns on the Rust front end, which leaves out series that health is judged by, loads no plugins (telemetry is one) "
            "and refuses --middleware"
        ),
        "remove it: the operator sets 0",
    ),
    (
        "VLLM_SERVER_DEV_MODE",
        _ON,
        (
            "opens endpoints without a key (/sleep, /reset_prefix_cache, /collective_rpc): whoever reaches the port can stop the "
            "engine or call into it"
        ),
        "remove it, unless a network policy keeps all others out",
    ),
    (
        "VLLM_KEEP_ALIVE_ON_ENGINE_DEATH",
        _ON,
        "keeps the server up when its engine is dead, so that no container restart brings it back",
        "remove it",
    ),
    (
        "VLLM_ALLOW_LONG_MAX_MODEL_LEN",
        _ON,
        "lets the engine take contexts beyond the model's own: output turns wrong there without an error",
        "remove it",
    ),
    ("VLLM_USE_V1", ("0", "false"), "asks for the engine that vLLM no longer has", "remove it"),
)
"""Variables by the values that matter; vLLM's `envs.py`."""


def _switches(view: View) -> Iterator[Said]:
    for pool in view.pools:
        for name, values, text, cure in _SWITCHES:
            path = pool.variable_path(name)
            if path is not None and (pool.variable(name) or "").strip().lower() in values:
                yield Said(path, f"sets {name}: it {text}", cure)


def _dead_variables(view: View) -> Iterator[Said]:
    for pool in view.pools:
        path = pool.variable_path("VLLM_RPC_TIMEOUT")
        if path is not None and pool.vllm:
            yield Said(path, "sets VLLM_RPC_TIMEOUT, which the engine no longer reads", "remove it")


def _ready_timeout(view: View) -> Iterator[Said]:
    for pool in view.pools:
        name = "VLLM_ENGINE_READY_TIMEOUT_S"
        path, value = pool.variable_path(name), (pool.variable(name) or "").strip()
        least = pool.model.start_budget_seconds if pool.model else None
        if (
            path
            and least
            and value.isascii()
            and value.isdecimal()
            and len(value) < 19
            and int(value) < least
        ):
            yield Said(
                path,
                f"sets {name} to {value} s, and a start of {view.spec.model.id} may take {least} s: the engine gives itself up "
                "in the middle of loading",
                f"use at least {least}, or remove it: the operator sets the start budget",
            )


def _offline(view: View) -> Iterator[Said]:
    source = view.spec.model.source
    if view.spec.model.id.startswith("/") or (source and (source.pvc or source.image)):
        return
    if source and source.hub and source.hub.cache:
        return
    for pool in view.pools:
        name = "HF_HUB_OFFLINE"
        path = pool.variable_path(name)
        on = (pool.variable(name) or "").strip().lower() in _ON
        if path and on and pool.pod and not _weights_may_be_there(pool):
            yield Said(
                path,
                f"sets {name}, and nothing brings the weights: no claim, no image and no cache is named in spec.model.source, "
                "so every start ends without a model",
                f"set spec.model.source.pvc or spec.model.source.hub.cache, or remove {name}",
            )


def _weights_may_be_there(pool: PoolView) -> bool:
    """Whether a person mounts a volume, copies something in, or says where the cache is."""
    if any(pool.variable_path(name) for name in ("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE")):
        return True
    if objects(pool.pod_spec.get("initContainers")) or pool.pool.engine.image:
        return True
    return any("emptyDir" not in volume for volume in objects(pool.pod_spec.get("volumes")))


def _env(name: str, value: str) -> dict[str, object]:
    return {"env": [{"name": name, "value": value}]}


RULES: Final = (
    Rule(
        name="PlainSecret",
        severity="Warning",
        summary="A key or token stands in the object in plain text.",
        why="Objects are read by many, logged, and kept in git; Secrets can be limited and renewed.",
        sources=("https://kubernetes.io/docs/concepts/configuration/secret/",),
        check=_plain_secrets,
        good=(
            example(engine={"apiKeySecretRef": {"name": "keys", "key": "token"}}),
            example(
                engine={
                    "env": [{"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hf", "key": "t"}}}]
                }
            ),
            example(engine=_env("VLLM_API_KEY", "")),
        ),
        bad=(
            example(engine=_env("VLLM_API_KEY", "x")),
            example(engine=_env("HF_TOKEN", "hf_x")),
            example(engine={"extraArgs": ["--api-key", "x"]}),
            example(pools=[{"name": "a", "engine": _env("VLLM_API_KEY", "x")}]),
            example(podTemplate={"spec": {"containers": [{"name": "engine", **_env("HF_TOKEN", "x")}]}}),
        ),
    ),
    Rule(
        name="OfflineWithoutWeights",
        severity="Warning",
        summary="The hub is switched off, and the weights come from nowhere else.",
        why="The engine neither finds the model nor may fetch it.",
        sources=("https://huggingface.co/docs/huggingface_hub/package_reference/environment_variables",),
        check=_offline,
        good=(
            example(engine=_env("HF_HUB_OFFLINE", "0")),
            example(
                model={"id": "deepseek-ai/DeepSeek-V4-Flash", "source": {"pvc": {"claimName": "models"}}},
                engine=_env("HF_HUB_OFFLINE", "1"),
            ),
            example(engine={"image": "vllm/vllm-openai:v0.33.0", **_env("HF_HUB_OFFLINE", "1")}),
        ),
        bad=(example(engine=_env("HF_HUB_OFFLINE", "1")),),
    ),
    Rule(
        name="VllmPort",
        severity="Warning",
        summary="VLLM_PORT is set.",
        why="It is not the API's port. Kubernetes sets it to tcp://… for a Service called vllm, which the engine refuses; "
        "pods of the operator have no service links.",
        sources=(
            "https://github.com/vllm-project/vllm/issues/34199",
            "https://github.com/defilantech/LLMKube/issues/358",
        ),
        check=_vllm_port,
        good=(example(),),
        bad=(
            example(engine=_env("VLLM_PORT", "8000")),
            example(engine=_env("VLLM_PORT", "tcp://10.0.0.1:80")),
        ),
    ),
    Rule(
        name="RiskySwitch",
        severity="Warning",
        summary="A variable switches something on that blinds or exposes the engine.",
        why="The Rust front end lacks metrics, developer endpoints ask for no key, and a server that outlives its engine "
        "looks alive.",
        sources=("https://github.com/vllm-project/vllm/blob/main/vllm/envs.py",),
        claims=("A9", "A20"),
        check=_switches,
        good=(
            example(engine=_env("VLLM_USE_RUST_FRONTEND", "0")),
            example(engine=_env("VLLM_SERVER_DEV_MODE", "")),
        ),
        bad=(
            example(engine=_env("VLLM_USE_RUST_FRONTEND", "1")),
            example(engine=_env("VLLM_SERVER_DEV_MODE", "1")),
            example(engine=_env("VLLM_KEEP_ALIVE_ON_ENGINE_DEATH", "true")),
        ),
    ),
    Rule(
        name="DeadVariable",
        severity="Warning",
        summary="A variable that the engine no longer reads.",
        why="It stays in recipes that people copy, and does nothing.",
        sources=("https://github.com/vllm-project/vllm/blob/main/vllm/envs.py",),
        check=_dead_variables,
        good=(example(engine=_env("NCCL_DEBUG", "INFO")),),
        bad=(example(engine=_env("VLLM_RPC_TIMEOUT", "600000")),),
    ),
    Rule(
        name="ReadyTimeoutShort",
        severity="Warning",
        summary="The engine's own patience is shorter than a start takes.",
        why="vLLM waits 600 s for its own ranks unless told otherwise; these checkpoints take longer.",
        sources=(
            "https://github.com/vllm-project/recipes",
            "https://github.com/vllm-project/vllm/blob/main/vllm/envs.py",
        ),
        claims=("A8",),
        check=_ready_timeout,
        good=(example(engine=_env("VLLM_ENGINE_READY_TIMEOUT_S", "5400")),),
        bad=(example(engine=_env("VLLM_ENGINE_READY_TIMEOUT_S", "600")),),
    ),
)
