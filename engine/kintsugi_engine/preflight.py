"""`kintsugi-engine preflight`, for an init container: can an engine start here at all?

Finds out in a second what else shows after minutes of loading: a GPU that is missing or of another kind, too little
shared memory or disk, weights that are incomplete, caches that can't be written. The verdict goes to standard output
and, as JSON, into the container's termination message, where the operator and `kubectl describe pod` show it.
"""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from kintsugi_engine.gpus import Found, visible
from kintsugi_engine.weights import complaint

MESSAGE_BYTES: Final = 4096
"""What Kubernetes keeps of a termination message."""
GIB: Final = 1 << 30
_UNITS: Final = {
    "Ki": 1 << 10,
    "Mi": 1 << 20,
    "Gi": 1 << 30,
    "Ti": 1 << 40,
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
}


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at."""

    name: str
    ok: bool
    said: str


def gpus(count: int, kind: str, look: Callable[[], Found]) -> Check:
    """At least `count` GPUs whose name has `kind` in it ('' any)."""
    found = look()
    if len(found.names) < count:
        return Check(
            "gpu", False, f"{len(found.names)} of {count} GPUs are visible{found.why and ': ' + found.why}"
        )
    others = sorted({name for name in found.names if kind.lower() not in name.lower()})
    if kind and others:
        return Check("gpu", False, f"wanted {kind}, found {', '.join(others)}")
    return Check("gpu", True, f"{len(found.names)} visible: {', '.join(sorted(set(found.names)))}")


def shared_memory(least: int, path: Path = Path("/dev/shm")) -> Check:
    """The size of /dev/shm, and whether an engine before this one left files there."""
    try:
        stat = os.statvfs(path)
        left = [entry.name for entry in path.iterdir()]
    except OSError as error:
        return Check("shm", False, f"{path}: {error.strerror}")
    free = stat.f_bavail * stat.f_frsize
    held = f", {len(left)} files of an engine before lie there, such as {left[0]}" if left else ""
    said = f"{free / GIB:.2f} GiB free of {stat.f_blocks * stat.f_frsize / GIB:.2f} GiB{held}"
    return Check("shm", free >= least, said if free >= least else f"{said}; {least / GIB:.2f} GiB are needed")


def disk(path: Path, least: int) -> Check:
    """Free space of the file system that holds `path`."""
    try:
        stat = os.statvfs(path)
    except OSError as error:
        return Check("disk", False, f"{path}: {error.strerror}")
    free = stat.f_bavail * stat.f_frsize
    said = f"{path}: {free / GIB:.1f} GiB free"
    return Check(
        "disk", free >= least, said if free >= least else f"{said}, {least / GIB:.1f} GiB are needed"
    )


def writable(path: Path) -> Check:
    """Whether this user may write in a folder."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path) as scratch:
            scratch.write(b"x")
    except OSError as error:
        return Check("writable", False, f"{path}: {error.strerror}, as user {os.getuid()}")
    return Check("writable", True, str(path))


def model(where: str) -> Check:
    """Whether all weights that the folder's index names are there in full."""
    folder = Path(where)
    if not folder.is_absolute():
        return Check("model", True, f"{where} comes from the hub: not looked at")
    wrong = complaint(folder)
    return Check("model", not wrong, wrong or f"{where} is complete")


def verdict(checks: Sequence[Check]) -> str:
    """JSON that fits a termination message; what failed stands first, and the rest is cut."""
    ordered = sorted(checks, key=lambda check: check.ok)
    while True:
        text = json.dumps(
            {"ok": all(check.ok for check in checks), "checks": [asdict(check) for check in ordered]}
        )
        if len(text.encode()) <= MESSAGE_BYTES or not ordered:
            return text
        last = ordered.pop()
        if not ordered:
            ordered = [Check(last.name, last.ok, last.said[:500])] if len(last.said) > 500 else []


def main(words: Sequence[str]) -> int:
    """Exit code 0 where an engine can start, 1 where not."""
    options = _options(words)
    checks = [gpus(options.gpus, options.gpu, visible)] if options.gpus else []
    if options.shm is not None:
        checks.append(shared_memory(options.shm))
    if options.model:
        checks.append(model(options.model))
    checks += [disk(path, least) for path, least in options.disk]
    checks += [writable(path) for path in options.writable]
    for check in checks:
        print(f"{'ok  ' if check.ok else 'FAIL'} {check.name}: {check.said}", flush=True)
    try:
        options.message.write_text(verdict(checks))
    except OSError as error:
        print(f"{options.message}: {error.strerror}: the verdict stands above alone", file=sys.stderr)
    return 0 if all(check.ok for check in checks) else 1


def _options(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="kintsugi-engine preflight", allow_abbrev=False)
    add = parser.add_argument
    add("--gpus", type=int, default=0, help="GPUs that must be visible")
    add("--gpu", default="", help="kind that they must be, such as H200")
    add("--shm", type=_size, help="free bytes that /dev/shm must have, such as 16Gi")
    add("--model", help="folder of the weights; an id of the hub is not looked at")
    add(
        "--disk",
        type=_room,
        action="append",
        default=[],
        metavar="PATH:SIZE",
        help="free space that must be there",
    )
    add(
        "--writable",
        type=Path,
        action="append",
        default=[],
        metavar="PATH",
        help="folder that must be writable",
    )
    add("--message", type=Path, default=Path("/dev/termination-log"), help="where the verdict goes")
    return parser.parse_args(words)


def _size(text: str) -> int:
    for unit, factor in _UNITS.items():
        if text.endswith(unit) and text[: -len(unit)].replace(".", "", 1).isdigit():
            return int(float(text[: -len(unit)]) * factor)
    if text.isdigit():
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is no size, such as 16Gi")


def _room(text: str) -> tuple[Path, int]:
    path, _, size = text.rpartition(":")
    if not path:
        raise argparse.ArgumentTypeError(f"{text!r} is no PATH:SIZE, such as /var/cache:200Gi")
    return Path(path), _size(size)
