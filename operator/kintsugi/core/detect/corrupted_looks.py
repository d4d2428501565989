"""From the looks of one pass to the entries of `corrupted_pass`: who may be asked a question now."""

from collections.abc import Sequence

from kintsugi.core.detect.corrupted_pass import Answering, AnswerMemory, answers_pass
from kintsugi.core.evidence import ProcessEvidence
from kintsugi.core.look import Look
from kintsugi.core.page import DEFAULT_RANK
from kintsugi.core.snapshot import Snapshot
from kintsugi.core.times import Times


def judge_answers(
    up: Sequence[Look],
    memory: AnswerMemory,
    revisions: set[tuple[str, str]],
    snapshot: Snapshot,
    times: Times,
) -> None:
    """Move the evidence on every instance of `up`, which were all Ready once. `revisions`: (pool, revision) that exist."""
    mono = snapshot.mono
    for gone in [key for key in memory.known if key[:2] not in revisions]:
        del memory.known[gone]
    entries = [
        Answering(
            one.instance.uid,
            one.instance.pool,
            one.instance.revision,
            one.instance.image_id,
            process.answers,
            one.settled and one.fresh and may_be_asked(process),
            process.ranks or (DEFAULT_RANK,),
        )
        for one in up
        if (process := one.process) is not None and not one.instance.deleting
    ]
    answers_pass(entries, memory, mono, snapshot.now, times)


def may_be_asked(process: ProcessEvidence) -> bool:
    """Stepping or idle, and nobody waits: a question must not lengthen a queue."""
    if process.sample is None or process.load.queue_since is not None:
        return False
    for rank in process.sample.ranks:
        if (rank.waiting or 0.0) - (rank.deferred or 0.0) >= 1.0:
            return False
    return not any(clock.flat or clock.stale for clock in process.stall.ranks.values())
