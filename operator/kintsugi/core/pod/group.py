"""An instance that needs several nodes: a `LeaderWorkerSet`, whose pods start and end together.

LeaderWorkerSet sets LWS_LEADER_ADDRESS, LWS_GROUP_SIZE and LWS_WORKER_INDEX in every container, and Kubernetes puts
them into the arguments (https://lws.sigs.k8s.io/docs/reference/labels-annotations-and-environment-variables/).
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kintsugi.api.effective import Pool
from kintsugi.api.spec import DeploymentSpec
from kintsugi.core.arguments import engine_arguments
from kintsugi.core.catalog.catalog import Catalog
from kintsugi.core.catalog.load import builtin
from kintsugi.core.names import ENGINE_CONTAINER
from kintsugi.core.pod.template import made

Json = dict[str, Any]

API_VERSION: Final = "leaderworkerset.x-k8s.io/v1"
KIND: Final = "LeaderWorkerSet"
DEFAULT_RESTART: Final = "RecreateGroupOnPodRestart"
"""Ranks run in step: one that is gone stalls all others, so the group is made anew as a whole."""

_MEMBERSHIP: Final = (
    "--nnodes",
    "$(LWS_GROUP_SIZE)",
    "--node-rank",
    "$(LWS_WORKER_INDEX)",
    "--master-addr",
    "$(LWS_LEADER_ADDRESS)",
)
_HEADLESS: Final = "--headless"
_OWN: Final = (
    "--nnodes",
    "--node-rank",
    "--headless",
    "--data-parallel-address",
    "--data-parallel-start-rank",
    "--data-parallel-rank",
    "--data-parallel-hybrid-lb",
    "--data-parallel-external-lb",
    "--distributed-executor-backend ray",
    "--distributed-executor-backend=ray",
)
"""Where one of these is written, the user forms the group, and nothing is added."""
_ALL_SERVE: Final = ("--data-parallel-hybrid-lb", "--data-parallel-external-lb")
"""With these each node answers requests for its own ranks."""


def group_template(
    spec: DeploymentSpec, pool: Pool, labels: Mapping[str, str], catalog: Catalog | None = None
) -> Json:
    """`spec.leaderWorkerTemplate` of the pool's LeaderWorkerSet."""
    catalog = catalog or builtin()
    words = engine_arguments(spec, pool)
    own = _says(spec, pool, words, pool.worker_templates, _OWN)
    serve = _says(spec, pool, words, pool.worker_templates, _ALL_SERVE)
    lead = words if own else [*words, *_MEMBERSHIP]
    follow = words if own else [*lead, _HEADLESS]
    leader = made(spec, pool, labels, lead, (*pool.pod_templates, *pool.leader_templates), catalog)
    worker = made(
        spec, pool, labels, follow, (*pool.pod_templates, *pool.worker_templates), catalog, serves=serve
    )
    return {
        "size": pool.hardware.nodes_per_instance or 1,
        "restartPolicy": pool.hardware.group_restart_policy or DEFAULT_RESTART,
        "leaderTemplate": leader,
        "workerTemplate": worker,
    }


def _says(
    spec: DeploymentSpec,
    pool: Pool,
    words: Sequence[str],
    templates: Sequence[Mapping[str, Any]],
    flags: Sequence[str],
) -> bool:
    """Whether the arguments or a command of the user's name one of these flags."""
    commands = [*pool.engine.command]
    for template in (*pool.pod_templates, *templates):
        containers = (template.get("spec") or {}).get("containers") or []
        commands += [
            str(word)
            for container in containers
            if container.get("name") == ENGINE_CONTAINER
            for word in container.get("command") or ()
        ]
    text = " ".join([*words, *commands]).replace("_", "-")
    return any(flag in text for flag in flags)
