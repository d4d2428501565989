"""All rules over one object: the same object always gives the same findings in the same order, and never an exception."""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from itertools import islice
from typing import Any, Final

from kintsugi.api.objects import DeepSeekV4Deployment, SpecInvalid, parse_deployment
from kintsugi.core.catalog.catalog import Catalog
from kintsugi.core.catalog.load import in_force
from kintsugi.core.preflight.facts import NOTHING_KNOWN, Facts
from kintsugi.core.preflight.finding import Finding, sort_key
from kintsugi.core.preflight.mend import without
from kintsugi.core.preflight.paths import existing
from kintsugi.core.preflight.plain import faults_of
from kintsugi.core.preflight.registry import FIXED, RULES, names
from kintsugi.core.preflight.structure import invalid, pod_templates, template_faults, unknown_fields
from kintsugi.core.preflight.view import view_of

ALLOW: Final = "spec.validation.allow"
_FAULTS: Final = 20
"""Values that JSON can't say which are named at most: after them the rest is not read anyway."""


def check(
    raw: Mapping[str, Any], facts: Facts = NOTHING_KNOWN, catalog: Catalog | None = None
) -> tuple[Finding, ...]:
    """What is wrong with a whole object, as written: its shape first, then its meaning as far as it can be read.

    `catalog` None: the one that is shipped. Every path exists in `raw`.
    """
    if not isinstance(raw, Mapping):
        return (Finding("Error", "InvalidField", ".", "the document is not an object", "write a manifest"),)
    faults = [invalid(path or ".", said) for path, said in islice(faults_of(raw), _FAULTS)]
    if faults:
        return _sorted(raw, faults, ())
    found = [*unknown_fields(raw)]
    for at, template in pod_templates(raw):
        found += template_faults(at, template)
    try:
        deployment = parse_deployment(raw)
    except SpecInvalid as error:
        found += [invalid(problem.path, problem.message) for problem in error.problems]
        left = without(raw, [problem.path for problem in error.problems])
        if left is None:
            return _sorted(raw, found, ())
        # What is left is checked too, but only for what a person wrote: the rest may follow from what was left out.
        found += [f for f in _meaning(left, raw, facts, catalog) if existing(raw, f.path) == f.path]
        return _sorted(raw, found, left.spec.validation.allow)
    found += _meaning(deployment, raw, facts, catalog)
    return _sorted(raw, found, deployment.spec.validation.allow)


def check_spec(
    deployment: DeepSeekV4Deployment, facts: Facts = NOTHING_KNOWN, catalog: Catalog | None = None
) -> tuple[Finding, ...]:
    """What is wrong with the meaning of a deployment that was read already."""
    raw = {"metadata": {"name": deployment.metadata.name}, "spec": deployment.spec.dump()}
    found = [fault for at, template in pod_templates(raw) for fault in template_faults(at, template)]
    found += _meaning(deployment, raw, facts, catalog)
    return _sorted(raw, found, deployment.spec.validation.allow)


def _meaning(
    deployment: DeepSeekV4Deployment, raw: Mapping[str, Any], facts: Facts, catalog: Catalog | None
) -> Iterator[Finding]:
    view = view_of(deployment, raw, facts, catalog or in_force())
    for rule in RULES:
        for said in rule.check(view):
            text = f"{said.path} {said.text}"
            yield Finding(said.severity or rule.severity, rule.name, said.path, text, said.cure)
    for index, name in enumerate(deployment.spec.validation.allow):
        if name not in names():
            yield _unknown_rule(f"{ALLOW}[{index}]", name)
        elif name in FIXED:
            path = f"{ALLOW}[{index}]"
            text = f"{path} is {name}, which can't be allowed: the operator could not run the object all the same"
            yield Finding("Warning", "UnknownRule", path, text, "remove it")


def _unknown_rule(path: str, name: str) -> Finding:
    close = get_close_matches(name, sorted(names()), n=3, cutoff=0.5)
    meant = f": did you mean {' or '.join(close)}?" if close else ""
    cure = (
        f"write {close[0]}, or remove it" if close else "remove it; `kintsugi lint --list-rules` lists them"
    )
    return Finding("Warning", "UnknownRule", path, f"{path} is {name}, which is no rule{meant}", cure)


def _sorted(raw: Mapping[str, Any], found: list[Finding], allowed: tuple[str, ...]) -> tuple[Finding, ...]:
    kept = {_settled(raw, finding) for each in found if (finding := _allowed(each, allowed)) is not None}
    return tuple(sorted(kept, key=sort_key))


def _allowed(finding: Finding, allowed: tuple[str, ...]) -> Finding | None:
    """An allowed Error is a Warning; an allowed Warning was acknowledged, and is not said again."""
    if finding.rule not in allowed or finding.rule in FIXED:
        return finding
    if finding.severity == "Warning":
        return None
    return Finding("Warning", finding.rule, finding.path, finding.message, finding.cure)


def _settled(raw: Mapping[str, Any], finding: Finding) -> Finding:
    """The finding with a path that exists; its message keeps the field that is missing."""
    path = existing(raw, finding.path)
    return Finding(finding.severity, finding.rule, path, finding.message, finding.cure)
