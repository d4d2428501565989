"""The real Helm, where this machine has one: built with the test cluster's programs, or on the PATH."""

import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.paths import binaries_root
from tests.unit.chart.values import CHART


def find() -> Path | None:
    """The newest Helm that the cluster's build left, or the machine's own."""
    built = sorted(binaries_root().glob("*/helm"), key=lambda path: path.stat().st_mtime)
    if built:
        return built[-1]
    own = shutil.which("helm")
    return Path(own) if own else None


def helm(*arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run Helm; the test is skipped, with its reason, where there is none."""
    program = find()
    if program is None:
        pytest.skip("no helm on this machine yet: the test cluster's build brings it")
    return subprocess.run([program, *arguments], check=check, capture_output=True, text=True, timeout=60)


def template(*arguments: str) -> list[dict[str, Any]]:
    """The objects that the chart makes with these arguments, as release `rel` in namespace `ops`."""
    loader = getattr(
        yaml, "CSafeLoader", yaml.SafeLoader
    )  # the CRDs are long, and the other takes half a second
    return [document for document in yaml.load_all(_rendered(*arguments), Loader=loader) if document]


@cache
def _rendered(*arguments: str) -> str:
    return helm("template", "rel", str(CHART), "--namespace", "ops", *arguments).stdout


def only(objects: list[dict[str, Any]], kind: str, name: str | None = None) -> dict[str, Any]:
    """The one object of this kind (and name). Fails where there is none, or more."""
    found = [o for o in objects if o["kind"] == kind and name in (None, o["metadata"]["name"])]
    assert len(found) == 1, f"{len(found)} of kind {kind}: {[o['metadata']['name'] for o in found]}"
    return found[0]
