"""Building and pushing images with buildah, without a daemon and without touching the machine's own image store."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.cluster.base_image import CERTIFICATES, PIP_SETTINGS
from tests.cluster.machine import search_path
from tests.cluster.paths import cache_root

_MANY = 150
"""Images and cached steps; each build of the project's own adds three to eight, of which one is large."""


class BuildFailed(RuntimeError):
    """buildah ended with an error; the message holds the end of its output."""


def store() -> Path:
    return cache_root() / "buildah"


def has(image: str) -> bool:
    return _buildah(["inspect", "--type", "image", image], check=False).returncode == 0


def build(dockerfile: Path, context: Path, tag: str, arguments: Mapping[str, str]) -> None:
    """Build `dockerfile` as `tag`. Unchanged steps come from the cache.

    The machine's certificates and pip settings are there while it runs, and not in the image. Raises BuildFailed.
    """
    with tempfile.TemporaryDirectory(prefix="kintsugi-build-") as scratch:
        settings = Path(scratch) / "pip.conf"
        settings.write_text(pip_settings(os.environ, Path("/etc/pip.conf")))
        volumes = [f"--volume={settings}:{PIP_SETTINGS}:ro"]
        if Path(CERTIFICATES).exists():
            volumes.append(f"--volume={os.path.realpath(CERTIFICATES)}:{CERTIFICATES}:ro")
        _buildah(
            [
                *("build", "--layers", "--isolation=chroot", "--network=host", "--pull=never", *volumes),
                *(f"--build-arg={name}={value}" for name, value in arguments.items()),
                *(f"--file={dockerfile}", f"--tag={tag}", str(context)),
            ]
        )


def export(image: str, folder: Path) -> None:
    """Write a local image's manifest and layers, not packed, as files into the new folder `folder`."""
    _buildah(["push", "--disable-compression", image, f"dir:{folder}"])


def keep_small() -> None:
    """Forget all local images and cached steps once there are many: the next build takes a minute, and has room."""
    listed = json.loads(_buildah(["images", "--all", "--json"]).stdout or "[]")
    if len(listed) > _MANY:
        shutil.rmtree(store())


def pip_settings(environment: Mapping[str, str], machine: Path) -> str:
    """pip's settings of this machine for use in a build: its file, and above that its environment.

    Left out are those that name files or folders here; certificates are named as they are in the build.
    """
    lines = [f"[global]\ncert = {CERTIFICATES}"]
    taken = {"cert"}
    local = {"find-links", "config-file", "cache-dir", "require-virtualenv", "target", "prefix", "user"}
    for name, value in sorted(environment.items()):
        option = name.removeprefix("PIP_").lower().replace("_", "-")
        if name.startswith("PIP_") and option not in taken | local:
            lines.append(f"{option} = {value}")
            taken.add(option)
    if machine.exists():
        for line in machine.read_text().splitlines():
            option = line.partition("=")[0].strip()
            if "=" in line and option not in taken | local:
                lines.append(line.strip())
    return "\n".join(lines) + "\n"


@functools.cache
def _driver() -> str:
    """overlay where the cache's file system can hold one, else vfs, which copies whole trees."""
    store().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=store().parent) as scratch:
        for name in ("lower", "upper", "work", "all"):
            (Path(scratch) / name).mkdir()
        options = f"lowerdir={scratch}/lower,upperdir={scratch}/upper,workdir={scratch}/work"
        argv = [
            "unshare",
            "--mount",
            "mount",
            "-n",
            "-t",
            "overlay",
            "-o",
            options,
            "overlay",
            f"{scratch}/all",
        ]
        return "overlay" if subprocess.run(argv, check=False, capture_output=True).returncode == 0 else "vfs"


def _buildah(argv: Sequence[str], *, check: bool = True) -> subprocess.CompletedProcess[str]:
    with tempfile.TemporaryDirectory(prefix="kintsugi-buildah-") as scratch:
        policy = Path(scratch) / "policy.json"
        policy.write_text(json.dumps({"default": [{"type": "insecureAcceptAnything"}]}))
        registries = Path(scratch) / "registries.conf"
        registries.write_text("unqualified-search-registries = []\n")
        places = [f"--root={store()}", f"--runroot={scratch}/run", f"--storage-driver={_driver()}"]
        whole = ["buildah", *places, f"--registries-conf={registries}", argv[0]]
        if argv[0] in ("build", "push"):
            whole.append(f"--signature-policy={policy}")
        # In mounts of its own: those of a buildah that was interrupted are gone with it.
        command = ["unshare", "--mount", *whole, *argv[1:]]
        answer = subprocess.run(
            command,
            check=False,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env={**os.environ, "PATH": search_path(), "STORAGE_DRIVER": _driver()},
        )
    if check and answer.returncode != 0:
        raise BuildFailed(f"buildah {argv[0]} failed:\n{(answer.stdout + answer.stderr)[-6000:]}")
    return answer
