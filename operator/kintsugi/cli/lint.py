"""`kintsugi lint`: what is wrong with manifests, before any cluster sees them."""

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click
import yaml

from kintsugi.api.model import API_VERSION, GROUP
from kintsugi.cli.manifests import Document, Unreadable, documents
from kintsugi.core.catalog.catalog import Catalog
from kintsugi.core.catalog.load import CatalogInvalid, builtin, extended
from kintsugi.core.preflight.check import check
from kintsugi.core.preflight.facts import Facts
from kintsugi.core.preflight.finding import Finding, Severity, sort_key
from kintsugi.core.preflight.view import mapping

KIND: Final = "DeepSeekV4Deployment"
STDIN: Final = "-"
ERRORS, UNREADABLE = 1, 2
Seen = dict[tuple[str | None, str], tuple[str, Document]]
"""By namespace and name of a deployment: the file and document where it stands first."""


@dataclass(frozen=True, slots=True)
class Located:
    """A finding with the place where it stands."""

    finding: Finding
    file: str
    document: Document
    line: int
    column: int

    def as_json(self) -> dict[str, Any]:
        """The finding, and where."""
        item = {} if self.document.item is None else {"item": self.document.item}
        place = {"file": self.file, "document": self.document.index, **item, "line": self.line}
        return {**self.finding.as_json(), **place}


@dataclass(frozen=True, slots=True)
class Result:
    """What one run found."""

    checked: int
    found: tuple[Located, ...]
    unreadable: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def exit_code(self) -> int:
        """0 clean or warnings only, 1 errors, 2 where something could not be read, or nothing was ours."""
        if self.unreadable or not self.checked:
            return UNREADABLE
        return ERRORS if any(each.finding.severity == "Error" for each in self.found) else 0


@click.command("lint")
@click.argument("files", nargs=-1, metavar="FILE…")
@click.option(
    "-f", "--file", "more", multiple=True, metavar="FILE", help="The same as FILE, as kubectl has it."
)
@click.option(
    "-o", "--output", type=click.Choice(["table", "json", "sarif"]), default="table", show_default=True
)
@click.option(
    "--catalog",
    "catalog_file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="YAML file with models, GPUs or flags of your own, laid over the built-in catalog.",
)
@click.option("--list-rules", is_flag=True, help="Print every rule, and check nothing.")
def lint(
    files: tuple[str, ...], more: tuple[str, ...], output: str, catalog_file: Path | None, list_rules: bool
) -> None:
    """Check manifests of DeepSeekV4Deployments; `-` reads standard input.

    A file may hold several documents and lists; other kinds are skipped (claims and autoscalers among them are
    read, for the rules on access modes). Exit code: 0 clean or warnings only, 1 errors, 2 unreadable.
    """
    from kintsugi.cli import lintoutput  # not needed to import this module for its exit codes

    if list_rules:
        click.echo(lintoutput.rules(output))
        return
    if not files and not more:
        raise click.UsageError("name a file, or - for standard input")
    result = run((*files, *more), _catalog(catalog_file))
    for note in (*result.notes, *result.unreadable):
        click.echo(note, err=True)
    click.echo(lintoutput.shown(result, output))
    sys.exit(result.exit_code)


def run(files: Iterable[str], catalog: Catalog | None = None) -> Result:
    """Check every deployment in `files`."""
    read, unreadable, notes = [], [], []
    for name in files:
        try:
            read += [(name, document) for document in documents(_text(name))]
        except (OSError, UnicodeDecodeError, Unreadable) as error:
            said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            unreadable.append(f"{_shown(name)}: can't be read: {said}")
    objects = [document.raw for _, document in read]
    found: list[Located] = []
    checked = 0
    seen: Seen = {}
    for name, document in read:
        where = f"{_shown(name)}: document {document.index}"
        if not isinstance(document.raw, dict):
            unreadable.append(f"{where}: is no object: a manifest has apiVersion, kind, metadata and spec")
        elif not _ours(document.raw):
            kind = document.raw.get("kind")
            notes.append(f"{where}: skipped, its kind is {kind if isinstance(kind, str) else 'not said'}")
        else:
            checked += 1
            found += _located(name, document, _facts(document.raw, objects), catalog)
            if (again := _again(name, document, seen)) is not None:
                found.append(again)
    if not checked and not unreadable:
        unreadable.append(f"no {KIND} in {', '.join(map(_shown, files))}")
    return Result(checked, tuple(found), tuple(unreadable), tuple(notes))


def _located(name: str, document: Document, facts: Facts, catalog: Catalog | None) -> Iterator[Located]:
    found = [*_identity(document.raw), *check(document.raw, facts, catalog)]
    for finding in sorted(set(found), key=sort_key):
        line, column = document.place(finding.path)
        yield Located(finding, _shown(name), document, line, column)
    for double in document.doubled:
        text = f"{double.path} stands twice, first in line {double.first_line}: the first value is lost in silence"
        finding = Finding("Error", "DuplicateKey", double.path, text, "keep one of them")
        yield Located(finding, _shown(name), document, double.line, 1)


def _again(name: str, document: Document, seen: Seen) -> Located | None:
    """A finding where a deployment of that namespace and name stands before. In one file it is an error; in two it may be
    meant for two clusters."""
    called, namespace = _identity_of(document.raw)
    if called is None:
        return None
    file, first = seen.setdefault((namespace, called), (name, document))
    if (file, first.index, first.item) == (name, document.index, document.item):
        return None
    whose = f"{namespace}/{called}" if namespace else called
    where = f"{_shown(file)}:{first.place('metadata.name')[0]}"
    text = f"{whose} stands twice, first in {where}: in one cluster the later overwrites the earlier"
    cure = "give them different names, or keep one"
    severity: Severity = "Error" if file == name else "Warning"
    line, column = document.place("metadata.name")
    finding = Finding(severity, "DuplicateObject", "metadata.name", text, cure)
    return Located(finding, _shown(name), document, line, column)


def _identity(raw: dict[str, Any]) -> Iterator[Finding]:
    """What the API server asks for before it knows which schema to go by."""
    for key, wanted in (("apiVersion", API_VERSION), ("kind", KIND)):
        if raw.get(key) is None:
            yield Finding(
                "Error", "InvalidField", ".", f"{key} is required: set it", f"write {key}: {wanted}"
            )
    metadata = mapping(raw.get("metadata"))
    if metadata.get("name") is None and not metadata.get("generateName"):
        at = "metadata" if isinstance(raw.get("metadata"), dict) else "."
        yield Finding("Error", "InvalidField", at, "metadata.name is required", "write metadata.name")


def _ours(raw: dict[str, Any]) -> bool:
    """Whether the document is, or was meant to be, of our kind."""
    kind, version = raw.get("kind"), raw.get("apiVersion")
    if kind is None or not isinstance(kind, str):
        spec = raw.get("spec")
        return str(version).startswith(f"{GROUP}/") or (isinstance(spec, dict) and "model" in spec)
    same = kind.lower() == KIND.lower() or (str(version).startswith(f"{GROUP}/") and kind != "Remediation")
    return same


def _facts(deployment: dict[str, Any], objects: Iterable[Any]) -> Facts:
    """What manifests that lie beside a deployment, in its namespace, tell: claims, and how far it may be scaled."""
    claims: dict[str, tuple[str, ...]] = {}
    most: int | None = None
    name, namespace = _identity_of(deployment)
    for raw in objects:
        if not isinstance(raw, dict) or _identity_of(raw)[1] not in (None, namespace):
            continue
        spec = mapping(raw.get("spec"))
        if raw.get("kind") == "PersistentVolumeClaim" and isinstance(spec.get("accessModes"), list):
            claims[str(_identity_of(raw)[0])] = tuple(str(mode) for mode in spec["accessModes"])
        target = spec.get("scaleTargetRef")
        if raw.get("kind") == "HorizontalPodAutoscaler" and isinstance(target, dict):
            largest = spec.get("maxReplicas")
            if (target.get("kind"), target.get("name")) == (KIND, name) and isinstance(largest, int):
                most = largest
    return Facts(claims=claims, most_replicas=most)


def _identity_of(raw: dict[str, Any]) -> tuple[str | None, str | None]:
    """Name and namespace, where they are texts."""
    metadata = mapping(raw.get("metadata"))
    name, namespace = metadata.get("name"), metadata.get("namespace")
    return name if isinstance(name, str) else None, namespace if isinstance(namespace, str) else None


def _text(name: str) -> str:
    data = sys.stdin.buffer.read() if name == STDIN else Path(name).read_bytes()
    return data.decode("utf-8-sig")


def _shown(name: str) -> str:
    return "stdin" if name == STDIN else name


def _catalog(path: Path | None) -> Catalog | None:
    if path is None:
        return None
    try:
        return extended(builtin(), yaml.safe_load(path.read_text("utf-8")))
    except (OSError, UnicodeDecodeError, yaml.YAMLError, CatalogInvalid) as error:
        click.echo(f"{path}: can't be read as a catalog: {error}", err=True)
        sys.exit(UNREADABLE)
