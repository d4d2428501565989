"""Which releases of vLLM are measured. What is read inside an engine is no interface that anybody promised to keep."""

import os
import re
from importlib import import_module
from typing import Final

from kintsugi_engine.contract import TELEMETRY_VARIABLE

OLDEST: Final = (0, 20)
NEWEST: Final = (0, 33)
"""The newest release known. A newer one may mean other things by the same names: no figure is better than a wrong one."""


def engine_version() -> str:
    """The version of the vLLM in this process; '' where there is none."""
    try:
        return str(import_module("vllm.version").__version__)
    except (ImportError, AttributeError):
        return ""


def reason_to_be_off(version: str) -> str:
    """Why an engine of that version is not measured, in words for its log; '' where it is."""
    wish = os.environ.get(TELEMETRY_VARIABLE, "").strip().lower()
    if wish == "off":
        return f"{TELEMETRY_VARIABLE} is Off"
    if wish == "force":
        return ""
    found = re.match(r"v?(\d+)\.(\d+)", version)
    if found is None:
        return f"vLLM's version is unreadable: {version!r}"
    if not OLDEST <= (int(found[1]), int(found[2])) <= NEWEST:
        known = " to ".join(".".join(map(str, one)) for one in (OLDEST, NEWEST))
        return f"vLLM {version} is not known: only {known} are. {TELEMETRY_VARIABLE}=Force measures it all the same"
    return ""
