"""The black box of a removed instance: what it left behind, small, and without secrets or users' words.

Pure: the runtime reads, this module chooses, redacts and bounds (safety rule 18).
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, TypeGuard

from kintsugi.api.remediation import MAX_LOG_LINES, MAX_PAGE, MAX_RECORD, MAX_RECORDS, BlackBox

SIZE_LIMIT: Final = 40 * 1024
"""Bytes of a black box as JSON: a Remediation holds 64 KiB at most (design §2), its evidence and gates need the rest."""
LONGEST_LINE: Final = 8192
"""Characters of a line that are looked at; its end says more than its beginning."""
REDACTED: Final = "[redacted]"

_PREFIXES: Final = ("vllm:", "kintsugi_", "process_", "http_requests_total")
_LEFT_OUT: Final = ("_bucket", "_created")
_MODEL_LABEL: Final = re.compile(r'(?<=[{,])model_name="[^"]*",?')
_FIRST: Final = (
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
    "vllm:kv_cache_usage_perc",
    "vllm:iteration_tokens_total_count",
    "vllm:generation_tokens_total",
    "vllm:num_preemptions_total",
    "vllm:request_success_total",
    "kintsugi_",
    "process_start_time_seconds",
    "process_cpu_seconds_total",
    "process_resident_memory_bytes",
)
"""What explains most is kept where not all of a page fits."""

_RECORD_HEAD: Final = frozenset({"format", "at", "age", "engine", "worker", "rank", "pid"})
_RECORD_FIRST: Final = (
    *("steps", "requests", "tokens", "preempted", "blocks", "orphaned", "waste", "fragmentation", "bytes"),
    *("stepSeconds", "groups"),
)
"""Likewise, of a rank's own record."""
_WORD: Final = re.compile(r"[A-Za-z0-9_-]{1,32}")
_MOST_FIGURES: Final = 64
_LARGEST: Final = 1e18

_KEYS: Final = r"secret|passw(?:or)?d|passwd|credential|api[_-]?key|access[_-]?key|private[_-]?key"
_GIVEN: Final = r"['\"]?\s*[:=]\s*\[?['\"]?)"
"""Between a key's name and its value."""
_SECRETS: Final = (
    re.compile(r"(?i)(authorization['\"]?\s*[:=]\s*['\"]?)(?:(?:bearer|basic|digest|token)\s+)?[^\s'\",}]+"),
    re.compile(r"(?i)(\b(?:bearer|basic)\s+)[A-Za-z0-9._~+/=-]{8,}"),
    re.compile(rf"(?i)((?<![\w.-])[\w.-]*(?:{_KEYS})s?[\w.-]*{_GIVEN}[^\s'\",}}\])]+"),
    re.compile(
        rf"(?i)((?<![\w.-])(?:[\w.-]*[_.-])?tokens?{_GIVEN}(?=[^\s'\",}}]*[A-Za-z_/+-])[^\s'\",}}\])]+"
    ),
    re.compile(r"(?i)(--(?:api-key|hf-token|ssl-keyfile-password)\s+)\S+"),
    re.compile(r"(\b[a-z][a-z0-9+.-]*://)[^\s/@:]+:[^\s/@]+(?=@)"),
    re.compile(r"()\b(?:hf_|sk-|ghp_|gho_|glpat-|xox[abp]-|AKIA|ASIA)[A-Za-z0-9_-]{8,}"),
    re.compile(r"()\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*"),
    re.compile(r"()-----BEGIN [A-Z ]*PRIVATE KEY-----.*"),
)
"""Each keeps its first group and loses the rest."""
_PROMPT: Final = re.compile(
    r"""(?i)(\b(?:prompt|messages|generated[ _]text|prompt_token_ids|prompt_embeds)['"]?\s*[:=]\s*)"""
    r"""(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|\[.*\]|\S+(?=\s*,)|.*$)"""
)
"""Users' words: an engine that logs requests writes them."""
_CONTROL: Final = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ufffe\uffff\ud800-\udfff]|\x1b\[[0-9;]*m"
)
_POLLING: Final = re.compile(r'"(?:GET|HEAD) /(?:metrics|health|ping|version|v1/models|load)\b[^"]*" 200')
_NOISE_KEYS: Final = frozenset({"env", "envFrom", "command", "args", "volumeMounts"})


def named_series(page: str) -> str:
    """The lines of a `/metrics` page worth keeping, those that explain most first, within what a black box holds."""
    lines = [
        _MODEL_LABEL.sub("", line).replace(",}", "}")
        for line in page.splitlines()
        if line.startswith(_PREFIXES) and not _name(line).endswith(_LEFT_OUT)
    ]
    kept, room = [], MAX_PAGE
    for line in sorted(lines, key=_rank):
        room -= len(line.encode()) + 1
        if room < 0:
            break
        kept.append(line)
    return "\n".join(kept)


def record_lines(ranks: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """The ranks' last samples, a line each: `pool of engine 0, 31.2 s old: steps 4711, blocks.active 12, …`.

    Only numbers and short words are taken over, whatever an engine answers: a record has no room for users' words.
    """
    return tuple(_record_line(rank) for rank in islice(ranks, MAX_RECORDS))


def redacted(text: str, secrets: Iterable[str] = ()) -> str:
    """`text` on one printable line, without keys, tokens, passwords or prompts. `secrets` are known values to remove."""
    text = text[-LONGEST_LINE:]
    for secret in secrets:
        if len(secret) >= 4:
            text = text.replace(secret, REDACTED)
    text = _CONTROL.sub(" ", text)
    for pattern in _SECRETS:
        text = pattern.sub(lambda found: f"{found.group(1)}{REDACTED}", text)
    return _PROMPT.sub(lambda found: f"{found.group(1)}{REDACTED}", text)


def telling_lines(lines: Sequence[str], secrets: Iterable[str] = ()) -> tuple[str, ...]:
    """The last lines of a log that say more than that somebody polled, redacted."""
    known = tuple(secrets)
    return tuple(redacted(line, known) for line in lines if not _POLLING.search(line))[-MAX_LOG_LINES:]


def plain_statuses(pod: Mapping[str, Any], secrets: Iterable[str] = ()) -> tuple[dict[str, Any], ...]:
    """The pod's container statuses, the engine's first, redacted."""
    known = tuple(secrets)
    found = [
        each for each in (pod.get("status") or {}).get("containerStatuses") or () if isinstance(each, Mapping)
    ]
    ordered = sorted(found, key=lambda each: each.get("name") != "engine")
    return tuple(clean for each in ordered if isinstance(clean := _clean(each, known), dict))


def event_lines(events: Iterable[Mapping[str, Any]], secrets: Iterable[str] = ()) -> tuple[str, ...]:
    """Events as `time reason: message (xN)`, the newest last."""
    known = tuple(secrets)
    told = [
        (
            str(e.get("lastTimestamp") or e.get("eventTime") or e.get("firstTimestamp") or ""),
            str(e.get("reason") or ""),
            redacted(str(e.get("message") or e.get("note") or ""), known),
            int(e.get("count") or 1),
        )
        for e in events
    ]
    return tuple(
        f"{at} {reason}: {text}{f' (x{count})' if count > 1 else ''}".strip()
        for at, reason, text, count in sorted(told)
    )


def bounded(box: BlackBox) -> BlackBox:
    """`box` within `SIZE_LIMIT`: the oldest log lines go first, then events, then pages, then container statuses."""
    while (size := len(json.dumps(box.dump(), ensure_ascii=False).encode())) > SIZE_LIMIT:
        if box.logs:
            drop = max(1, len(box.logs) * (size - SIZE_LIMIT) // size)
            box = box.model_copy(update={"logs": box.logs[drop:]})
        elif box.events:
            box = box.model_copy(update={"events": box.events[1:]})
        elif box.pages:
            box = box.model_copy(update={"pages": box.pages[1:]})
        else:
            return box.model_copy(update={"container_statuses": ()})
    return box


def _record_line(rank: Mapping[str, Any]) -> str:
    head = " ".join(filter(None, (_word(rank.get("kind")) or "rank", _word(rank.get("worker")))))
    engine, age = _word(rank.get("engine")), rank.get("age")
    head += f" of engine {engine}" if engine else ""
    head += f", {age:.1f} s old" if _is_figure(age) else ", of unknown age"
    figures: list[str] = []
    room = MAX_RECORD - len(head) - len(": ")
    for name, value in sorted(_figures(rank), key=lambda each: (_record_rank(each[0]), each[0])):
        text = f"{name} {value:.6g}"
        room -= len(text) + len(", ")
        if room < 0:
            break
        figures.append(text)
    return f"{head}: {', '.join(figures)}" if figures else head


def _figures(value: Mapping[str, Any], path: str = "", depth: int = 0) -> Iterator[tuple[str, float]]:
    """The numbers in `value`, by path, three levels deep: `groups.0.waste`."""
    for key, each in islice(value.items(), _MOST_FIGURES):
        name = f"{path}{_word(key)}"
        if not _word(key) or (not path and key in _RECORD_HEAD):
            continue
        if _is_figure(each):
            yield name, float(each)
        elif isinstance(each, Mapping) and depth < 2:
            yield from _figures(each, f"{name}.", depth + 1)


def _record_rank(name: str) -> int:
    return next((at for at, first in enumerate(_RECORD_FIRST) if name.startswith(first)), len(_RECORD_FIRST))


def _is_figure(value: object) -> TypeGuard[int | float]:
    """Whether a JSON number can be told: JSON's whole numbers have no bound, Python's reals do."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return -_LARGEST < value < _LARGEST


def _word(value: object) -> str:
    text = str(value) if isinstance(value, str) or _is_figure(value) else ""
    return text if _WORD.fullmatch(text) else ""


def _name(line: str) -> str:
    return line.partition("{")[0].partition(" ")[0]


def _rank(line: str) -> int:
    return next((at for at, prefix in enumerate(_FIRST) if line.startswith(prefix)), len(_FIRST))


def _clean(value: Any, secrets: tuple[str, ...]) -> Any:
    match value:
        case Mapping():
            return {str(k): _clean(v, secrets) for k, v in value.items() if k not in _NOISE_KEYS}
        case list() | tuple():
            return [_clean(each, secrets) for each in value]
        case str():
            return redacted(value, secrets)[:2048]
        case _:
            return value
