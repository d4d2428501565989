"""What `erroring` says of one instance, in words and numbers."""

from kintsugi.core.detect.erroring import ROUND_BAD, ROUND_CANARIES, ErrorState
from kintsugi.core.finding import Detector, Evidence, Finding, Severity


def error_finding(state: ErrorState, fresh: bool, max_percent: float, now: float) -> Finding | None:
    """The statement on one process, or None. `now` in epoch seconds."""
    if not state.suspected and not state.sick:
        return None
    counts, asked = state.counts, state.round
    text = f"{counts.errors:.0f} of {counts.requests:.0f} requests failed in {counts.seconds:.0f} s"
    evidence = [
        Evidence("requests failed", counts.errors, "count", round(counts.requests)),
        Evidence("errors allowed", max_percent, "%", round(counts.requests)),
    ]
    if asked is not None:
        text += f", and {asked.bad} of {asked.told} canaries"
        evidence.append(Evidence("canaries failed", float(asked.bad), "count", asked.told))
    since = state.since if state.since is not None else now

    def told(reason: str, severity: Severity, more: str) -> Finding:
        return Finding(
            Detector.ERRORING,
            reason,
            severity,
            f"{text}: {more}",
            since,
            tuple(evidence),
            removable=severity is Severity.SICK,
        )

    if state.shared:
        return told("ErrorsEverywhere", Severity.ADVICE, "siblings fail too, so no new pod would cure it")
    if state.sick and fresh:
        return told(
            "Erroring", Severity.SICK, f"more than {max_percent:.0f} % fail here, and siblings are clean"
        )
    if state.sick:
        return told("ErroringUnknown", Severity.SUSPECT, "it can't be read now")
    if asked is not None and asked.told >= ROUND_CANARIES and asked.bad < ROUND_BAD:
        return told(
            "ErrorsFollowRequests", Severity.ADVICE, "harmless requests succeed: look at what clients send"
        )
    return told("ErrorsSuspected", Severity.SUSPECT, f"a round of {ROUND_CANARIES} canaries decides")
