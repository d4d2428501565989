"""Packs the flags of `vllm serve` of several releases into the catalog's `flags.txt`.

    python -m pip download --no-deps --only-binary :all: -d wheels vllm==0.33.0     # and the others, one by one
    python .ci/engine_flags.py wheels/vllm-*.whl > operator/kintsugi/core/catalog/data/flags.txt

The engine is read, not run: the literal names in its `add_argument` calls, and the fields of its front end's
dataclasses, from which it makes flags itself. A name that it computes in another way ends the script with an error.
"""

import ast
import sys
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

ENGINE_FILE: Final = "vllm/engine/arg_utils.py"
FRONTEND_FILES: Final = tuple(
    f"vllm/entrypoints/{folder}/cli_args.py" for folder in ("openai", "launchers", "common")
)
"""Where the front end's arguments lived: up to 0.28, 0.29 to 0.32, from 0.33."""
FRONTEND_CLASSES: Final = ("BaseFrontendArgs", "FrontendArgs")


class UnknownShape(Exception):
    """The engine's source says its flags in a way that this script does not read."""


def flags_of(sources: Mapping[str, str]) -> frozenset[str]:
    """The long flags of one release, from its source files by path."""
    frontend = next((sources[path] for path in FRONTEND_FILES if path in sources), None)
    if frontend is None or ENGINE_FILE not in sources:
        raise UnknownShape(f"neither {ENGINE_FILE} nor a cli_args.py is where it was")
    found = set(_literal_flags(ast.parse(sources[ENGINE_FILE]), generated=0))
    tree = ast.parse(frontend)
    found |= set(_literal_flags(tree, generated=1)) | set(_field_flags(tree))
    return frozenset(found)


def _literal_flags(tree: ast.AST, generated: int) -> Iterator[str]:
    """Names in calls of `add_argument`; `generated`: how many calls may compute theirs (from dataclass fields)."""
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        if node.func.attr != "add_argument":
            continue
        names = [
            arg.value for arg in node.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)
        ]
        if len(names) != len(node.args):
            generated -= 1
            if generated < 0:
                raise UnknownShape(f"line {node.lineno} computes the name of a flag")
        yield from (name for name in names if name.startswith("--"))


def _field_flags(tree: ast.Module) -> Iterator[str]:
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name in FRONTEND_CLASSES]
    if len(classes) != len(FRONTEND_CLASSES):
        raise UnknownShape(f"{', '.join(FRONTEND_CLASSES)} are not all there")
    for node in classes:
        for field in node.body:
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                yield "--" + field.target.id.replace("_", "-")


def packed(releases: Mapping[str, frozenset[str]]) -> str:
    """The text of `flags.txt`, releases oldest first."""
    versions = sorted(releases, key=lambda version: tuple(int(part) for part in version.split(".")))
    lines = [
        "# Flags of `vllm serve` by release, read from the wheels by .ci/engine_flags.py. Do not edit.",
        "# Numbers count the releases in the first line from 0.",
        "releases " + " ".join(versions),
    ]
    for flag in sorted(set().union(*releases.values())):
        lines.append(f"{flag} {_spans([flag in releases[version] for version in versions])}")
    return "\n".join(lines) + "\n"


def _spans(present: Iterable[bool]) -> str:
    """`0-3,7` for the places that are true."""
    spans: list[list[int]] = []
    for index, there in enumerate(present):
        if there and spans and spans[-1][1] == index - 1:
            spans[-1][1] = index
        elif there:
            spans.append([index, index])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)


def read(place: Path) -> tuple[str, dict[str, str]]:
    """Version and source files of a wheel, or of a folder named after the version that holds an unpacked one."""
    wanted = (ENGINE_FILE, *FRONTEND_FILES)
    if place.is_dir():
        return place.name, {
            path: (place / path).read_text("utf-8") for path in wanted if (place / path).is_file()
        }
    with zipfile.ZipFile(place) as wheel:
        names = set(wheel.namelist())
        return place.name.split("-")[1], {path: wheel.read(path).decode() for path in wanted if path in names}


def main(places: list[str]) -> int:
    releases = {}
    for place in places:
        version, sources = read(Path(place))
        try:
            releases[version] = flags_of(sources)
        except UnknownShape as reason:
            print(f"{place}: {reason}", file=sys.stderr)
            return 1
    sys.stdout.write(packed(releases))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
