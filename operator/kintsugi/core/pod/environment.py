"""The engine's environment: the operator's defaults first, each only where the user did not name the variable."""

from typing import Any, Final

from kintsugi.api.effective import Pool
from kintsugi.api.spec import DeploymentSpec, EnvVar, SecretKeyRef
from kintsugi.core.command.choice import Choice

Json = dict[str, Any]

CACHE_PATH: Final = "/var/cache/kintsugi"
"""Writable for every user of the container: an emptyDir. Nothing depends on a home directory that can be written."""
HUB_CACHE_PATH: Final = "/var/cache/huggingface"
"""Where the claim of `model.source.hub.cache` is mounted."""
_CACHES: Final = (
    ("XDG_CACHE_HOME", "xdg"),
    ("XDG_CONFIG_HOME", "config"),
    ("VLLM_CACHE_ROOT", "vllm"),
    ("TORCHINDUCTOR_CACHE_DIR", "torchinductor"),
    ("TRITON_CACHE_DIR", "triton"),
    ("FLASHINFER_WORKSPACE_BASE", "flashinfer"),
    ("TILELANG_CACHE_DIR", "tilelang"),
    ("CUDA_CACHE_PATH", "cuda"),
)
"""Compilers' and engine's caches, which else lie in the home directory: not writable as another user than root, nor
on a read-only root. PyTorch even fails to name its folder for a user id that has no name."""


def environment(spec: DeploymentSpec, pool: Pool, choice: Choice, budget: int) -> list[Json]:
    """Defaults, then the user's variables in the user's order, so that one may refer to the one before."""
    named = {variable.name for variable in pool.engine.env}
    ours = {str(entry["name"]): entry for entry in _defaults(spec, pool, choice, budget)}
    return [entry for name, entry in ours.items() if name not in named] + [
        variable_of(variable) for variable in pool.engine.env
    ]


def variable_of(variable: EnvVar) -> Json:
    """The variable as the user wrote it; an empty value stays."""
    said: Json = {"name": variable.name}
    if variable.value is not None:
        said["value"] = variable.value
    if variable.value_from is not None:
        said["valueFrom"] = variable.value_from
    return said


def _defaults(spec: DeploymentSpec, pool: Pool, choice: Choice, budget: int) -> list[Json]:
    source = spec.model.source
    hub = source.hub if source else None
    vllm = pool.engine.runtime != "Native"
    recipe = choice.recipe.env if choice.recipe and vllm else ()
    found = [_plain(name, value) for name, value in recipe]
    found.append(_plain("HF_HOME", HUB_CACHE_PATH if hub and hub.cache else f"{CACHE_PATH}/huggingface"))
    found += [_plain(name, f"{CACHE_PATH}/{folder}") for name, folder in _CACHES]
    if hub and hub.token_secret_ref:
        found.append(_secret("HF_TOKEN", hub.token_secret_ref))
    if source and (source.pvc or source.image):
        found.append(_plain("HF_HUB_OFFLINE", "1"))
    if vllm:
        # The other front end's page lacks series that the judge reads, and it loads no plugins.
        found.append(_plain("VLLM_USE_RUST_FRONTEND", "0"))
        # The engine's own patience is 600 seconds, less than any of these models needs (S52).
        found.append(_plain("VLLM_ENGINE_READY_TIMEOUT_S", str(budget)))
    if pool.engine.api_key_secret_ref:
        found.append(_secret("VLLM_API_KEY", pool.engine.api_key_secret_ref))
    return found


def _plain(name: str, value: str) -> Json:
    return {"name": name, "value": value}


def _secret(name: str, ref: SecretKeyRef) -> Json:
    return {"name": name, "valueFrom": {"secretKeyRef": {"name": ref.name, "key": ref.key}}}
