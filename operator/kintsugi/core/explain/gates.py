"""Words for every gate: what a closed one means, and what opens it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from kintsugi.core.classify.kinds import KINDS

Who = Literal["time", "fleet", "person"]
"""What opens a gate: time that passes, the rest of the fleet, or somebody who does something."""


@dataclass(frozen=True, slots=True)
class GateWords:
    """`means`: why nothing is done while this gate is closed. `opens`: what would have to change."""

    means: str
    opens: str
    who: Who


_OWN: Final[Mapping[str, GateWords]] = {
    "paused": GateWords(
        "healing of this deployment is paused",
        "take every entry out of spec.healing.pauseRequests, and every annotation kintsugi.dev/pause.* off",
        "person",
    ),
    "spec": GateWords(
        "the operator does not accept the spec, and begins nothing on grounds of it",
        "correct what the condition SpecAccepted names",
        "person",
    ),
    "noData": GateWords(
        "too little can be read: absent data leads neither to a removal nor to a recovery",
        "the engine's metrics page, and those of most siblings, must be readable again",
        "fleet",
    ),
    "storm": GateWords(
        "several instances fell sick together, so a shared cause is likely, which no new pod cures",
        "all of them are well again for storm.cooldownSeconds, or storm.trialAfterSeconds pass and one trial begins",
        "time",
    ),
    "mode": GateWords(
        "the trigger only observes",
        "set the trigger's mode, or spec.healing.mode, to Act",
        "person",
    ),
    "approval": GateWords(
        "the trigger only recommends, and nobody has approved this attempt",
        "approve it: kubectl annotate mend <name> kintsugi.dev/approve=<you>, or kintsugi approve <name>",
        "person",
    ),
    "operatorStart": GateWords(
        "the operator, or its new leader, has watched for too short a time to judge anything",
        "it goes on watching for a minute",
        "time",
    ),
    "disruptionBudget": GateWords(
        "a PodDisruptionBudget of somebody else refuses that the pod is evicted",
        "the budget allows one more disruption again; one that never does has to be changed by its owner",
        "person",
    ),
    "capacity": GateWords(
        "no node or quota has room for a replacement, even with what the sick instance would free",
        "uncordon or add a node with free GPUs, or raise the namespace's ResourceQuota",
        "person",
    ),
    "exhausted": GateWords(
        "every remedy of spec.healing.ladder was tried on this line of pods, and the fault came back",
        "look for the cause outside the pod (node, GPU, model, traffic), then let healing begin anew by kintsugi reset, or "
        "roll out another revision",
        "person",
    ),
    "elsewhere": GateWords(
        "the next remedy needs another node, and none has room, or has been looked at yet",
        "free or add GPUs on a node without strikes (status.remediations.strikes)",
        "fleet",
    ),
    "ladder": GateWords(
        "no rung of spec.healing.ladder helps against what was found",
        "add RecreateElsewhere to spec.healing.ladder",
        "person",
    ),
    "breaker": GateWords(
        "removals in this pool and revision are stopped, since earlier ones did not cure",
        "roll out another revision; one whose reason is Count closes by itself when its window has passed",
        "person",
    ),
    "cause": GateWords(
        "what keeps the pod from starting would keep a new one from it too",
        "correct what the finding names",
        "person",
    ),
    "rollout": GateWords(
        "a rollout or a scaling is under way in the pool, and both at once would take too much away",
        "the rollout ends, or is taken back",
        "fleet",
    ),
    "inFlight": GateWords(
        "as many replacements are under way as may be at a time",
        "one of them ends; the limit is spec.healing.budget.maxInFlightPerPool",
        "fleet",
    ),
    "replacementPending": GateWords(
        "another member of the pool is not Ready yet",
        "that pod becomes Ready: look at why it does not start, where it lasts",
        "fleet",
    ),
    "budget": GateWords(
        "the pool has used its replacements of the last 30 minutes",
        "the oldest of them leaves the window; the limit is spec.healing.budget.maxPerPoolPer30Minutes",
        "time",
    ),
    "hourlyBudget": GateWords(
        "this operator has used its replacements of the last hour",
        "the oldest of them leaves the window; the limit is spec.healing.budget.maxPerHour",
        "time",
    ),
    "minHealthy": GateWords(
        "too few instances would serve without it",
        "siblings come back, or replicas are added; the share is spec.healing.budget.minHealthyPercent",
        "fleet",
    ),
    "poolOfOne": GateWords(
        "it is the pool's only instance, it still serves, and no GPU is free for a replacement to come first",
        "a GPU becomes free, a second replica is asked for, or somebody deletes the pod in a quiet hour",
        "person",
    ),
    "hold": GateWords(
        "between verdict and removal others may still fall sick, which would show a shared cause",
        "storm.holdSeconds pass and nobody else falls sick",
        "time",
    ),
    "removalTime": GateWords(
        "the finding justifies a withdrawal from traffic, and no removal yet",
        "it lasts until the trigger's removal time (stall.removeAfterSeconds)",
        "time",
    ),
    "eviction": GateWords(
        "Kubernetes does not grant the eviction, and nothing is forced",
        "the PodDisruptionBudget that covers the pod lets one go",
        "person",
    ),
    "noReservation": GateWords(
        "the pod was let go by an attempt that nobody knows of any more, so that it holds its GPUs for nothing",
        "delete the pod",
        "person",
    ),
    "unknownPhase": GateWords(
        "the attempt is in a phase that this version of the operator does not know",
        "run the newer version of the operator again",
        "person",
    ),
}

GATE_WORDS: Final[Mapping[str, GateWords]] = {
    **_OWN,
    **{
        kind.name: GateWords(
            "a new pod would fail in the same way as this one",
            kind.cure.replace("{at}", f"spec.{kind.field}"),
            "person",
        )
        for kind in KINDS
    },
}
"""By gate name. A failed start's kind is the gate's name where it holds back (`gate.cause`)."""

UNKNOWN_GATE: Final = GateWords(
    "this version of kintsugi has no words for that gate", "see its message", "person"
)


def gate_words(gate: str) -> GateWords:
    """The words for `gate`; of a gate that a newer operator asks, that there are none."""
    return GATE_WORDS.get(gate, UNKNOWN_GATE)
