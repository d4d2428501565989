"""An instance that needs several nodes: a `LeaderWorkerSet`, whose pods start and end together.

LeaderWorkerSet sets LWS_LEADER_ADDRESS, LWS_GROUP_SIZE and LWS_WORKER_INDEX in every container, and Kubernetes puts
them into the arguments (https://lws.sigs.k8s.io/docs/reference/labels-annotations-and-environment-variables/).
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from kintsugi.api.effective import Pool
from kintsugi.api.spec import DeploymentSpec
from kintsugi.core.catalog.catalog import Catalog
from kintsugi.core.catalog.load import in_force
from kintsugi.core.command.argument import Command
from kintsugi.core.command.choice import choose
from kintsugi.core.command.render import DEFAULT, OPERATOR, engine_command, worker_command
from kintsugi.core.pod.seconds import engines
from kintsugi.core.pod.telemetry import commanded
from kintsugi.core.pod.template import made

Json = dict[str, Any]

API_VERSION: Final = "leaderworkerset.x-k8s.io/v1"
KIND: Final = "LeaderWorkerSet"
DEFAULT_RESTART: Final = "RecreateGroupOnPodRestart"
"""Ranks run in step: one that is gone stalls all others, so the group is made anew as a whole."""

_MEMBERSHIP: Final = frozenset(
    {"--nnodes", "--node-rank", "--master-addr", "--data-parallel-address", "--headless"}
)
_OWN: Final = (
    "--nnodes",
    "--node-rank",
    "--headless",
    "--data-parallel-address",
    "--data-parallel-start-rank",
    "--data-parallel-rank",
    "--data-parallel-hybrid-lb",
    "--data-parallel-external-lb",
    "--data-parallel-multi-port-external-lb",
    "--distributed-executor-backend ray",
    "--distributed-executor-backend=ray",
)
"""Where one of these is written, the user forms the group, and nothing is added."""
_ALL_SERVE: Final = (
    "--data-parallel-hybrid-lb",
    "--data-parallel-external-lb",
    "--data-parallel-multi-port-external-lb",
)
"""With these each node answers requests for its own ranks."""


def group_template(
    spec: DeploymentSpec,
    pool: Pool,
    labels: Mapping[str, str],
    catalog: Catalog | None = None,
    operator_image: str = "",
) -> Json:
    """`spec.leaderWorkerTemplate` of the pool's LeaderWorkerSet; `operator_image` '' lays no telemetry on."""
    catalog = catalog or in_force()
    lead, follow = engine_command(spec, pool, catalog), worker_command(spec, pool, catalog)
    by_user = Command(tuple(a for a in lead.arguments if a.origin not in OPERATOR))
    if _says(pool, by_user, pool.worker_templates, _OWN):
        lead, follow = _without_membership(lead), _without_membership(follow)
    serve = _says(pool, lead, pool.worker_templates, _ALL_SERVE)
    leading = (*pool.pod_templates, *pool.leader_templates)
    following = (*pool.pod_templates, *pool.worker_templates)
    choice = choose(spec, pool, catalog)
    lead, follow = (commanded(command, pool, choice, operator_image) for command in (lead, follow))
    leader = made(spec, pool, labels, lead.words(), leading, catalog, operator_image)
    worker = made(spec, pool, labels, follow.words(), following, catalog, operator_image, serves=serve)
    return {
        "size": pool.hardware.nodes_per_instance or 1,
        "restartPolicy": pool.hardware.group_restart_policy or DEFAULT_RESTART,
        "leaderTemplate": leader,
        "workerTemplate": worker,
    }


def _without_membership(command: Command) -> Command:
    ours = [a for a in command.arguments if a.origin == DEFAULT and a.flag in _MEMBERSHIP]
    return Command(tuple(argument for argument in command.arguments if argument not in ours))


def _says(
    pool: Pool, command: Command, templates: Sequence[Mapping[str, Any]], flags: Collection[str]
) -> bool:
    """Whether an argument, or an entry point that the user wrote, names one of these flags."""
    said = [*command.words(), *pool.engine.command]
    for template in (*pool.pod_templates, *templates):
        for container in engines(template):
            words = container.get("command")
            said += map(str, words) if isinstance(words, list) else ()
    text = " ".join(said).replace("_", "-")
    return any(flag in text for flag in flags)
