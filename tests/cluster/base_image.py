"""The base of the project's images: a small Debian with Python, from the mirror that this machine itself uses."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

from tests.cluster.machine import Say, Unsupported, exclusive, search_path, silent
from tests.cluster.paths import cache_root

PACKAGES = ("ca-certificates", "python3", "python3-pip", "python3-venv", "python-is-python3")
_UNWANTED = (
    "usr/share/doc",
    "usr/share/man",
    "usr/share/locale",
    "var/cache/apt",
    "var/lib/apt/lists",
    "var/log",
)
_RECIPE = 1
"""To be raised when this file makes something else of the same packages."""

CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
PIP_SETTINGS = "/etc/pip.conf"
"""Both are in the image, so that a build can lay the machine's own over them and leave nothing behind."""


def base_archive(say: Say = silent) -> Path:
    """A tar of the base's files, made now if this machine has not yet (half a minute).

    Raises Unsupported where apt's sources name no mirror, RuntimeError with debootstrap's last words if it fails.
    """
    suite = _suite(Path("/etc/os-release").read_text())
    key = hashlib.sha256(repr((suite, PACKAGES, _UNWANTED, _RECIPE)).encode()).hexdigest()[:16]
    target = cache_root() / "images" / f"base-{key}.tar"
    if target.exists():
        return target
    with exclusive(cache_root() / "images" / "base.lock"):
        if not target.exists():
            say(f"making the base image (Debian {suite} with Python), once for this machine")
            _make(suite, _machine_mirror(), target)
    return target


def _make(suite: str, mirror: str, target: Path) -> None:
    with tempfile.TemporaryDirectory(prefix=".base-", dir=target.parent) as scratch:
        root = Path(scratch) / "root"
        include = f"--include={','.join(PACKAGES)}"
        # In mounts of its own: what debootstrap mounts is gone with it, also when it is interrupted.
        _run(["unshare", "--mount", "debootstrap", "--variant=minbase", include, suite, str(root), mirror])
        for folder in _UNWANTED:
            _run(["find", str(root / folder), "-mindepth", "1", "-delete"])
        (root / PIP_SETTINGS.lstrip("/")).touch()
        # Inside an image, pip owns the interpreter, as in the official Python images.
        for marker in (root / "usr/lib").glob("python3*/EXTERNALLY-MANAGED"):
            marker.unlink()
        new = Path(scratch) / "base.tar"
        excluded = [f"--exclude=./{folder}/*" for folder in ("dev", "proc", "sys", "tmp", "run")]
        _run(["tar", "--numeric-owner", "--sort=name", *excluded, "-C", str(root), "-cf", str(new), "."])
        new.rename(target)


def _run(argv: list[str]) -> None:
    environment = {**os.environ, "PATH": search_path(), "DEBIAN_FRONTEND": "noninteractive"}
    answer = subprocess.run(
        argv, check=False, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=environment
    )
    if answer.returncode != 0:
        raise RuntimeError(f"{argv[0]} failed:\n{(answer.stdout + answer.stderr)[-3000:]}")


def _suite(os_release: str) -> str:
    for line in os_release.splitlines():
        name, _, value = line.partition("=")
        if name == "VERSION_CODENAME":
            return value.strip('"')
    raise Unsupported(
        "/etc/os-release has no VERSION_CODENAME: the base image is made from a Debian's own mirror"
    )


def _machine_mirror() -> str:
    folder = Path("/etc/apt")
    files = [folder / "sources.list", *sorted(folder.glob("sources.list.d/*"))]
    found = mirror(file.read_text() for file in files if file.is_file())
    if found is None:
        raise Unsupported("apt's sources on this machine name no mirror to make the base image from")
    return found


def mirror(sources: Iterable[str]) -> str | None:
    """The first mirror that apt's source files name, in either of their two formats."""
    for text in sources:
        for line in text.splitlines():
            words = line.split()
            if words[:1] == ["deb"]:
                addresses = [word for word in words[1:] if "://" in word]
            elif words[:1] == ["URIs:"]:
                addresses = words[1:]
            else:
                continue
            if addresses:
                return addresses[0]
    return None
