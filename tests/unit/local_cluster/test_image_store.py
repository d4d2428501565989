"""Images without an image tool: written by hand, and put into the registry's storage."""

import hashlib
import io
import json
import os
import tarfile
from pathlib import Path

from tests.cluster.base_image import mirror
from tests.cluster.buildah import pip_settings
from tests.cluster.registry_store import RegistryStore
from tests.cluster.tiny_image import Entry, archive, layer


def exported(folder: Path, layers: list[bytes]) -> Path:
    """An image as buildah's `dir:` transport leaves it."""
    folder.mkdir(parents=True)
    parts = []
    for blob in (b"{}", *layers):
        digest = hashlib.sha256(blob).hexdigest()
        (folder / digest).write_bytes(blob)
        parts.append({"digest": f"sha256:{digest}"})
    (folder / "manifest.json").write_text(json.dumps({"config": parts[0], "layers": parts[1:]}))
    return folder


def test_an_image_that_was_put_in_is_there_under_its_tag_and_no_other(tmp_path: Path) -> None:
    store = RegistryStore(tmp_path / "registry")
    assert not store.has("app", "1")
    store.put("app", "1", exported(tmp_path / "image", [b"base", b"code"]))
    assert store.has("app", "1")
    assert not store.has("app", "2")
    assert not store.has("other", "1")


def test_every_blob_is_stored_under_its_digest_and_linked_from_the_repository(tmp_path: Path) -> None:
    store = RegistryStore(tmp_path / "registry")
    store.put("app", "1", exported(tmp_path / "image", [b"base"]))
    root = tmp_path / "registry/docker/registry/v2"
    digest = hashlib.sha256(b"base").hexdigest()
    assert (root / "blobs/sha256" / digest[:2] / digest / "data").read_bytes() == b"base"
    assert (root / "repositories/app/_layers/sha256" / digest / "link").read_text() == f"sha256:{digest}"


def test_images_share_their_layers(tmp_path: Path) -> None:
    store = RegistryStore(tmp_path / "registry")
    store.put("app", "1", exported(tmp_path / "one", [b"base", b"first"]))
    store.put("app", "2", exported(tmp_path / "two", [b"base", b"second"]))
    blobs = [file.read_bytes() for file in (tmp_path / "registry").rglob("data")]
    assert blobs.count(b"base") == 1
    assert set(store.tags("app")) == {"1", "2"}


def test_old_images_that_nobody_uses_go_with_what_only_they_held(tmp_path: Path) -> None:
    store = RegistryStore(tmp_path / "registry")
    for age, tag in enumerate(["new", "used", "old"]):
        store.put("app", tag, exported(tmp_path / tag, [b"base", tag.encode()]))
        for file in (tmp_path / "registry").rglob("*"):
            if tag in file.parts or file.name == "data":
                os.utime(file, (1000 - age, 1000 - age))
    store.touch("app", "used")
    assert store.prune("app", keep=2, unused_seconds=60) == ["old"]
    blobs = {file.read_bytes() for file in (tmp_path / "registry").rglob("data")}
    assert {b"base", b"new", b"used"} <= blobs
    assert b"old" not in blobs
    assert store.prune("app", keep=0, unused_seconds=60) == ["new"]
    assert store.tags("app") == ["used"]


def test_a_layer_is_the_same_bytes_each_time() -> None:
    entries = [Entry("bin"), Entry("bin/x", b"data"), Entry("bin/y", target="x")]
    assert layer(entries) == layer(entries)


def test_an_archive_names_its_image_and_its_layer_by_digest() -> None:
    with tarfile.open(fileobj=io.BytesIO(archive("app:1", [Entry("x", b"data")], {"Cmd": ["/x"]}))) as tar:
        files = {member.name: file.read() for member in tar if (file := tar.extractfile(member))}
    (manifest,) = json.loads(files["manifest.json"])
    config = json.loads(files[manifest["Config"]])
    assert manifest["RepoTags"] == ["app:1"]
    assert config["config"] == {"Cmd": ["/x"]}
    digest = hashlib.sha256(files[manifest["Layers"][0]]).hexdigest()
    assert config["rootfs"]["diff_ids"] == [f"sha256:{digest}"]


def test_the_mirror_is_found_in_both_formats_of_apts_sources() -> None:
    assert (
        mirror(["# deb http://no\ndeb [arch=amd64] http://one/debian stable main\n"]) == "http://one/debian"
    )
    assert mirror(["", "Types: deb\nURIs: http://two/debian http://three\n"]) == "http://two/debian"
    assert mirror(["nothing here"]) is None


def test_a_build_gets_this_machines_pip_settings_but_none_of_its_files(tmp_path: Path) -> None:
    machine = tmp_path / "pip.conf"
    machine.write_text("[global]\ncert = /here/ca.pem\ntimeout = 5\nindex-url = http://file\n")
    environment = {
        "PIP_INDEX_URL": "http://variable",
        "PIP_FIND_LINKS": "/here/wheels",
        "PIP_CERT": "/here/x",
    }
    lines = pip_settings(environment, machine).splitlines()
    assert "index-url = http://variable" in lines
    assert "timeout = 5" in lines
    assert "index-url = http://file" not in lines
    assert not [line for line in lines if "/here/" in line]


def test_a_machine_without_pip_settings_is_fine(tmp_path: Path) -> None:
    assert pip_settings({}, tmp_path / "none").startswith("[global]\n")
