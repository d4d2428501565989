"""What `corrupted` says of one instance, in words and numbers.

What nobody may act on is still Suspect and no mere advice: wrong answers have to be seen, and advice on an instance that
is well otherwise is not in its status.
"""

from kintsugi.core.detect.corrupted import NANS, AnswerState, Shown
from kintsugi.core.finding import Detector, Evidence, Finding, Severity
from kintsugi.core.known_answers import NAMES
from kintsugi.core.times import Times


def corrupted_findings(state: AnswerState, fresh: bool, now: float, times: Times) -> list[Finding]:
    """The statements on one process, at most two. `now` in epoch seconds."""
    if state.shown is None and not state.suspected and not state.off and state.nan_rise < NANS:
        return []
    found = [_of_answers(state, fresh, now, times), _of_nans(state, now, times)]
    return [each for each in found if each is not None]


def _finding(
    reason: str, severity: Severity, text: str, since: float | None, now: float, *evidence: Evidence
) -> Finding:
    began = now if since is None else since
    removable = severity is Severity.SICK
    return Finding(Detector.CORRUPTED, reason, severity, text, began, evidence, removable=removable)


def _of_answers(state: AnswerState, fresh: bool, now: float, times: Times) -> Finding | None:
    shown = state.shown
    if shown is not None and (state.sick or state.shared or state.unsure):
        return _concluded(state, shown, fresh, now, times)
    if state.suspected and state.judged_by:
        text = f"a known question was answered wrong: bursts of {len(state.judged_by)} questions decide"
        count = Evidence("questions known", float(len(state.judged_by)), "count", len(NAMES))
        return _finding("WrongAnswersSuspected", Severity.SUSPECT, text, state.since, now, count)
    if state.off:
        text = f"wrong answers are not looked for: {state.off}"
        sure = float(len(state.sure()))
        severity = Severity.SUSPECT if state.differs else Severity.INFO
        return _finding(
            "AnswersNotKnown", severity, text, None, now, Evidence("sure answers", sure, "count", len(NAMES))
        )
    return None


def _concluded(state: AnswerState, shown: Shown, fresh: bool, now: float, times: Times) -> Finding:
    text = (
        f"{shown.first.wrong} of {shown.first.told} known answers were wrong, and {shown.second.wrong} of "
        f"{shown.second.told} at least {times.corrupted_burst:.0f} s later"
    )
    evidence = (
        Evidence("wrong answers, first burst", float(shown.first.wrong), "count", shown.first.told),
        Evidence("wrong answers, second burst", float(shown.second.wrong), "count", shown.second.told),
        Evidence("siblings right", float(shown.right), "count", shown.right + shown.wrong),
        Evidence("siblings wrong", float(shown.wrong), "count", shown.right + shown.wrong),
    )
    if state.shared:
        more = f"{shown.wrong} siblings answer wrong, too, so no new pod of this revision would cure it"
        return _finding(
            "WrongAnswersEverywhere", Severity.SUSPECT, f"{text}: {more}", state.since, now, *evidence
        )
    if state.unsure:
        more = "there is no sibling to compare with, so a person decides"
        return _finding("WrongAnswers", Severity.SUSPECT, f"{text}: {more}", state.since, now, *evidence)
    if not fresh:
        more = "it can't be read now"
        return _finding("CorruptedUnknown", Severity.SUSPECT, f"{text}: {more}", state.since, now, *evidence)
    more = f"{shown.right} siblings answer the same questions right"
    return _finding("CorruptedOutput", Severity.SICK, f"{text}, while {more}", state.since, now, *evidence)


def _of_nans(state: AnswerState, now: float, times: Times) -> Finding | None:
    if state.nan_rise < NANS or state.sick:
        return None
    text = (
        f"{state.nan_rise:.0f} requests with values that are no numbers in {times.corrupted_nan_window:.0f} s"
    )
    count = Evidence("requests with NaNs", state.nan_rise, "count", len(state.nans))
    if state.nans_answered:
        more = "known questions are answered right: look at what clients send"
        return _finding(
            "NansFollowRequests", Severity.SUSPECT, f"{text}: {more}", state.nan_since, now, count
        )
    more = "a burst of known questions decides" if state.judged_by else "no answers are known to compare with"
    return _finding("NansCounted", Severity.SUSPECT, f"{text}: {more}", state.nan_since, now, count)
