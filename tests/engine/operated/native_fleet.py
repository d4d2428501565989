"""A fleet of native engines on the local cluster, from the image that engine/Dockerfile.native makes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.cluster.images import build_image
from tests.cluster.paths import REPOSITORY
from tests.engine.operated.real_fleet import RealFleet, manifest
from tests.integration.sight import Json


def native_image() -> str:
    """The reference of the image, built now where the registry lacks it.

    Its libraries take 5 GB and ten minutes, once for a machine; a change of our source alone takes a minute.
    """
    return build_image(REPOSITORY / "engine" / "Dockerfile.native", REPOSITORY, "native", kept=1)


def native_manifest(whole: Json, image: str) -> Json:
    """`manifest` of real engines, with the native runtime in their place and nothing of the host."""
    spec: dict[str, Any] = whole["spec"]
    engine = {key: spec["engine"][key] for key in ("imagePullPolicy", "resources", "startBudgetSeconds")}
    spec["engine"] = engine | {
        "image": image,
        "runtime": "Native",
        "args": {"maxModelLen": 2048, "maxNumSeqs": 6},
        "extraArgs": ["--max-num-batched-tokens=256"],
        "env": [{"name": "OMP_NUM_THREADS", "value": "1"}],
    }
    del spec["podTemplate"]
    return whole


class NativeFleet(RealFleet):
    """`RealFleet` of native engines. Their computing process bears the same name as vLLM's."""

    native = ""
    """Reference of the image."""

    def manifest_of(self, replicas: int, connector: str, module: str) -> Json:
        whole = manifest(self.image, self._python, self._package, replicas, connector, module)
        return native_manifest(whole, self.native)


def readable(model: Path) -> Path:
    """The same folder, for every user: the image's is not the one who made it."""
    model.chmod(0o755)
    for file in model.iterdir():
        file.chmod(0o644)
    return model
