"""Images that are made of a few files, written without any image tool."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Entry:
    """A file (`data`), a link (`target`) or, with neither, a folder in an image."""

    path: str
    data: bytes | None = None
    target: str | None = None
    mode: int = 0o755


def layer(entries: list[Entry]) -> bytes:
    """A tar of the entries: the same bytes for the same entries."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for entry in entries:
            info = tarfile.TarInfo(entry.path)
            info.mode = entry.mode
            if entry.target is not None:
                info.type, info.linkname = tarfile.SYMTYPE, entry.target
                tar.addfile(info)
            elif entry.data is None:
                info.type = tarfile.DIRTYPE
                tar.addfile(info)
            else:
                info.size = len(entry.data)
                tar.addfile(info, io.BytesIO(entry.data))
    return out.getvalue()


def archive(tag: str, entries: list[Entry], config: dict[str, object]) -> bytes:
    """A one-layer image as `docker load` and `ctr images import` read it; `config` is its Entrypoint, Env and so on."""
    content = layer(entries)
    digest = hashlib.sha256(content).hexdigest()
    document = {
        "architecture": "amd64",
        "os": "linux",
        "config": config,
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }
    image = json.dumps(document, sort_keys=True).encode()
    name = hashlib.sha256(image).hexdigest()
    manifest = [{"Config": f"{name}.json", "RepoTags": [tag], "Layers": [f"{digest}.tar"]}]
    files = [
        Entry(f"{digest}.tar", content),
        Entry(f"{name}.json", image),
        Entry("manifest.json", json.dumps(manifest).encode()),
    ]
    return layer(files)


def pause_image(tag: str) -> bytes:
    """What holds a pod's namespaces: a busybox that sleeps."""
    busybox = Path("/bin/busybox").read_bytes()
    entries = [Entry("bin"), Entry("bin/busybox", busybox), Entry("bin/sh", target="busybox")]
    return archive(tag, entries, {"Cmd": ["/bin/busybox", "sleep", "2147483647"], "Env": ["PATH=/bin"]})
