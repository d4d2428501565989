"""What `kintsugi lint` prints: for people, as JSON, as SARIF 2.1.0 for code review tools."""

import json
from collections.abc import Mapping
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import click

from kintsugi import __version__
from kintsugi.core.preflight.registry import RULES, STRUCTURAL

if TYPE_CHECKING:
    from kintsugi.cli.lint import Located, Result

SARIF_SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"
DUPLICATE_KEY: Final = ("DuplicateKey", "A key that stands twice in one mapping of a file.")
DUPLICATE_OBJECT: Final = (
    "DuplicateObject",
    "Two deployments of one namespace and name; a warning where they stand in two files.",
)
_COLOURS: Final = {"Error": "red", "Warning": "yellow"}


def shown(result: "Result", output: str) -> str:
    """The whole text of a run."""
    match output:
        case "json":
            return json.dumps([each.as_json() for each in result.found], indent=2, ensure_ascii=False)
        case "sarif":
            return json.dumps(sarif(result), indent=2, ensure_ascii=False)
        case _:
            return table(result)


def table(result: "Result") -> str:
    """One paragraph for each finding, and a line that counts them."""
    parts = []
    for each in result.found:
        head = click.style(each.finding.severity, fg=_COLOURS[each.finding.severity], bold=True)
        parts.append(
            f"{each.file}:{each.line}: {head} {each.finding.rule}\n"
            f"    {each.finding.message}\n"
            f"    cure: {each.finding.cure}"
        )
    return "\n".join([*parts, _summary(result)])


def _summary(result: "Result") -> str:
    if not result.checked:
        return "nothing was checked"
    counts = {severity: [e for e in result.found if e.finding.severity == severity] for severity in _COLOURS}
    said = [_counted(counts["Error"], "error"), _counted(counts["Warning"], "warning")]
    objects = f"{result.checked} deployment{'s' * (result.checked != 1)} checked"
    return f"{objects}: {', '.join(filter(None, said)) or 'nothing found'}"


def _counted(found: "list[Located]", word: str) -> str:
    if not found:
        return ""
    paths = ", ".join(dict.fromkeys(each.finding.path for each in found))
    return f"{len(found)} {word}{'s' * (len(found) != 1)} ({paths})"


def rules(output: str) -> str:
    """Every rule."""
    summaries = [*STRUCTURAL.items(), DUPLICATE_KEY, DUPLICATE_OBJECT]
    entries = [{"name": n, "severity": "Error", "summary": s} for n, s in summaries if n != "UnknownRule"]
    entries += [{"name": "UnknownRule", "severity": "Warning", "summary": STRUCTURAL["UnknownRule"]}]
    entries += [{"name": r.name, "severity": r.severity, "summary": r.summary, "why": r.why} for r in RULES]
    if output != "table":
        return json.dumps(entries, indent=2, ensure_ascii=False)
    width = max(len(entry["name"]) for entry in entries)
    return "\n".join(f"{e['name']:{width}}  {e['severity']:7}  {e['summary']}" for e in entries)


def sarif(result: "Result") -> dict[str, Any]:
    """The run as a SARIF log."""
    described = _described()
    places = {rule["id"]: index for index, rule in enumerate(described)}
    return {
        "$schema": SARIF_SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "kintsugi",
                        "version": __version__,
                        "semanticVersion": __version__,
                        "rules": described,
                    }
                },
                "columnKind": "unicodeCodePoints",
                "results": [_result(each, places) for each in result.found],
                "invocations": [
                    {
                        "executionSuccessful": not result.unreadable,
                        "toolExecutionNotifications": [
                            {"level": "error", "message": {"text": text}} for text in result.unreadable
                        ],
                    }
                ],
            }
        ],
    }


def _described() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        _rule(name, "Warning" if name == "UnknownRule" else "Error", summary)
        for name, summary in (*STRUCTURAL.items(), DUPLICATE_KEY, DUPLICATE_OBJECT)
    ]
    for rule in RULES:
        entry = _rule(rule.name, rule.severity, rule.summary)
        entry["fullDescription"] = {"text": rule.why}
        entry["helpUri"] = rule.sources[0]
        found.append(entry)
    return found


def _rule(name: str, severity: str, summary: str) -> dict[str, Any]:
    return {
        "id": name,
        "shortDescription": {"text": summary},
        "defaultConfiguration": {"level": severity.lower()},
    }


def _result(each: "Located", places: Mapping[str, int]) -> dict[str, Any]:
    return {
        "ruleId": each.finding.rule,
        "ruleIndex": places[each.finding.rule],
        "level": each.finding.severity.lower(),
        "message": {"text": f"{each.finding.message}. Cure: {each.finding.cure}."},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": _uri(each.file)},
                    "region": {"startLine": each.line, "startColumn": each.column},
                },
                "logicalLocations": [{"fullyQualifiedName": each.finding.path}],
            }
        ],
    }


def _uri(file: str) -> str:
    path = PurePath(file)
    return path.as_uri() if path.is_absolute() else quote(path.as_posix())
