"""Every rule by name."""

from functools import cache
from typing import Final

from kintsugi.core.preflight.rule import Rule
from kintsugi.core.preflight.rules import (
    blackwell,
    capacity,
    claims,
    conflicts,
    context,
    environment,
    flags,
    gpus,
    healing,
    kv,
    memory,
    model,
    parallel,
    pod,
    pools,
    precision,
    start,
    variables,
    wrapper,
)

RULES: Final[tuple[Rule, ...]] = (
    *model.RULES,
    *gpus.RULES,
    *parallel.RULES,
    *blackwell.RULES,
    *context.RULES,
    *kv.RULES,
    *capacity.RULES,
    *precision.RULES,
    *flags.RULES,
    *conflicts.RULES,
    *wrapper.RULES,
    *environment.RULES,
    *variables.RULES,
    *start.RULES,
    *memory.RULES,
    *pod.RULES,
    *claims.RULES,
    *pools.RULES,
    *healing.RULES,
)
"""In the order of docs/rules.md."""

STRUCTURAL: Final = {
    "InvalidField": "A field's value can't be read: wrong type, out of range, or against a rule of the API.",
    "UnknownField": "A field that nobody reads: a typing error, or the wrong place.",
    "UnknownPodField": "A field in a `podTemplate` that Kubernetes does not have there.",
    "OperatorOwnedField": "A field in a `podTemplate` that the operator needs for itself.",
    "RestartPolicy": "A `podTemplate` with a restart policy other than Always (S21).",
    "UnknownRule": "A name in `spec.validation.allow` that is no rule, or none that can be allowed.",
}
"""What is checked before any rule."""

FIXED: Final = frozenset(STRUCTURAL) - {"UnknownPodField"} | {rule.name for rule in RULES if rule.fixed}
"""Names over which `spec.validation.allow` has no power."""


@cache
def names() -> frozenset[str]:
    """Every name that a finding may carry."""
    return frozenset(STRUCTURAL) | {rule.name for rule in RULES}
