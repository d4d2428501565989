"""`classify`: from facts to the one cause of a failed start, or None while nothing has failed."""

import re
from functools import lru_cache
from typing import Final

from kintsugi.core.classify import kinds
from kintsugi.core.classify.facts import OTHER_CONTAINER, StartFacts
from kintsugi.core.classify.failure import StartFailure, made
from kintsugi.core.classify.lines import Line, first_error, lines_of, one_line
from kintsugi.core.classify.pod import CREATING, of_pod
from kintsugi.core.classify.reading import Found, first_sign, loading_progress

LEFTOVER_RESTARTS: Final = 2
"""Failed restarts with a full /dev/shm that show that it is what an earlier run left there (S23: 2 to 3)."""
_SIGNALS: Final = {
    132: "SIGILL",
    134: "SIGABRT",
    135: "SIGBUS",
    136: "SIGFPE",
    137: "SIGKILL",
    139: "SIGSEGV",
    143: "SIGTERM",
}
_ENDED_BY_OTHERS: Final = frozenset({0, 130, 137, 143})
"""Exit codes of an engine that somebody told to stop: SIGTERM may end in 0 (S52: 143)."""


@lru_cache(maxsize=4096)
def classify(start: StartFacts) -> StartFailure | None:
    """Why this pod, which is not Ready, does not start; None while it is merely on its way.

    Any text is read without an error, and the same facts give the same answer. The cause is the first error that the
    engine wrote, whatever the noise at its end (S22).
    """
    found = of_pod(start)
    if found is not None:
        return found
    if start.exit_code is None and start.waiting_reason in CREATING:
        return None
    other = OTHER_CONTAINER.match(start.ended_message) or OTHER_CONTAINER.match(start.waiting_message)
    if other:
        return _beside(start, other)
    lines = lines_of(_texts(start))
    sign = first_sign(lines)
    if start.ended_reason == "OOMKilled":
        text = "the container was ended for using more memory than its limit"
        return made(kinds.OOM_KILLED, text, start.path(kinds.OOM_KILLED.field))
    if sign is not None:
        return _signed(start, sign)
    if _probe_ended_it(start):
        return _too_short(start, lines)
    if start.exit_code in _ENDED_BY_OTHERS and _killed_for(start, "failed liveness probe"):
        text = f"a liveness probe failed, and the kubelet ended the engine (exit {start.exit_code})"
        return made(kinds.LIVENESS_PROBE, text, start.path(kinds.LIVENESS_PROBE.field))
    return _crash(start, lines)


def _texts(start: StartFacts) -> list[str]:
    """Log and termination message; the latter is mostly the log's own end, which need not be read twice."""
    log = "\n".join(start.log)
    tail = start.ended_message.strip()
    texts = [log] if tail and tail[-200:] in log else [log, start.ended_message]
    if start.waiting_reason not in CREATING and start.waiting_reason != "CrashLoopBackOff":
        texts.append(start.waiting_message)
    return texts


def _beside(start: StartFacts, other: re.Match[str]) -> StartFailure:
    """Another container of the pod fails; a check before the start may well say in the engine's words what is missing."""
    kind = kinds.INIT_FAILED if other["init"] else kinds.SIDECAR_FAILED
    said = other.string[other.end() :]
    lines = lines_of([said])
    sign = first_sign(lines)
    if sign is not None and other["init"]:
        return _signed(start, sign)
    text = start.ended_reason if start.ended_reason == "OOMKilled" else first_error(lines)
    return made(kind, one_line(f"{other.group(0)} {text or start.waiting_reason}"), start.path(kind.field))


def _signed(start: StartFacts, found: Found) -> StartFailure:
    sign, match, line = found
    kind, field, cure = sign.kind, sign.field, sign.cure
    if kind is kinds.SHM_LEFTOVER:
        return _shared_memory(start, _spread(line, match))
    at = start.path(field or kind.field)
    named = {key: one_line(value) for key, value in match.groupdict().items() if value}
    for key, value in named.items():
        cure = cure.replace(f"{{{key}}}", value.replace(",", "") if key in ("most", "asked") else value)
    return made(kind, _spread(line, match), at, cure)


def _shared_memory(start: StartFacts, said: str) -> StartFailure:
    """Too small where no run has served with it (S49); else what an earlier run left in it, over restarts (S23)."""
    if start.host_ipc:
        cure = "The node's /dev/shm is full, and {at} shares it with other pods"
        return made(kinds.SHM_TOO_SMALL, said, start.path("podTemplate.spec.hostIPC"), cure)
    left = start.served and start.restarts >= LEFTOVER_RESTARTS
    kind = kinds.SHM_LEFTOVER if left else kinds.SHM_TOO_SMALL
    return made(kind, said, start.path(kind.field))


def _spread(line: str, match: re.Match[str]) -> str:
    """The line in which the sign begins, and the rest of the match where it runs over several."""
    said = match.group(0)
    return one_line(f"{line} {said.partition(chr(10))[2]}" if "\n" in said else line)


def _probe_ended_it(start: StartFacts) -> bool:
    """The kubelet says so; or, where that Event is gone, the probe had failed and a signal ended the engine."""
    if start.exit_code not in _ENDED_BY_OTHERS:
        return False
    if any(event.reason == "Killing" for event in start.events):
        return _killed_for(start, "failed startup probe")
    failed = any("startup probe failed" in event.message.lower() for event in start.events)
    return failed and start.exit_code in (137, 143)


def _killed_for(start: StartFacts, why: str) -> bool:
    """Whether the newest reason of the kubelet for ending the container is this one."""
    killings = [event.message.lower() for event in start.events if event.reason == "Killing"]
    return bool(killings) and why in killings[-1]


def _too_short(start: StartFacts, lines: tuple[Line, ...]) -> StartFailure:
    kind = kinds.START_PROBE_TOO_SHORT
    how_far = loading_progress(lines)
    text = (
        f"the start probe's time was over with {how_far} loaded"
        if how_far
        else "the start probe's time was over"
    )
    return made(
        kind, f"{text}, and the kubelet ended the engine (exit {start.exit_code})", start.path(kind.field)
    )


def _crash(start: StartFacts, lines: tuple[Line, ...]) -> StartFailure | None:
    said = first_error(lines)
    code = start.exit_code
    if code is None and start.waiting_reason == "CrashLoopBackOff":
        return None  # it ended, and nobody says how
    if code is None:
        text = one_line(start.waiting_message) or one_line(start.waiting_reason)
        return made(kinds.CONTAINER_CONFIG, text, start.path(kinds.CONTAINER_CONFIG.field))
    if code in (126, 127):
        cure = "The image has no such command: correct command and args of the engine container in {at}, or the image"
        return made(kinds.CONFIG_INVALID, said or f"exit {code}", start.path("podTemplate"), cure)
    if code == 2 and re.search(r"\busage:", "\n".join(line.text for line in lines), re.IGNORECASE):
        return made(
            kinds.CONFIG_INVALID, said or "the engine refuses its command line", start.path("engine.args")
        )
    if (
        code == 135
    ):  # SIGBUS: a page of /dev/shm was touched that there is no room for, and nothing could be said
        return _shared_memory(
            start, "the engine touched shared memory that there is no room for (exit 135, SIGBUS)"
        )
    kind = kinds.ENGINE_EXITED if code == 0 else kinds.ENGINE_CRASHED
    ended = f"exit {code}" + (f", {_SIGNALS[code]}" if code in _SIGNALS else "")
    return made(kind, f"{said} ({ended})" if said else f"the engine ended ({ended})", start.path(kind.field))
