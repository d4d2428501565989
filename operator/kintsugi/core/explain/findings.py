"""Words for every finding: what it means, and what would have to change for something to happen."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kintsugi.core.classify import Retry
from kintsugi.core.classify.failure import Kind
from kintsugi.core.classify.kinds import KINDS


@dataclass(frozen=True, slots=True)
class FindingWords:
    """`means`: the finding in a sentence. `then`: what happens next, and on what condition."""

    means: str
    then: str


_LASTS: Final = "it is Sick, and acted on, once it has lasted for the trigger's whole time"
_ADVICE: Final = "nothing: advice, since a new pod would not cure it"
_BLIND: Final = "nothing, until it can be read again: it is neither acted on nor called well"
_SICK: Final = "it is replaced as soon as every gate is open"

_OWN: Final[Mapping[str, FindingWords]] = {
    # dead
    "PodEnded": FindingWords("the pod is over, and Kubernetes does not restart it", _SICK),
    "RestartsRepeat": FindingWords(
        "restarts in place do not help: it ended three times in 30 minutes", _SICK
    ),
    "NotReadyAgain": FindingWords("it ended, was restarted in place, and did not become Ready again", _SICK),
    "RestartedInPlace": FindingWords(
        "the kubelet restarted it, which is the first remedy",
        "a new pod is made only at the third restart in 30 minutes, or where it is not Ready within its start budget",
    ),
    "ContainerEnded": FindingWords(
        "its container ended, and the kubelet restarts it",
        "a new pod is made only at the third restart in 30 minutes, or where it is not Ready within its start budget",
    ),
    "Refused": FindingWords(
        "its port refuses connections though the kubelet calls it Ready",
        "the kubelet's own probe restarts it, or it answers again",
    ),
    "StartOverBudget": FindingWords(
        "its start takes longer than spec.engine.startBudgetSeconds allows",
        "nothing by healing: a start is a matter of configuration and capacity; a rollout stops at it",
    ),
    # stall
    "Stalled": FindingWords(
        "it has work, makes no step, and canaries are not answered",
        "at stall.forSeconds with three unanswered canaries it is withdrawn, at stall.removeAfterSeconds replaced; one "
        "step or one answer ends it",
    ),
    "StallUnknown": FindingWords("it made no step when it was last read, and can't be read now", _BLIND),
    "NotAdmitting": FindingWords(
        "it makes steps, but lets nobody in though there is room",
        "withdrawn after 5 minutes, replaced after 10; one admission ends it",
    ),
    "Silent": FindingWords(
        "its server accepts connections and answers nothing",
        "it is replaced where the kubelet calls it not ready and most siblings answer; else the fault may be our path",
    ),
    "StaleGauges": FindingWords(
        "its gauges show requests, and canaries pass through: the gauges are wrong, not the engine",
        "nothing: it is neither stalled nor proven well",
    ),
    # fragmentation
    "Fragmented": FindingWords("its memory is free, but in pieces, and was not so after its start", _SICK),
    "FragmentationUnknown": FindingWords("it was fragmented when it was last read", _BLIND),
    "HighSinceStart": FindingWords("it was as fragmented right after its warm-up", _ADVICE),
    "ReferenceUnknown": FindingWords(
        "what it had after its warm-up was not seen, so nobody knows what a restart would give back",
        "nothing before a restart of that process is watched from its beginning",
    ),
    # throughput
    "Slow": FindingWords("its steps take longer than what they hold explains, and siblings' do not", _LASTS),
    "SlowUnknown": FindingWords("it was slow when it was last measured", _BLIND),
    "ClocksDisagree": FindingWords(
        "time between tokens rose, and wall time per step did not",
        "nothing while the two clocks disagree",
    ),
    "SlowAgainstItself": FindingWords(
        "slower than in its own past, with no sibling to compare it with",
        "nothing in a pool of one: a second replica would tell a fault from a change of traffic",
    ),
    "SlowFromTheStart": FindingWords(
        "a young process that is slower than its siblings",
        "an attempt that it came from counts as not cured; alone it is not acted on",
    ),
    "SlowSinceStart": FindingWords("slower than its siblings ever since its start", _ADVICE),
    # errors
    "Erroring": FindingWords("requests fail in it, and not in its siblings", _SICK),
    "ErroringUnknown": FindingWords("requests failed in it when it was last read", _BLIND),
    "ErrorsSuspected": FindingWords(
        "requests fail in it",
        "a round of canaries decides: it is Sick if they fail here too and siblings are clean",
    ),
    "ErrorsFollowRequests": FindingWords("requests fail, and harmless ones do not", _ADVICE),
    "ErrorsEverywhere": FindingWords("requests fail in its siblings too", _ADVICE),
    # corrupted output
    "CorruptedOutput": FindingWords(
        "it answers known questions wrong, twice, and siblings answer them right", _SICK
    ),
    "CorruptedUnknown": FindingWords("it answered known questions wrong when it was last read", _BLIND),
    "WrongAnswersSuspected": FindingWords(
        "it answered a known question wrong",
        "two bursts of all questions, a minute apart, decide: it is Sick if half are wrong in both and siblings are right",
    ),
    "WrongAnswersEverywhere": FindingWords("its siblings answer known questions wrong, too", _ADVICE),
    "WrongAnswers": FindingWords(
        "it answers known questions wrong, and no sibling of its revision could be compared with",
        "nothing by itself: ask it something, and delete its pod if the answer is nonsense",
    ),
    "AnswersNotKnown": FindingWords(
        "too few questions have an answer that it and its siblings are sure of",
        "nothing: wrong answers of this instance are not looked for",
    ),
    "NansCounted": FindingWords(
        "it computes values that are no numbers",
        "a burst of known questions decides; the counter alone never does, since one request can cause it",
    ),
    "NansFollowRequests": FindingWords(
        "it computes values that are no numbers, and answers known questions right", _ADVICE
    ),
    # starved admission
    "StarvedAdmission": FindingWords("a queue stands though slots and memory are free, here alone", _SICK),
    "StarvedSuspected": FindingWords(
        "a queue stands though slots and memory are free",
        "canaries decide: it is Sick if they wait in vain and siblings' do not",
    ),
    "StarvedAlone": FindingWords(
        "a queue stands, canaries wait, and there is no sibling to compare it with",
        "nothing by itself where some were served late: a person decides",
    ),
    "StarvedEverywhere": FindingWords("its siblings' queues stand as well", _ADVICE),
    "StarvedUnknown": FindingWords("its queue stood when it was last read", _BLIND),
    # memory growth
    "MemoryGrows": FindingWords(
        "its memory rises, and reaches the container's limit within memoryGrowth.horizonSeconds, at two looks in a row",
        "it is recycled before the kernel kills it: one instance of a pool at a time, the one nearest to its limit first",
    ),
    "GrowthSuspected": FindingWords(
        "its memory rises, and reaches the container's limit within memoryGrowth.horizonSeconds",
        "the next look, ten minutes later, decides",
    ),
    "GrowthUnknown": FindingWords("its memory rose when it was last told", _BLIND),
    "WorkingSetGrows": FindingWords(
        "its working set rises towards the container's limit, and page cache may be all that rises",
        "nothing: the engine's telemetry, or container_memory_rss in Prometheus, would tell a leak from page cache",
    ),
    # GPU use
    "GpuUnderused": FindingWords("its GPUs have little to do", f"{_ADVICE}; use fewer replicas"),
    "GpuOverused": FindingWords("its GPUs have nothing left for a burst", f"{_ADVICE}; add replicas"),
    # devices
    "GpuXid": FindingWords(
        "DCGM shows an Xid of hardware for one of its GPUs, of whenever it was",
        "nothing by this alone: what Kubernetes says of the device is acted on; a person looks at the node",
    ),
    "GpuRowRemapFailed": FindingWords(
        "a GPU of it could not replace broken rows of its memory",
        "nothing by this alone: what Kubernetes says of the device is acted on; a person looks at the node",
    ),
    "DeviceUnhealthy": FindingWords(
        "the device plugin calls a GPU of it unhealthy",
        "it is withdrawn, and replaced on another node; left as it is while no other node has room",
    ),
    "DeviceSuspected": FindingWords(
        "the device plugin calls a GPU of it unhealthy, for a short time yet", _LASTS
    ),
    "DeviceUnknown": FindingWords("a GPU of it was unhealthy, and its health can't be read now", _BLIND),
    # advice on cache, preemptions and ranks
    "LowCacheHit": FindingWords(
        "few prompt tokens are found in its prefix cache",
        f"{_ADVICE}; send prompts with the same beginning to it",
    ),
    "Preempting": FindingWords(
        "requests are pushed out of its KV cache and computed again",
        f"{_ADVICE}; shed load, add replicas or lower maxNumSeqs",
    ),
    "Overloaded": FindingWords(
        "requests are pushed out of its KV cache while others queue",
        f"{_ADVICE}; shed load, add replicas or lower maxNumSeqs",
    ),
    "RankLags": FindingWords(
        "one of its ranks has work and makes far fewer steps than its sisters",
        "nothing by itself: a person looks at that rank's GPU; a rank that makes no step at all is stalled",
    ),
    "RankDiverges": FindingWords(
        "one of its ranks has far more or far less work than its sisters, and not just for a while", _ADVICE
    ),
    # load
    "Saturated": FindingWords(
        "a queue stands and the engine is full", f"{_ADVICE}; add replicas or shed load"
    ),
    "LongPrefillBlocks": FindingWords("one long prompt keeps the others waiting", _ADVICE),
    "RankImbalance": FindingWords("its ranks are loaded unevenly", _ADVICE),
    "RankMissing": FindingWords("a rank left its metrics page", _ADVICE),
}


def _of_kind(kind: Kind) -> FindingWords:
    who = {
        Retry.NEVER: "the same happens again until the spec changes",
        Retry.BACK_OFF: "the same pod tries again, with growing pauses",
        Retry.BY_KUBELET: "Kubernetes waits for what is missing, and goes on by itself",
    }[kind.retry]
    fresh = "a fresh pod may start" if kind.recreate_helps else "a fresh pod would not start either"
    return FindingWords(f"it does not start ({kind.name}); {fresh}", f"{who}. {cure_of(kind)}")


def cure_of(kind: Kind) -> str:
    """The kind's cure, with the usual path of the field."""
    return kind.cure.replace("{at}", f"spec.{kind.field}")


FINDING_WORDS: Final[Mapping[str, FindingWords]] = {**{k.name: _of_kind(k) for k in KINDS}, **_OWN}
"""By reason; the kinds of failed starts among them."""

REASON_WORDS: Final[Mapping[str, FindingWords]] = {
    "Terminating": FindingWords("the pod is being deleted", "it goes away"),
    "Pending": FindingWords("no engine container runs yet", "Kubernetes starts it"),
    "Starting": FindingWords("it has not been Ready yet", "it becomes Ready, or goes over its start budget"),
    "Asleep": FindingWords("the engine was put to sleep", "nothing before it is woken"),
    "Watching": FindingWords(
        "no step and no answer of this process was seen yet", "the first step or canary proves it"
    ),
    "NoRequests": FindingWords("it has no work", "nothing: idle canaries tell whether it still answers"),
    "WarmingUp": FindingWords(
        "it answers",
        "after its warm-up (10 minutes) every trigger judges it; until then only dead and stall do",
    ),
    "Progressing": FindingWords("it works", "nothing: it is judged in every pass"),
    "MetricsUnavailable": FindingWords("its metrics page can't be read", _BLIND),
    "Unrecognised": FindingWords("its page holds no series of an engine that is known", _BLIND),
    "RepeatedPage": FindingWords("its page stays the same word for word: something before it caches", _BLIND),
}
"""Reasons of verdicts that no finding gives."""

UNKNOWN_FINDING: Final = FindingWords(
    "this version of kintsugi has no words for that finding", "see its message"
)


def finding_words(reason: str) -> FindingWords:
    """The words for a finding's or a verdict's reason; a waiting reason of Kubernetes has none of ours."""
    return FINDING_WORDS.get(reason) or REASON_WORDS.get(reason) or UNKNOWN_FINDING
