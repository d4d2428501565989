"""A19: why is the output wrong? What the spec overrides, what the engine counts, and what siblings answer."""

from typing import Final

from kintsugi.core.explain.scene import Question, Scene, Step, gained, named
from kintsugi.core.explain.watched import BUILT

ROPE: Final = Question(
    "A19",
    "rope",
    "Is the checkpoint's position scaling overridden?",
    "the scaling comes with the checkpoint; the usual way to break it is to set it again",
    "take the override out of the spec",
    "the spec: -f fleet.yaml, or a cluster to read it from",
)
PRECISION: Final = Question(
    "A19",
    "precision",
    "Does the precision fit the checkpoint?",
    "quantisation error does not build up from request to request: a wrong format is wrong from the first answer on",
    "leave quantization, dtype and kvCacheDtype to the checkpoint and its recipe",
    "the spec: -f fleet.yaml, or a cluster to read it from",
)
BORDERS: Final = Question(
    "A19",
    "block-borders",
    "Does attention go wrong at block borders?",
    "kernels are written for certain block sizes; faults at borders came from bugs in them, in single engine versions",
    "take blockSize out; where answers go wrong from a length on, try another engine version with the same requests",
    "answers to known questions of lengths around a multiple of the block size, from two instances",
)
NANS: Final = Question(
    "A19",
    "nan",
    "Does the engine compute values that are no numbers?",
    "it happens, on one GPU or one kernel, and requests still end well",
    "replace the instance; where it comes back on the same node, look at the GPU; on all nodes, at the engine version",
    "start the engine with VLLM_COMPUTE_NANS_IN_LOGITS=1: it then counts vllm:corrupted_requests_total",
)
ANSWERS: Final = Question(
    "A19",
    "known-answers",
    "Do known questions get the known answers?",
    "engines have answered nonsense for hours until a restart cleared it, with every other figure well",
    "an instance that alone answers wrong is replaced by spec.healing.triggers.corruptedOutput",
    "ask two instances the same question at temperature 0, and compare",
)
_SPEC_UNKNOWN: Final = "there is no spec that can be read"


def wrong(scene: Scene) -> list[Step]:
    """The steps, in the order in which to look."""
    return [
        _ruled(scene, ROPE, "RopeOverridden"),
        _ruled(scene, PRECISION, "Dtype", "Quantization", "KvCacheDtype"),
        _borders(scene),
        _nans(scene),
        _answers(scene),
    ]


def _ruled(scene: Scene, question: Question, *rules: str) -> Step:
    found = scene.rules(*rules)
    if found is None:
        return question.unknown(_SPEC_UNKNOWN)
    numbers = {"findings": float(len(found))}
    if found:
        return question.suspect("; ".join(str(each) for each in found[:3])[:600], numbers)
    return question.ok(f"the spec breaks none of the rules {', '.join(rules)}", numbers)


def _borders(scene: Scene) -> Step:
    found = scene.rules("BlockSize")
    sizes = {one.facts.block_tokens for one in scene.engines() if one.facts.block_tokens is not None}
    numbers = {"blockTokens": float(min(sizes))} if len(sizes) == 1 else {}
    if found:
        return BORDERS.suspect("; ".join(map(str, found))[:600], numbers)
    if wrong_answers := scene.found("corruptedOutput"):
        return BORDERS.suspect(named(wrong_answers), numbers)
    spec = _SPEC_UNKNOWN if found is None else "the spec does not set a block size that breaks the rule"
    seen = f"; engines show {', '.join(map(str, sorted(sizes)))}" if sizes else ""
    return BORDERS.unknown(f"{spec}{seen}; whether answers at borders are right was not tried", numbers)


def _nans(scene: Scene) -> Step:
    known = {
        one.name: value
        for one in scene.engines()
        if (value := one.looks[-1].sample.total("corrupted")) is not None
    }
    rose = gained(scene.engines(), "corrupted")
    if not known or rose is None:
        return NANS.unknown("no page counts corrupted requests: vLLM does so only where it is told to")
    bad = {name: value for name, value in known.items() if value > 0}
    numbers = {
        "corruptedInWindow": rose,
        "corruptedSinceStart": sum(known.values()),
        "instances": float(len(known)),
    }
    if bad:
        said = ", ".join(f"{name}: {value:.0f}" for name, value in sorted(bad.items())[:5])
        return NANS.suspect(
            f"corrupted requests since their start: {said}; {rose:.0f} within the window", numbers
        )
    if len(known) < len(scene.engines()):
        return NANS.unknown(
            f"none on {len(known)} of {len(scene.engines())} engines; the others do not count", numbers
        )
    return NANS.ok(f"no corrupted request on {len(known)} engines since their start", numbers)


def _answers(scene: Scene) -> Step:
    if found := scene.found("corruptedOutput"):
        return ANSWERS.suspect(named(found), {"instances": float(len({name for name, _ in found}))})
    if "corruptedOutput" not in BUILT:
        return ANSWERS.unknown("the detector that asks and compares is not built in this version")
    if scene.judged() and not scene.unseen():
        return ANSWERS.ok(f"none of {len(scene.judged())} instances is found to answer wrong")
    return ANSWERS.unknown("no status of every instance tells")
