"""How a pod starts, is probed and ends (S36, S52, S15)."""

import re
from collections.abc import Iterator
from typing import Any, Final

from kintsugi.core.command.number import whole
from kintsugi.core.pod.seconds import GRACE_MARGIN_SECONDS, downloads
from kintsugi.core.preflight.rule import Example, Rule, Said, example
from kintsugi.core.preflight.view import Json, PoolView, View, mapping

_PRO: Final = "deepseek-ai/DeepSeek-V4-Pro"
_SLEEP: Final = re.compile(r"\bsleep\s+(\d{1,9})\b")
PATIENT_SECONDS: Final = 300
"""A liveness probe that fails for less than this ends engines that were only busy: stalls of minutes that end by
themselves are reported (vllm-project/vllm#51921), and the engine's own breaker waits 300 s."""


HUGE_DOWNLOAD: Final = 500_000_000_000
"""Bytes above which a volume is worth it for a single pod: more than an hour at 100 MB/s."""


def _count(value: object, otherwise: int) -> int:
    """A number of a probe; Kubernetes' default where none is said."""
    return value if isinstance(value, int) and not isinstance(value, bool) else otherwise


def _seconds_of(probe: Json, period: int) -> int:
    """How long a probe may fail before it has its effect."""
    return _count(probe.get("periodSeconds"), period) * _count(probe.get("failureThreshold"), 3)


def _budget(view: View) -> Iterator[Said]:
    for pool in view.pools:
        least = pool.model.start_budget_seconds if pool.model else None
        if least is None:
            continue
        said = pool.pool.engine.start_budget_seconds
        probe_path = pool.template_path("engine", "startupProbe")
        if said is not None and said < least:
            yield Said(pool.path("engine.startBudgetSeconds"), _short(said, least, view), _longer(least))
        elif probe_path and (probe := mapping(pool.container.get("startupProbe"))):
            given = _count(probe.get("initialDelaySeconds"), 0) + _seconds_of(probe, 10)
            if given < least:
                yield Said(probe_path, _short(given, least, view), _longer(least))


def _short(given: int, least: int, view: View) -> str:
    return (
        f"gives a start {given} s, and {view.spec.model.id} is given {least} s by published recipes: the kubelet would end "
        "the engine in the middle of its load, again and again"
    )


def _longer(least: int) -> str:
    return f"use at least {least} s, or remove it: the operator computes it from the weights and their source"


def _grace(view: View) -> Iterator[Said]:
    for pool in view.pools:
        grace = pool.pod_spec.get("terminationGracePeriodSeconds")
        if not isinstance(grace, int) or isinstance(grace, bool):
            continue
        stop, shutdown = _pre_stop(pool.container), _shutdown(pool)
        path = _grace_path(pool)
        if path is None or grace >= stop + shutdown + GRACE_MARGIN_SECONDS:
            continue
        sure = grace < stop + shutdown
        yield Said(
            path,
            f"leaves {grace} s to end (terminationGracePeriodSeconds), and preStop takes {stop} s and --shutdown-timeout "
            f"{shutdown} s: " + ("streams are cut by the kill" if sure else "there is no margin"),
            f"use at least {stop + shutdown + GRACE_MARGIN_SECONDS} s",
            None if sure else "Warning",
        )


def _grace_path(pool: PoolView) -> str | None:
    """Whoever of the three a person has set: the grace period itself, else the hook, else the timeout."""
    found = pool.written("--shutdown-timeout")
    return (
        pool.template_path("terminationGracePeriodSeconds")
        or pool.template_path("engine", "lifecycle", "preStop")
        or (found.origin if found else None)
    )


def _shutdown(pool: PoolView) -> int:
    found = pool.command.get("--shutdown-timeout")
    return max(0, whole(found.value) or 0) if found else 0


def _pre_stop(container: Json) -> int:
    hook = mapping(mapping(container.get("lifecycle")).get("preStop"))
    slept = mapping(hook.get("sleep")).get("seconds")
    if isinstance(slept, int) and not isinstance(slept, bool):
        return slept
    command: Any = mapping(hook.get("exec")).get("command")
    words = " ".join(map(str, command)) if isinstance(command, list) else ""
    return sum(int(seconds) for seconds in _SLEEP.findall(words))


def _liveness(view: View) -> Iterator[Said]:
    for pool in view.pools:
        probe = mapping(pool.container.get("livenessProbe"))
        path = pool.template_path("engine", "livenessProbe")
        if not probe or path is None:
            continue
        given = _seconds_of(probe, 10)
        if given < PATIENT_SECONDS:
            yield Said(
                path,
                f"ends the engine after {given} s of late answers: a saturated engine answers late, and one that hangs still "
                "answers /health with 200, so it kills the well and spares the sick",
                f"remove it: the operator judges engine steps. If it must stay, give it at least {PATIENT_SECONDS} s",
            )


def _downloads(view: View) -> Iterator[Said]:
    source = view.spec.model.source
    if source and source.hub and source.hub.cache:
        return
    pods = sum(pool.pool.replicas for pool in view.pools)
    for pool in view.pools:
        if pool.model is None or (pods < 2 and pool.model.disk_bytes < HUGE_DOWNLOAD):
            continue
        kept = any(pool.variable_path(name) for name in ("HF_HUB_CACHE", "HF_HOME", "HF_HUB_OFFLINE"))
        if downloads(view.spec.model) and pool.gpus and not kept:
            size = pool.model.disk_bytes / 1_000_000_000
            yield Said(
                "spec.model.source" if source else "spec.model.source.pvc",
                f"is not set to a volume: every new pod fetches {size:.0f} GB from the hub, and several at once meet its rate limit",
                "set spec.model.source.pvc, or spec.model.source.hub.cache",
            )
            return


def _engine(**fields: object) -> dict[str, object]:
    return {"spec": {"containers": [{"name": "engine", **fields}]}}


_PVC: Final = {"source": {"pvc": {"claimName": "models"}}}

RULES: Final = (
    Rule(
        name="StartBudgetShort",
        severity="Warning",
        summary="A start is given less time than the model is known to need.",
        why="The kubelet ends a container whose start-up probe fails too long, and each new start begins from zero. Public "
        "recipes give V4-Pro 45 to 90 minutes.",
        sources=(
            "https://github.com/vllm-project/aibrix/issues/1054",
            "https://github.com/volcano-sh/kthena/pull/943",
            "https://github.com/kserve/kserve/pull/5063",
        ),
        claims=("A8",),
        check=_budget,
        good=(
            example(_PRO, engine={"startBudgetSeconds": 5400}),
            example(_PRO, podTemplate=_engine(startupProbe={"periodSeconds": 10, "failureThreshold": 540})),
            example("someone/else", hardware={"gpusPerInstance": 0}, engine={"startBudgetSeconds": 60}),
        ),
        bad=(
            example(_PRO, engine={"startBudgetSeconds": 300}),
            example(_PRO, podTemplate=_engine(startupProbe={"periodSeconds": 5, "failureThreshold": 60})),
            example(pools=[{"name": "a", "engine": {"startBudgetSeconds": 600}}]),
        ),
    ),
    Rule(
        name="GraceTooShort",
        severity="Error",
        summary="The pod is killed before its engine may have ended.",
        why="preStop, then --shutdown-timeout, then a margin must fit into terminationGracePeriodSeconds, or streams are cut.",
        sources=(
            "https://github.com/kserve/kserve/pull/5485",
            "https://github.com/vllm-project/vllm/pull/43208",
        ),
        check=_grace,
        good=(
            example(),
            example(podTemplate={"spec": {"terminationGracePeriodSeconds": 900}}),
            example(engine={"extraArgs": ["--shutdown-timeout=3600"]}),
        ),
        bad=(
            example(
                engine={"extraArgs": ["--shutdown-timeout", "45"]},
                podTemplate={
                    "spec": {
                        "terminationGracePeriodSeconds": 30,
                        "containers": [
                            {"name": "engine", "lifecycle": {"preStop": {"sleep": {"seconds": 15}}}}
                        ],
                    }
                },
            ),
            example(podTemplate={"spec": {"terminationGracePeriodSeconds": 30}}),
            example(
                podTemplate=_engine(lifecycle={"preStop": {"exec": {"command": ["sh", "-c", "sleep 900"]}}})
            ),
        ),
    ),
    Rule(
        name="LivenessProbe",
        severity="Warning",
        summary="A liveness probe that ends busy engines.",
        why="/health does not ask the engine: a hung one says 200 and a full one answers late.",
        sources=(
            "https://github.com/vllm-project/vllm/blob/main/vllm/entrypoints/serve/instrumentator/health.py",
        ),
        claims=("A18",),
        check=_liveness,
        good=(
            example(),
            example(podTemplate=_engine(livenessProbe={"periodSeconds": 30, "failureThreshold": 20})),
        ),
        bad=(
            example(
                podTemplate=_engine(
                    livenessProbe={
                        "httpGet": {"path": "/health", "port": "http"},
                        "periodSeconds": 10,
                        "failureThreshold": 3,
                    }
                )
            ),
        ),
    ),
    Rule(
        name="DownloadAtEachStart",
        severity="Warning",
        summary="Each new pod downloads the weights again.",
        why="Hundreds of GB make a replacement slow, and many pods behind one address meet the hub's rate limit, which retries "
        "prolong.",
        sources=(
            "https://github.com/ai-dynamo/dynamo/issues/874",
            "https://github.com/huggingface/huggingface_hub/issues/3312",
        ),
        claims=("A8",),
        check=_downloads,
        good=(
            Example({"model": {"id": _PRO, **_PVC}}),
            Example({"model": {"id": _PRO, "source": {"hub": {"cache": {"claimName": "hub"}}}}}),
        ),
        bad=(
            example(_PRO),
            example(pools=[{"name": "a", "replicas": 4}]),
            Example({"model": {"id": _PRO, "source": {"hub": {}}}}),
        ),
    ),
)
