"""Compact: the engine gives cached allocator memory back, in place. Nothing is withdrawn, and no request is cut.

The rung is climbed only against fragmentation of the allocator. It is proven by the ratio falling and staying low, as the
detector sees it; one that does not fall ends at once, and the next rung begins.
"""

from kintsugi.api.status import ActiveRemediation
from kintsugi.core.attempt import Step, World, cleared, finding_of, finished, new_process, said
from kintsugi.core.finding import Detector, InstanceVerdict
from kintsugi.core.moment import epoch, moment
from kintsugi.core.plan import Compact


def compacting(active: ActiveRemediation, world: World) -> Step:
    """Ask, wait for the answer, and then for the ratio."""
    victim = world.view.instance(active.uid)
    if victim is None or victim.deleting:
        return Step(finished(active, "Cancelled", "the pod went away by itself", world.now))
    if new_process(active, victim):
        why = "its process was restarted: the evidence was about another one"
        return Step(finished(active, "Cancelled", why, world.now))
    verdict = world.view.verdicts.get(active.uid)
    if active.phase == "Quarantined":
        text = "the engine is asked to release cached allocator memory, in place"
        update = {
            "phase": "Probation",
            "path": "InPlace",
            "draining_since": moment(world.now),
            "message": text,
        }
        return Step(active.model_copy(update=update), (Compact(active.uid, active.id),))
    asked = epoch(active.draining_since or active.reserved_at)
    if active.warm_at is None:
        return _asked(active, asked, verdict, world)
    if cleared(active, world) and finding_of(verdict, active.trigger) is None:
        return Step(finished(active, "Cured", "fragmentation fell and stays low", world.now))
    if verdict and finding_of(verdict, Detector.STALLED.value):
        return Step(finished(active, "NotCured", "the engine does no step any more", world.now))
    since = world.now - epoch(active.warm_at)
    read_after = since - (verdict.page_age if verdict else 0.0)
    if (
        verdict
        and verdict.fresh
        and read_after >= world.times.compact_settle
        and _still_high(verdict, world.fragmentation_line)
    ):
        value = verdict.signals.get("fragmentation_percent", 0.0)
        text = f"the engine released its cached memory, and fragmentation is {value:.0f} % all the same"
        return Step(finished(active, "NotCured", text, world.now))
    if world.now - asked >= world.times.compact_timeout:
        text = "fragmentation was not seen to stay low within the rung's time"
        return Step(finished(active, "NotCured", text, world.now))
    return Step(said(active, "the engine released its cached memory: waits for fragmentation to stay low"))


def _asked(active: ActiveRemediation, asked: float, verdict: InstanceVerdict | None, world: World) -> Step:
    answer = world.compacted.get(active.id)
    if answer:
        return Step(active.model_copy(update={"warm_at": moment(world.now)}))
    if answer is None and world.now - asked < world.times.compact_answer:
        return Step(active, (Compact(active.uid, active.id),))
    why = "does not answer" if answer is None else "could not do it"
    text = f"the engine was asked to release cached memory and {why}"
    return Step(finished(active, "NotCured", text, world.now))


def _still_high(verdict: InstanceVerdict, line: float) -> bool:
    """Whether the newest value is above the line that counts, and the finding stands."""
    value = verdict.signals.get("fragmentation_percent")
    return finding_of(verdict, Detector.FRAGMENTED.value) is not None and value is not None and value > line
