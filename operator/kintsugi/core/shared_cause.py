"""What sick instances have in common: where the same fault sits on one node, engine or revision, no new pod cures it."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from kintsugi.core.finding import Detector, InstanceVerdict, Severity
from kintsugi.core.snapshot import Instance

TOGETHER: Final = 2
"""Instances from which on something can be shared."""
MOST_OF_THEM: Final = 0.75
"""Share of the sick that must have it in common."""
MUCH_THERE: Final = 0.5
"""Share of those that have it that must be sick."""
FEWER_ELSEWHERE: Final = 0.5
"""Times that share, which no larger share of the others may exceed: what everybody has explains nothing."""
_TRAITS: Final[tuple[tuple[str, Callable[[Instance], str]], ...]] = (
    ("node", lambda i: i.node),
    ("engine", lambda i: engine_version(i.image)),
    ("revision", lambda i: i.revision),
    ("pool", lambda i: i.pool),
)


def shared_cause(verdicts: Mapping[str, InstanceVerdict], instances: Iterable[Instance]) -> str | None:
    """What instances that are Sick of the same thing have in common and the others don't, in words; None where nothing.

    `verdicts` by pod UID. The detector that most are sick of is told.
    """
    known = [i for i in instances if i.uid in verdicts and not i.deleting]
    sick: dict[Detector, set[str]] = {}
    for instance in known:
        for detector in {f.detector for f in verdicts[instance.uid].findings if f.severity is Severity.SICK}:
            sick.setdefault(detector, set()).add(instance.uid)
    most = max(sorted(sick, key=lambda d: d.value), key=lambda d: len(sick[d]), default=None)
    if most is None or len(sick[most]) < TOGETHER:
        return None
    fallen = sick[most]
    if len(fallen) == len(known):
        return f"{most.value} on every one of the {len(known)} instances"
    found = [text for name, trait in _TRAITS if (text := _common(name, trait, known, fallen))]
    if not found:
        return None
    return f"{most.value} on {len(fallen)} of {len(known)} instances: {', '.join(found)}"


def engine_version(image: str) -> str:
    """The tag of an image, or the beginning of its digest; '' where it has neither."""
    name, _, digest = image.partition("@")
    tag = name.rpartition("/")[2].partition(":")[2]
    return tag or digest.rpartition(":")[2][:12]


def _common(
    name: str, trait: Callable[[Instance], str], known: list[Instance], fallen: set[str]
) -> str | None:
    groups: dict[str, list[Instance]] = {}
    for instance in known:
        groups.setdefault(trait(instance), []).append(instance)
    for value, there in sorted(groups.items()):
        sick = sum(i.uid in fallen for i in there)
        others, sick_others = len(known) - len(there), len(fallen) - sick
        much = sick >= TOGETHER and sick >= MOST_OF_THEM * len(fallen) and sick >= MUCH_THERE * len(there)
        if value and much and others and sick_others / others <= FEWER_ELSEWHERE * sick / len(there):
            return f"{sick} of {len(there)} on {name} {value}, {sick_others} of {others} elsewhere"
    return None
