"""What an engine wrote, line by line: levels and prefixes off, secrets out, and the first error among the noise."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

LINE_LENGTH: Final = 1000
"""Characters of a line that are looked at: whole messages of vLLM have up to 500."""
MOST_CHARACTERS: Final = 64_000
"""Of the end of a log; reading them takes less than half a second, however they are made."""
FIRST_KEPT: Final = 50
LAST_KEPT: Final = 20
REASON_LENGTH: Final = 400
"""Characters of the first error that go into a condition; the whole of it is in the log."""

_PROCESS: Final = r"(?:\([\w.@/-]+(?: [\w.@/-]+)* ?pid=\d+\)\s*)"
_PREFIX: Final = re.compile(
    rf"^{_PROCESS}{{0,3}}"
    r"(?:(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL)\s+(?:\d\d(?:\d\d)?-\d\d(?:-\d\d)?[ T]\d\d:\d\d:\d\d(?:[.,]\d+)?\s+)?"
    r"(?:\[[^\]\n]{1,80}\]:?)? ?|(?P<uvicorn>DEBUG|INFO|WARNING|ERROR|CRITICAL):\s+)?"
)
"""`(EngineCore_DP0 pid=7) ERROR 10-08 20:33:48 [core.py:708] `, as vLLM writes since 0.10; `INFO:     ` of uvicorn."""
_CONTROL: Final = re.compile(r"\x1b\[[0-9;?]{0,16}[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")
_SECRETS: Final = (
    (re.compile(r"\bhf_[A-Za-z0-9]{8,}"), "hf_…"),
    (re.compile(r"\bsk-[A-Za-z0-9_-]{8,}"), "sk-…"),
    (re.compile(r"(?i)\b(bearer\s+)[^\s'\"]+"), r"\1…"),
    (re.compile(r"(?i)(--(?:api-key|hf-token)\s+)[^\s'\",;]+"), r"\1…"),
    (re.compile(r"(?i)((?:api[-_]?key|token|password|secret)['\"]?\s*[=:]\s*['\"]?)[^\s'\",;]{8,}"), r"\1…"),
    (re.compile(r"(?i)(://)[^/\s:@]{1,200}:[^/\s@]{1,200}@"), r"\1…@"),
)
_EXCEPTION: Final = re.compile(
    r"^(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Fault|Failure|NotFound|Timeout|Expired|HTTPError)"
    r"(?::| \(|\[| +from |$)"
)
_COMMAND_ERROR: Final = re.compile(
    r"^[\w./ -]{0,80}: error: |^Error: |^Fatal Python error: |^(?:ba|da)?sh: |^exec |^terminate called after "
    r"|Segmentation fault|Segfault encountered|^[\w./-]{1,80}: (?:line )?\d*:? ?[\w./-]{1,80}: (?:command )?not found"
)
_NOISE: Final = re.compile(
    r"Engine core initialization failed|WorkerProc initialization failed|Worker failed with error"
    r"|EngineCore (?:failed to start|encountered a fatal error)|EngineCore_\w+ died|Engine core proc \S+ died"
    r"|WorkerProc failed to start|WorkerProc hit an exception|EngineDeadError|EngineGenerateError"
    r"|SystemExit|KeyboardInterrupt|CancelledError|BrokenPipeError|ConnectionResetError|EOFError"
    r"|destroy_process_group|resource_tracker|leaked (?:shared_memory|semaphore)|Exception ignored in"
    r"|Application startup failed|ChildProcessError|torch\.distributed\.elastic|terminate called without"
)
"""What follows from a failure and says nothing of its cause."""
_INNER: Final = re.compile(r"Worker failed with error ['\"](.{1,400}?)['\"],? please check")
_PLACE: Final = re.compile(r'^\s+File "')
_CALM_BUT_TELLING: Final = re.compile(
    r"429|rate.?limit|gated|40[13]\b|shards?\b|resol|connect", re.IGNORECASE
)
_DETAIL: Final = re.compile(r"^\s+(?:Value error|Assertion failed), ")
"""pydantic tells the cause in the line after `1 validation error for …`."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line without its prefix. `level` is '' where the line has none."""

    text: str
    level: str

    @property
    def calm(self) -> bool:
        """A remark, not an error."""
        return self.level in ("DEBUG", "INFO", "WARNING")


def lines_of(texts: Iterable[str]) -> tuple[Line, ...]:
    """The lines of log and termination message, `MOST_CHARACTERS` of them from the end."""
    kept: list[str] = []
    left = MOST_CHARACTERS
    for raw in reversed([line for text in texts for line in text.splitlines()]):
        line = raw[:LINE_LENGTH]
        left -= len(line) + 1
        if left < 0:
            break
        kept.append(line)
    return tuple(_line(line) for line in reversed(kept))


def telling(log: Sequence[str]) -> tuple[str, ...]:
    """The lines of a log that can say why a start failed, as they are: a fifth of it, to be kept and read again each pass.

    Calm lines go, but for those about downloads and progress; so do a traceback's places and code. Of what is left the
    first `FIRST_KEPT` lines stay, which name the cause, and the last `LAST_KEPT`.
    """
    kept: list[str] = []
    code_follows = False
    for raw in log:
        line = _line(raw[:LINE_LENGTH])
        place = _PLACE.match(line.text) is not None
        code, code_follows = code_follows and line.text.startswith("    "), place
        if place or code or (line.calm and not _CALM_BUT_TELLING.search(line.text)):
            continue
        if line.text.strip(" ^~"):
            kept.append(raw[:LINE_LENGTH])
    if not kept:
        return tuple(raw[:LINE_LENGTH] for raw in log[-LAST_KEPT:])
    if len(kept) <= FIRST_KEPT + LAST_KEPT:
        return tuple(kept)
    return (*kept[:FIRST_KEPT], *kept[-LAST_KEPT:])


def _line(raw: str) -> Line:
    text = _CONTROL.sub("", raw)
    found = _PREFIX.match(text)
    if found is None:
        return Line(text, "")
    return Line(text[found.end() :], found["level"] or found["uvicorn"] or "")


def without_secrets(text: str) -> str:
    """`text` with tokens, keys and passwords replaced."""
    for pattern, instead in _SECRETS:
        text = pattern.sub(instead, text)
    return text


def one_line(text: str) -> str:
    """`text` for a condition: no secrets, no control characters, one line, not too long."""
    shown = "".join(character if character.isprintable() else " " for character in _CONTROL.sub("", text))
    return clipped(without_secrets(" ".join(shown.split())))


def clipped(text: str) -> str:
    return text if len(text) <= REASON_LENGTH else f"{text[: REASON_LENGTH - 1]}…"


def first_error(lines: Sequence[Line]) -> str:
    """The first error of an engine's log in one line; '' where it is empty.

    The first exception that isn't the echo of another; else the first line of level ERROR; else the last line.
    """
    for index, line in enumerate(lines):
        if line.calm or _NOISE.search(line.text):
            continue
        if _EXCEPTION.search(line.text) or _COMMAND_ERROR.search(line.text):
            detail = lines[index + 1].text if index + 1 < len(lines) else ""
            deeper = [one.text for one in lines[index + 1 : index + 4] if _DETAIL.search(one.text)]
            follows = deeper[0] if deeper and "validation error" in line.text else ""
            empty = line.text.rstrip().endswith(":") and detail and not detail.startswith(" ")
            return one_line(" ".join((line.text, follows or (detail if empty else ""))))
    inner = next(
        (found for line in lines if (found := _INNER.search(line.text)) and found[1].strip(": ")), None
    )
    if inner is not None:
        return one_line(inner[1])
    errors = (one.text for one in lines if one.level in ("ERROR", "CRITICAL") and not _NOISE.search(one.text))
    told = next((text for text in errors if text.strip() and not text.startswith((" ", "Traceback"))), "")
    last = next((one.text for one in reversed(lines) if one.text.strip()), "")
    return one_line(told or last)
