"""What the validating webhook answers: findings become a refusal, warnings, or nothing.

Refused is only what an edit adds. Nobody is kept from deleting, pausing, scaling or annotating an object because rules
that it was never measured by have become stricter since (Kubernetes' own validation ratchets likewise: KEP-4008).
"""

import copy
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum, unique
from typing import Any, Final

from kintsugi.core.preflight.finding import Finding

Check = Callable[[Mapping[str, Any]], Sequence[Finding]]
"""Looks at a whole object as the API server holds it, and finds what is wrong with it."""

LONGEST_WARNING: Final = 256
"""Characters: longer ones may be cut by the API server (Kubernetes, "Dynamic Admission Control", Response)."""
MOST_WARNINGS: Final = 12
"""The API server passes on 4096 characters of all warnings together (same page)."""
LONGEST_CAUSE: Final = 600
"""Characters of one error in a refusal."""
MOST_CAUSES: Final = 20
"""Errors told in one refusal; all are counted."""

_POOL: Final = re.compile(r"\bspec\.pools\[(\d{1,6})\]")
_FIELD: Final = re.compile(r"((?:spec|metadata)[^\s:,]*)(?::\s*|\s+)(?!and |or )(\S.*)", re.DOTALL)
"""Messages begin with the path of the field to change, which may not exist yet; `path` is the nearest that does."""
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\s]+")


@unique
class Verdict(StrEnum):
    """How a request ended; the metric's label."""

    ALLOWED = "Allowed"
    """Nothing to say."""
    SKIPPED = "Skipped"
    """Not looked at: a deletion, an object that is being deleted, an update that leaves the spec as it is."""
    WARNED = "Warned"
    """Allowed, with warnings."""
    TOLERATED = "Tolerated"
    """Allowed though it has errors, for it had them before."""
    DENIED = "Denied"
    """Refused."""
    UNCHECKED = "Unchecked"
    """Allowed because the check itself failed; the reconciler checks again."""


@dataclass(frozen=True, slots=True)
class Cause:
    """One reason of a refusal: the field, and what is wrong and helps in one line."""

    path: str
    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}: {self.text}"


@dataclass(frozen=True, slots=True)
class Answer:
    """What is said to the API server, and through it to the user."""

    verdict: Verdict
    warnings: tuple[str, ...] = ()
    causes: tuple[Cause, ...] = ()
    more: int = 0
    """Errors beyond `causes`."""

    @property
    def allowed(self) -> bool:
        return self.verdict is not Verdict.DENIED

    @property
    def message(self) -> str:
        """All causes, for clients that show a message and no causes; '' where it is allowed."""
        if self.allowed:
            return ""
        if len(self.causes) == 1 and not self.more:
            return str(self.causes[0])
        count = len(self.causes) + self.more
        lines = [f"{count} errors", *(f"- {cause}" for cause in self.causes)]
        if self.more:
            lines.append(f"- and {self.more} more: `kintsugi lint` lists all")
        return "\n".join(lines)


def answer(
    operation: str, new: Mapping[str, Any] | None, old: Mapping[str, Any] | None, check: Check
) -> Answer:
    """The answer to a request to CREATE or UPDATE `new`, which was `old`. Anything else is allowed unseen.

    Raises what `check` raises.
    """
    if new is None or operation not in ("CREATE", "UPDATE") or _metadata(new).get("deletionTimestamp"):
        return Answer(Verdict.SKIPPED)
    before = old if operation == "UPDATE" else None
    if before is not None and before.get("spec") == new.get("spec"):
        return Answer(Verdict.SKIPPED)
    found = check(new)
    errors = [each for each in found if each.severity == "Error"]
    advice = [_line(each) for each in found if each.severity != "Error"]
    if not errors:
        return Answer(Verdict.WARNED if advice else Verdict.ALLOWED, _bounded(advice))
    stood = _those_that_stood(errors, new, before, check) if before is not None else set()
    added = [each for place, each in enumerate(errors) if place not in stood]
    if added:
        causes = tuple(_cause(each) for each in added[:MOST_CAUSES])
        return Answer(Verdict.DENIED, _bounded(advice), causes, more=len(added) - len(causes))
    kept = [f"still an error, so no pod is made: {_line(each)}" for each in errors]
    return Answer(Verdict.TOLERATED, _bounded([*kept, *advice]))


def unchecked(why: str) -> Answer:
    """Allowed, for the check itself failed: `why`, in a few words."""
    said = f"not checked: {why}. The operator checks it again before it makes a pod"
    return Answer(Verdict.UNCHECKED, _bounded([said]))


def _those_that_stood(
    errors: Sequence[Finding], new: Mapping[str, Any], old: Mapping[str, Any], check: Check
) -> set[int]:
    """Places of the errors in `new` that `old` had too.

    In an edit of operation (pause, mode, replicas) by rule and field: the words may name a number that was scaled. In any
    other by the words as well: who changes the wrong value to another wrong one is told so.
    """
    words = _without_operation(old.get("spec")) != _without_operation(new.get("spec"))
    was = {_identity(each, old, words) for each in check(old) if each.severity == "Error"}
    return {place for place, each in enumerate(errors) if _identity(each, new, words) in was}


def _identity(found: Finding, raw: Mapping[str, Any], words: bool) -> tuple[str, ...]:
    """What makes two findings the same, with a pool's name for its place: other pools may come and go."""

    def named(text: str) -> str:
        return _POOL.sub(lambda match: f"spec.pools[{_pool_name(raw, int(match[1]))}]", text)

    return (found.rule, named(found.path), *((named(found.message),) if words else ()))


def _pool_name(raw: Mapping[str, Any], place: int) -> str:
    spec = raw.get("spec")
    pools = spec.get("pools") if isinstance(spec, Mapping) else None
    if isinstance(pools, Sequence) and place < len(pools) and isinstance(pools[place], Mapping):
        return str(pools[place].get("name", place))
    return str(place)


def _without_operation(spec: object) -> object:
    """The spec without what people change while a fleet is in trouble: replicas, pauses, modes of healing."""
    if not isinstance(spec, dict):
        return spec
    rest = copy.deepcopy(spec)
    rest.pop("replicas", None)
    pools = rest.get("pools")
    for pool in pools if isinstance(pools, list) else ():
        if isinstance(pool, dict):
            pool.pop("replicas", None)
    healing = rest.get("healing")
    if isinstance(healing, dict):
        healing.pop("pauseRequests", None)
        healing.pop("mode", None)
        triggers = healing.get("triggers")
        for trigger in triggers.values() if isinstance(triggers, dict) else ():
            if isinstance(trigger, dict):
                trigger.pop("mode", None)
    return _without_empty(rest)


def _without_empty(tree: Any) -> Any:
    """Without objects that say nothing: `healing: {}` is no healing."""
    if not isinstance(tree, dict):
        return tree
    kept = {key: _without_empty(value) for key, value in tree.items()}
    return {key: value for key, value in kept.items() if value != {}}


def _metadata(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    found = raw.get("metadata")
    return found if isinstance(found, Mapping) else {}


def _cause(found: Finding) -> Cause:
    path, text = _told(found)
    return Cause(path, found.rule, _cut(text, LONGEST_CAUSE))


def _line(found: Finding) -> str:
    return ": ".join(_told(found))


def _told(found: Finding) -> tuple[str, str]:
    """The field to change, and what is wrong with it, with cure and rule."""
    match = _FIELD.fullmatch(found.message)
    path, message = (match[1], match[2]) if match else (found.path, found.message)
    cure = f" ({found.cure})" if found.cure else ""
    return path, f"{message}{cure} [{found.rule}]"


def _bounded(texts: Iterable[str]) -> tuple[str, ...]:
    """Warnings as the API server passes them on: one line each, short, not too many; the last says how many are left."""
    lines = [_cut(text, LONGEST_WARNING) for text in dict.fromkeys(texts)]
    if len(lines) > MOST_WARNINGS:
        left = len(lines) - MOST_WARNINGS + 1
        lines = [*lines[: MOST_WARNINGS - 1], f"and {left} more: `kintsugi lint` lists all"]
    return tuple(lines)


def _cut(text: str, most: int) -> str:
    """One line of at most `most` characters, without control characters, which the API server would refuse."""
    line = _CONTROL.sub(" ", text).strip()
    line = line.encode("utf-8", "replace").decode("utf-8")
    return line if len(line) <= most else line[: most - 1] + "…"
