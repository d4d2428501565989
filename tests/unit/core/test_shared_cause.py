"""What sick instances have in common is named, and what everybody has is not."""

from typing import Any

import pytest

from kintsugi.core.finding import Detector, Finding, InstanceVerdict, Severity, Verdict
from kintsugi.core.shared_cause import engine_version, shared_cause
from kintsugi.core.snapshot import Instance
from tests.unit.core.staging import instance


def verdict(uid: str, detector: Detector | None, severity: Severity = Severity.SICK) -> InstanceVerdict:
    findings = () if detector is None else (Finding(detector, "Test", severity, "told", 0.0),)
    said = Verdict.SICK if findings and severity is Severity.SICK else Verdict.HEALTHY
    return InstanceVerdict(uid, uid, "main", said, "Test", "told", findings)


def cause(sick: str, **traits: str) -> str | None:
    """The cause in a fleet of as many instances as each trait has letters; `sick` names those that are, by place."""
    size = len(next(iter(traits.values())))
    instances: list[Instance] = []
    for place in range(size):
        told: dict[str, Any] = {name: values[place] for name, values in traits.items()}
        instances.append(instance(f"pod-{place}", **told))
    verdicts = {
        i.uid: verdict(i.uid, Detector.STALLED if str(n) in sick else None) for n, i in enumerate(instances)
    }
    return shared_cause(verdicts, instances)


@pytest.mark.parametrize(
    ("sick", "traits", "told"),
    [
        ("012", {"node": "aaabbbcc"}, "stall on 3 of 8 instances: 3 of 3 on node a, 0 of 5 elsewhere"),
        ("0123", {"node": "aaabbbcc"}, "stall on 4 of 8 instances: 3 of 3 on node a, 1 of 5 elsewhere"),
        ("01", {"revision": "1222", "node": "abcd"}, None),
        (
            "23",
            {"revision": "1122", "node": "abcd"},
            "stall on 2 of 4 instances: 2 of 2 on revision 2, 0 of 2 elsewhere",
        ),
        ("01", {"pool": "ssll"}, "stall on 2 of 4 instances: 2 of 2 on pool s, 0 of 2 elsewhere"),
        ("01", {"node": "aaaa"}, None),
        ("01", {"node": "aaaaaabb"}, None),
        ("0", {"node": "ab"}, None),
        ("0123", {"node": "abcd"}, "stall on every one of the 4 instances"),
        ("", {"node": "abcd"}, None),
    ],
)
def test_the_cause_is_what_the_sick_share_and_the_others_do_not(
    sick: str, traits: dict[str, str], told: str | None
) -> None:
    assert cause(sick, **traits) == told


def test_engines_of_one_version_are_named_by_it() -> None:
    instances = [
        instance(f"pod-{n}", image=f"vllm/vllm-openai:v0.{32 if n < 2 else 31}", node=f"n{n}")
        for n in range(4)
    ]
    verdicts = {i.uid: verdict(i.uid, Detector.ERRORING if n < 2 else None) for n, i in enumerate(instances)}
    assert shared_cause(verdicts, instances) == (
        "errors on 2 of 4 instances: 2 of 2 on engine v0.32, 0 of 2 elsewhere"
    )


@pytest.mark.parametrize(
    ("image", "version"),
    [
        ("vllm/vllm-openai:v0.32.0", "v0.32.0"),
        ("registry.example:5000/vllm", ""),
        ("registry.example:5000/vllm:1@sha256:0123456789abcdef", "1"),
        ("vllm@sha256:0123456789abcdef", "0123456789ab"),
        ("", ""),
    ],
)
def test_the_version_is_the_tag_of_the_image(image: str, version: str) -> None:
    assert engine_version(image) == version


def test_different_faults_and_mere_suspicions_are_no_group() -> None:
    instances = [instance(f"pod-{n}", node="a" if n < 2 else "b") for n in range(4)]
    mixed = {
        "pod-0": verdict("pod-0", Detector.STALLED),
        "pod-1": verdict("pod-1", Detector.SLOW),
        **{f"pod-{n}": verdict(f"pod-{n}", None) for n in (2, 3)},
    }
    assert shared_cause(mixed, instances) is None
    suspects = {i.uid: verdict(i.uid, Detector.STALLED, Severity.SUSPECT) for i in instances}
    assert shared_cause(suspects, instances) is None
