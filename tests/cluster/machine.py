"""What a machine must have to run the local cluster, and getting it where we may."""

from __future__ import annotations

import fcntl
import functools
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cluster.paths import cache_root

PACKAGES: dict[str, str] = {
    "containerd": "containerd",
    "runc": "runc",
    "/usr/lib/cni/bridge": "containernetworking-plugins",
    "docker-registry": "docker-registry",
    "buildah": "buildah",
    "debootstrap": "debootstrap",
    "nft": "nftables",
    "ip": "iproute2",
    "/bin/busybox": "busybox-static",
    "sysctl": "procps",
    "mount": "mount",
    "nsenter": "util-linux",
}
"""A program that we run (or a file that must be there) -> the Debian package that brings it."""

Say = Callable[[str], None]


class Unsupported(RuntimeError):
    """This machine can't run the local cluster; the message says why and what would help."""


def silent(_: str) -> None:
    """A listener that ignores progress."""


def missing_packages() -> list[str]:
    """The Debian packages that bring what is not on this machine, in alphabetical order."""
    return sorted({package for thing, package in PACKAGES.items() if not _present(thing)})


def _present(thing: str) -> bool:
    if thing.startswith("/"):
        return Path(thing).exists()
    return shutil.which(thing, path=search_path()) is not None


def search_path() -> str:
    """PATH with the system folders in it, which an ordinary shell may leave out."""
    parts = os.environ.get("PATH", "").split(":")
    return ":".join([*parts, *(p for p in ("/usr/sbin", "/sbin", "/usr/bin", "/bin") if p not in parts)])


def unsupported_because() -> str | None:
    """Why no cluster can run here, in one line; None if it can, as far as can be told without installing anything."""
    if os.uname().sysname != "Linux":
        return "a local cluster needs Linux"
    if os.geteuid() != 0:
        return "a local cluster needs root (it makes namespaces); give KUBECONFIG to use another cluster"
    refusal = _namespace_refusal()
    if refusal is not None:
        return f"this machine refuses to make namespaces ({refusal}); give KUBECONFIG to use another cluster"
    if not Path("/sys/fs/cgroup").is_dir():
        return "no cgroup file system is mounted at /sys/fs/cgroup"
    missing = missing_packages()
    if missing and shutil.which("apt-get") is None:
        return f"missing on this machine, which is no Debian: {' '.join(missing)}"
    return None


@functools.cache
def _namespace_refusal() -> str | None:
    """What the kernel says when asked for the namespaces of a node; None if it gives them."""
    try:
        answer = subprocess.run(
            ["unshare", "--net", "--mount", "--pid", "--uts", "--fork", "true"],
            check=False,
            capture_output=True,
            text=True,
        )
    except FileNotFoundError:
        return "no `unshare`"
    return None if answer.returncode == 0 else answer.stderr.strip() or f"exit status {answer.returncode}"


def require(say: Say = silent) -> None:
    """Make sure that the packages of `PACKAGES` are here: installs those that lack, on Debian as root.

    Raises Unsupported with the list of what is missing where it may not or can't install.
    """
    reason = unsupported_because()
    if reason is not None:
        raise Unsupported(reason)
    if not missing_packages():
        return
    with exclusive(cache_root() / "apt.lock"):
        missing = missing_packages()
        if missing:
            say(f"installing Debian packages: {' '.join(missing)}")
            _apt_get(missing)
    still = missing_packages()
    if still:
        raise Unsupported(
            f"apt-get installed {' '.join(missing)}, but these did not come with it: {' '.join(still)}"
        )


def _apt_get(packages: list[str]) -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update"], ["install", "--yes", "--no-install-recommends", *packages]):
        answer = subprocess.run(
            ["apt-get", "-qq", *command],
            check=False,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        if answer.returncode != 0:
            raise Unsupported(
                f"missing on this machine: {' '.join(packages)}; apt-get {command[0]} failed:\n"
                f"{(answer.stdout + answer.stderr).strip()[-2000:]}"
            )


@contextmanager
def exclusive(lock: Path, *, leave: bool = True) -> Iterator[None]:
    """Hold `lock` against every other process; it is freed when this one ends, however it ends.

    Without `leave` the file is gone afterwards.
    """
    lock.parent.mkdir(parents=True, exist_ok=True)
    while True:
        with lock.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if not _is_still(lock, file.fileno()):
                continue  # whoever held it has removed it, and another may hold the one that took its place
            try:
                yield
            finally:
                if not leave:
                    lock.unlink(missing_ok=True)
            return


def _is_still(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False
