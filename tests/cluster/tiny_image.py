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
    content, image = _parts(entries, config)
    names = f"{_sha256(image)}.json", f"{_sha256(content)}.tar"
    manifest = [{"Config": names[0], "RepoTags": [tag], "Layers": [names[1]]}]
    files = [
        Entry(names[1], content),
        Entry(names[0], image),
        Entry("manifest.json", json.dumps(manifest).encode()),
    ]
    return layer(files)


def write_folder(folder: Path, entries: list[Entry], config: dict[str, object]) -> Path:
    """The same image as a registry keeps it, each blob a file named by its digest, in the new folder `folder`."""
    folder.mkdir(parents=True)
    kind = "application/vnd.oci.image"
    described = []
    for blob, media in zip(
        _parts(entries, config), (f"{kind}.layer.v1.tar", f"{kind}.config.v1+json"), strict=True
    ):
        (folder / _sha256(blob)).write_bytes(blob)
        described.append({"mediaType": media, "digest": f"sha256:{_sha256(blob)}", "size": len(blob)})
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{kind}.manifest.v1+json",
        "config": described[1],
        "layers": described[:1],
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def _parts(entries: list[Entry], config: dict[str, object]) -> tuple[bytes, bytes]:
    """The image's only layer and its configuration."""
    content = layer(entries)
    document = {
        "architecture": "amd64",
        "os": "linux",
        "config": config,
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{_sha256(content)}"]},
    }
    return content, json.dumps(document, sort_keys=True).encode()


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def pause_image(tag: str) -> bytes:
    """What holds a pod's namespaces: a busybox that sleeps."""
    busybox = Path("/bin/busybox").read_bytes()
    entries = [Entry("bin"), Entry("bin/busybox", busybox), Entry("bin/sh", target="busybox")]
    return archive(tag, entries, {"Cmd": ["/bin/busybox", "sleep", "2147483647"], "Env": ["PATH=/bin"]})
