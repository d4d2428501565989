"""`starting over budget`: a start that takes longer than its model, from where it lies, explains. Advice only.

The budget is the kubelet's too (`core.pod.seconds`): at its end the kubelet restarts the container in place, so a start
is over its budget in a process that is older than it, or in one that was ended for it and begins anew.
"""

from kintsugi.core.finding import Detector, Evidence, Finding, Severity
from kintsugi.core.snapshot import Instance


def over_budget(instance: Instance, now: float, budget: float) -> Finding | None:
    """The advice on a pod that was never Ready and whose start took longer than `budget` seconds, or None.

    Waiting for a GPU and for the image are no part of a start: it counts from the first process on, as far as the pod
    tells when that began. `now` in epoch seconds.
    """
    if instance.phase != "Running":
        return None
    process = 0.0 if instance.started_at is None else now - instance.started_at
    whole = _all_attempts(instance, now)
    seconds = max(process, whole)
    if seconds <= budget:
        return None
    tries = instance.restarts + 1
    more = f", in {tries} attempts" if instance.restarts else ""
    text = (
        f"not Ready {seconds:.0f} s after its start{more}, more than its budget of {budget:.0f} s: a slow volume or "
        "download, or a model larger than the catalog knows; spec.engine.startBudgetSeconds sets another"
    )
    evidence = (
        Evidence("seconds since its start", seconds, "s", 1),
        Evidence("start budget", budget, "s", 1),
        Evidence("attempts", float(tries), "count", 1),
    )
    return Finding(
        Detector.DEAD, "StartOverBudget", Severity.ADVICE, text, now - seconds, evidence, removable=False
    )


def _all_attempts(instance: Instance, now: float) -> float:
    """Seconds since the pod came to its node, where its container was restarted since; the attempts before are gone."""
    return now - instance.start_began_at if instance.restarts else 0.0
