"""A rule as data: its name, why it is, the check, and examples that a test runs through it."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kintsugi.core.preflight.facts import NOTHING_KNOWN, Facts
from kintsugi.core.preflight.finding import Severity
from kintsugi.core.preflight.view import View


@dataclass(frozen=True, slots=True)
class Said:
    """What a check found. `text` continues the path to a sentence (`is 16: …`, `must be set: …`)."""

    path: str
    text: str
    cure: str
    severity: Severity | None = None
    """None: the rule's own."""


Check = Callable[[View], Iterator[Said]]


@dataclass(frozen=True, slots=True)
class Example:
    """An object that a rule is shown: a `spec`, what the cluster tells, the object's name."""

    spec: Mapping[str, Any]
    facts: Facts = NOTHING_KNOWN
    name: str = "chat"

    def as_object(self) -> dict[str, Any]:
        """The whole object."""
        return {
            "apiVersion": "kintsugi.dev/v1alpha1",
            "kind": "DeepSeekV4Deployment",
            "metadata": {"name": self.name},
            "spec": dict(self.spec),
        }


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. A bad example must be found by it, a good one must not."""

    name: str
    severity: Severity
    summary: str
    why: str
    sources: tuple[str, ...]
    check: Check
    good: tuple[Example, ...]
    bad: tuple[Example, ...]
    claims: tuple[str, ...] = ()
    """Claims of the article that the rule answers, `A3`."""
    fixed: bool = False
    """Whether `spec.validation.allow` has no power over it."""


def example(
    _model: str | None = None, /, *, facts: Facts = NOTHING_KNOWN, name: str = "chat", **spec: Any
) -> Example:
    """An example by its spec's fields; the model is DeepSeek-V4-Flash-0731 unless named."""
    model = {"id": _model or "deepseek-ai/DeepSeek-V4-Flash-0731"}
    return Example({"model": model, **spec}, facts, name)
