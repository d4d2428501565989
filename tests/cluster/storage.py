"""The folder of a cluster's state: held in memory where there is enough of it, and removed without a trace.

A cluster's disks are written in a rush and thrown away whole. On some file systems that makes every later file slow to
create (ext4 without a journal skips each inode that was freed in the last minutes), and every layer that a node pulls
is synced to a disk that nobody will read again.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from pathlib import Path

_ENOUGH_BYTES = 6 << 30
"""Below this much free memory a cluster's disks lie on the real one: three nodes with the project's images take 2 GiB."""


def create(folder: Path) -> None:
    """Make the new folder, in memory if that is plentiful."""
    folder.mkdir(parents=True)
    if available_memory(Path("/proc/meminfo").read_text()) >= _ENOUGH_BYTES:
        # A size is a limit and reserves nothing.
        options = "mode=0700,size=75%"
        subprocess.run(["mount", "-n", "-t", "tmpfs", "-o", options, "kintsugi", str(folder)], check=True)


def remove(folder: Path) -> None:
    """Remove the folder with all in it and all mounts on it; nothing happens if it is not there."""
    if not folder.exists():
        return
    # Emptied before it is unmounted: namespaces made since may hold it mounted, and would keep its memory.
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink(missing_ok=True)
    for mounted in reversed(mounts_below(folder, Path("/proc/self/mountinfo").read_text())):
        subprocess.run(["umount", "-n", "--lazy", mounted], check=True)
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(folder)


def mounts_below(folder: Path, mountinfo: str) -> list[str]:
    """What is mounted on the folder or below it, in the order in which it was mounted."""
    points = [line.split()[4] for line in mountinfo.splitlines() if line]
    return [point for point in points if point == str(folder) or point.startswith(f"{folder}/")]


def available_memory(meminfo: str) -> int:
    """Bytes that can be had without swapping, by /proc/meminfo; 0 if it does not say."""
    for line in meminfo.splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) << 10
    return 0
