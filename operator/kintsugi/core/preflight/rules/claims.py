"""PersistentVolumeClaims: whether all pods that mount one can (S50). Needs what the cluster, or a file, tells."""

from collections.abc import Iterator
from typing import Final

from kintsugi.api.effective import scaled_pool
from kintsugi.core.preflight.facts import Facts
from kintsugi.core.preflight.rule import Example, Rule, Said
from kintsugi.core.preflight.view import Json, PoolView, View, mapping, objects

ONE_NODE: Final = "ReadWriteOnce"
ONE_POD: Final = "ReadWriteOncePod"
MANY: Final = frozenset({"ReadOnlyMany", "ReadWriteMany"})
_HOSTNAME: Final = "kubernetes.io/hostname"


def _mounted(view: View) -> dict[str, list[PoolView]]:
    """The pools whose pods mount a claim, by its name."""
    found: dict[str, list[PoolView]] = {}
    for pool in view.pools:
        names = {_claim_of(volume) for volume in objects(pool.pod_spec.get("volumes"))} - {None}
        for name in sorted(str(each) for each in names):
            found.setdefault(name, []).append(pool)
    return found


def _claim_of(volume: Json) -> str | None:
    name = mapping(volume.get("persistentVolumeClaim")).get("claimName")
    return name if isinstance(name, str) else None


def _path(view: View, pool: PoolView, claim: str) -> str:
    source = view.spec.model.source
    if source and source.pvc and source.pvc.claim_name == claim:
        return "spec.model.source.pvc.claimName"
    if source and source.hub and source.hub.cache and source.hub.cache.claim_name == claim:
        return "spec.model.source.hub.cache.claimName"
    for at, template in pool.templates():
        for index, volume in enumerate(objects(mapping(template.get("spec")).get("volumes"))):
            if _claim_of(volume) == claim:
                return f"{at}.spec.volumes[{index}]"
    return pool.at


def _access(view: View) -> Iterator[Said]:
    for claim, pools in _mounted(view).items():
        modes = view.facts.claims.get(claim)
        if not modes or MANY & set(modes):
            continue
        pods = sum(_most_instances(view, pool) * pool.nodes for pool in pools)
        pinned = all(_pinned(pool) for pool in pools) and ONE_POD not in modes
        if pinned:
            continue
        path = _path(view, pools[0], claim)
        mode = ONE_POD if ONE_POD in modes else ONE_NODE
        reach = "one pod" if mode == ONE_POD else "pods of one node"
        if pods > 1:
            yield Said(
                path,
                f"names claim {claim!r}, which is {mode}: {reach} can mount it, and {pods} pods of this deployment need it, so "
                "all others hang in ContainerCreating (Multi-Attach)",
                "use a claim that is ReadOnlyMany or ReadWriteMany, or pin all pods to one node",
            )
        elif view.spec.rollout.strategy != "DeleteFirst":
            yield Said(
                path,
                f"names claim {claim!r}, which is {mode}: {reach} can mount it, and a rollout or a replacement that starts the "
                "new pod first would wait for the old one",
                "use a claim that is ReadOnlyMany or ReadWriteMany, or set spec.rollout.strategy: DeleteFirst",
                "Warning",
            )


def _most_instances(view: View, pool: PoolView) -> int:
    """Instances that the pool has, or may be scaled to."""
    scaled = scaled_pool(view.spec) == pool.pool.name
    return max(pool.pool.replicas, (view.facts.most_replicas or 0) if scaled else 0)


def _pinned(pool: PoolView) -> bool:
    """Whether every pod of the pool goes to the same node."""
    spec = pool.pod_spec
    if spec.get("nodeName") or _HOSTNAME in mapping(spec.get("nodeSelector")):
        return True
    required = mapping(
        mapping(mapping(spec.get("affinity")).get("nodeAffinity")).get(
            "requiredDuringSchedulingIgnoredDuringExecution"
        )
    )
    terms = objects(required.get("nodeSelectorTerms"))
    nodes = {name for term in terms for name in (_only_node(term),)}
    return bool(terms) and len(nodes) == 1 and None not in nodes


def _only_node(term: Json) -> str | None:
    for rule in objects(term.get("matchExpressions")):
        values = rule.get("values")
        if (
            rule.get("key") == _HOSTNAME
            and rule.get("operator") == "In"
            and isinstance(values, list)
            and len(values) == 1
        ):
            return str(values[0])
    return None


def _read_only_cache(view: View) -> Iterator[Said]:
    cache = (
        view.spec.model.source.hub.cache if view.spec.model.source and view.spec.model.source.hub else None
    )
    modes = view.facts.claims.get(cache.claim_name) if cache else None
    if cache and modes and not {"ReadWriteOnce", "ReadWriteMany", ONE_POD} & set(modes):
        yield Said(
            "spec.model.source.hub.cache.claimName",
            f"names claim {cache.claim_name!r}, which is {', '.join(modes)}: the download can't be written to it",
            "use a claim that is ReadWriteMany, or name it in spec.model.source.pvc where the weights are on it already",
        )


def _missing(view: View) -> Iterator[Said]:
    if not view.facts.all_claims:
        return
    for claim, pools in _mounted(view).items():
        if claim not in view.facts.claims:
            yield Said(
                _path(view, pools[0], claim),
                f"names claim {claim!r}, which does not exist: pods wait until it does",
                "make the claim, or correct the name",
            )


def _shown(
    modes: str, *, replicas: int = 3, claim: str = "models", most: int | None = None, **spec: object
) -> Example:
    return Example(
        {
            "model": {
                "id": "deepseek-ai/DeepSeek-V4-Flash-0731",
                "source": {"pvc": {"claimName": "models"}},
            },
            "pools": [{"name": "a", "replicas": replicas}],
            **spec,
        },
        Facts({claim: (modes,)}, all_claims=True, most_replicas=most),
    )


RULES: Final = (
    Rule(
        name="ClaimAccess",
        severity="Error",
        summary="More pods mount a claim than its access mode lets.",
        why="A ReadWriteOnce volume of a block class belongs to one node: the second pod never starts, and no replacement "
        "cures it.",
        sources=(
            "https://github.com/vllm-project/production-stack/issues/107",
            "https://github.com/neochaotic/leoflow/issues/282",
        ),
        check=_access,
        good=(
            _shown("ReadOnlyMany"),
            _shown("ReadWriteMany"),
            _shown("ReadWriteOnce", podTemplate={"spec": {"nodeSelector": {_HOSTNAME: "gpu-1"}}}),
            _shown("ReadWriteOnce", replicas=1, rollout={"strategy": "DeleteFirst"}),
        ),
        bad=(
            _shown("ReadWriteOnce"),
            _shown("ReadWriteOnce", replicas=1),
            _shown("ReadWriteOncePod", replicas=2),
        ),
    ),
    Rule(
        name="CacheReadOnly",
        severity="Error",
        summary="The hub's cache lies on a claim that can't be written.",
        why="The engine downloads into it.",
        sources=("https://kubernetes.io/docs/concepts/storage/persistent-volumes/#access-modes",),
        check=_read_only_cache,
        good=(_shown("ReadOnlyMany"),),
        bad=(
            Example(
                {
                    "model": {
                        "id": "deepseek-ai/DeepSeek-V4-Flash-0731",
                        "source": {"hub": {"cache": {"claimName": "hub"}}},
                    }
                },
                Facts({"hub": ("ReadOnlyMany",)}),
            ),
        ),
    ),
    Rule(
        name="ClaimMissing",
        severity="Warning",
        summary="A claim that does not exist.",
        why="Pods stay Pending until it is made; nothing is wrong with them.",
        sources=("https://kubernetes.io/docs/concepts/storage/persistent-volumes/",),
        check=_missing,
        good=(_shown("ReadOnlyMany"),),
        bad=(_shown("ReadOnlyMany", claim="other"),),
    ),
)
