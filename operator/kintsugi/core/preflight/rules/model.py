"""Model and engine version: whether that engine can load that checkpoint at all (S05, A1, A7)."""

import re
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Final

from kintsugi.core.catalog.version import parse_version, version_of
from kintsugi.core.command.telemetry import unsure
from kintsugi.core.pod import telemetry
from kintsugi.core.preflight.rule import Rule, Said, example
from kintsugi.core.preflight.view import PoolView, View

_FLASH: Final = "deepseek-ai/DeepSeek-V4-Flash"
_OFFICIAL: Final = "deepseek-ai/DeepSeek-V4-Flash-0731"
_V41: Final = "deepseek-ai/DeepSeek-V4.1-Flash"
_OF_VLLM: Final = ("vllm-openai", "vllm")
"""Names of images whose tags are vLLM's versions."""
_IMAGE: Final = re.compile(
    r"^([A-Za-z0-9.-]+(:\d{1,5})?/|\[[0-9a-fA-F:.]+\](:\d{1,5})?/)?[a-z0-9]+([._/-]+[a-z0-9]+)*(:\w[\w.-]{0,127})?(@\S+)?$",
    re.ASCII,
)
"""Names that the kubelet can read (distribution's reference grammar); digests are not looked at."""


def image(tag: str) -> dict[str, str]:
    """An engine with vLLM's image of that tag."""
    return {"image": f"vllm/vllm-openai:{tag}"}


def _unknown_model(view: View) -> Iterator[Said]:
    if view.catalog.model(view.spec.model.id) is None:
        ids = [model.id for model in view.catalog.models]
        wanted = view.spec.model.id.rpartition("/")[2].lower()
        close = get_close_matches(wanted, [name.rpartition("/")[2].lower() for name in ids], n=1, cutoff=0.7)
        meant = next(
            (f" (did you mean {n}?)" for n in ids if close and n.lower().endswith("/" + close[0])), ""
        )
        yield Said(
            "spec.model.id",
            f"is {view.spec.model.id!r}, which is not in the catalog{meant}: checks of hardware, version, memory "
            "and block size are skipped",
            "correct the id, or describe the model in a catalog file",
        )


def version_field(pool: PoolView) -> str:
    """Path of the field that says the engine's version."""
    return pool.path("engine.version" if pool.says("engine.version") else "engine.image")


def _too_old(view: View) -> Iterator[Said]:
    for pool in view.pools:
        if pool.vllm and pool.model and pool.version and pool.version < pool.model.min_engine:
            yield Said(
                version_field(pool),
                f"is vLLM {pool.version}, and {pool.model.id} needs at least {pool.model.min_engine}: an older one "
                "does not know its architecture and ends after the GPUs are taken",
                f"use an image of vLLM {pool.model.min_engine} or later",
            )


def _image_name(view: View) -> Iterator[Said]:
    for pool in view.pools:
        written = pool.pool.engine.image
        if written and not _IMAGE.match(written):
            yield Said(
                pool.path("engine.image"),
                f"is {written[:80]!r}, which is no name of an image: registry and path in small letters, then :tag or @digest",
                "write it as registry/path:tag, without https:// and spaces",
            )


def _version_unknown(view: View) -> Iterator[Said]:
    for pool in view.pools:
        if pool.vllm and pool.version is None and pool.says("engine.image"):
            blind = telemetry.wanted(pool.pool) and unsure(pool.pool, pool.choice)
            more = ", and no telemetry is laid on, so that fragmentation is not seen" if blind else ""
            yield Said(
                pool.path("engine.image"),
                f"is {pool.image!r}: the engine's version is unknown, checks of flags and versions are skipped{more}",
                f"set {pool.path('engine.version')} to the version of vLLM in that image",
            )


def _version_contradicts(view: View) -> Iterator[Said]:
    for pool in view.pools:
        name = pool.image.partition("@")[0].rpartition("/")[2].partition(":")[0]
        if name not in _OF_VLLM:
            continue  # others count their own releases
        tag, said = version_of(pool.pool.engine.image, None), pool.pool.engine.version
        if said and tag and parse_version(said) not in (None, tag):
            yield Said(
                pool.path("engine.version"),
                f"is {said}, but the tag of {pool.path('engine.image')} says {tag}: checks go by the field",
                "remove the version, or correct it",
            )


RULES: Final = (
    Rule(
        name="UnknownModel",
        severity="Warning",
        summary="The model is not in the catalog, so that most checks are skipped.",
        why="Recipes, sizes, legal block sizes and minimum versions are known per checkpoint. Own models are welcome, "
        "but nothing can be said about them beforehand.",
        sources=("https://github.com/vllm-project/recipes",),
        check=_unknown_model,
        good=(example(), example("/models/DeepSeek-V4-Flash-0731")),
        bad=(
            example("someone/else", hardware={"gpusPerInstance": 1}),
            example("deepseek-ai/DeepSeek-V4-Flsh", hardware={"gpusPerInstance": 4}),
        ),
    ),
    Rule(
        name="EngineTooOld",
        severity="Error",
        summary="The engine is older than the checkpoint needs.",
        why="vLLM knows the V4 architecture from 0.20.0, checkpoints with a fused draft head from 0.25.0 and V4.1 from "
        "0.30.0. The article's 0.3.2 is of February 2024, two years before V4.",
        sources=(
            "https://github.com/vllm-project/vllm/issues/40954",
            "https://github.com/vllm-project/recipes",
        ),
        claims=("A1", "A7", "A22"),
        check=_too_old,
        good=(
            example(_FLASH, engine=image("v0.20.0")),
            example(_OFFICIAL, engine=image("v0.27.1-cu129")),
            example(_OFFICIAL, engine={"image": "registry.corp/llm/vllm:prod", "version": "0.27.1"}),
        ),
        bad=(
            example(_FLASH, engine=image("v0.19.1")),
            example(_FLASH, engine=image("v0.3.2")),
            example(_OFFICIAL, engine=image("v0.24.0")),
            example(_V41, engine=image("v0.29.1")),
            example(_OFFICIAL, engine={"image": "registry.corp/vllm:prod", "version": "0.21"}),
            example(_OFFICIAL, pools=[{"name": "a"}, {"name": "b", "engine": image("v0.20.0")}]),
        ),
    ),
    Rule(
        name="EngineVersionUnknown",
        severity="Warning",
        summary="Neither the image's tag nor engine.version says which vLLM it is.",
        why="Flags come and go between versions, and an unknown flag ends the process. A digest, or a tag such as "
        "latest, nightly or prod, names no version.",
        sources=("https://github.com/vllm-project/vllm/issues/40954",),
        claims=("A22",),
        check=_version_unknown,
        good=(example(), example(engine={"image": "registry.corp/llm/vllm:prod", "version": "0.27.1"})),
        bad=(
            example(engine={"image": "registry.corp/llm/vllm@sha256:" + "0" * 64}),
            example(engine=image("nightly")),
            example(engine=image("deepseekv4-cu130")),
            example(engine={"image": "localhost:5000/vllm"}),
        ),
    ),
    Rule(
        name="ImageName",
        severity="Error",
        summary="engine.image is no name of an image.",
        why="The kubelet says InvalidImageName, and no pod of the deployment ever starts.",
        sources=("https://kubernetes.io/docs/concepts/containers/images/#image-names",),
        check=_image_name,
        good=(
            example(engine=image("v0.33.0")),
            example(engine={"image": "localhost:5000/a/b_c:X-1@sha256:" + "0" * 64, "version": "0.33.0"}),
        ),
        bad=(
            example(engine={"image": "vllm/vllm openai:v0.33.0"}),
            example(engine={"image": "https://registry.corp/vllm:v0.33.0"}),
            example(pools=[{"name": "a", "engine": {"image": "vllm/vLLM-OpenAI:v0.33.0"}}]),
        ),
    ),
    Rule(
        name="EngineVersionContradicts",
        severity="Warning",
        summary="engine.version and the image's tag name different versions.",
        why="Everything that depends on the version goes by the field; a forgotten one makes every check wrong after "
        "the next image.",
        sources=("https://github.com/vllm-project/vllm/releases",),
        check=_version_contradicts,
        good=(
            example(engine=image("v0.33.0") | {"version": "0.33.0"}),
            example(engine=image("prod") | {"version": "0.33"}),
            example(engine={"image": "nvcr.io/nvidia/ai-dynamo/vllm-runtime:1.3.0", "version": "0.27.1"}),
        ),
        bad=(example(engine=image("v0.33.0") | {"version": "0.27.1"}),),
    ),
)
