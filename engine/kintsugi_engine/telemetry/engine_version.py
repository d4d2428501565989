"""Which releases of vLLM are measured. What is read inside an engine is no interface that anybody promised to keep."""

import os
import re
from importlib import import_module

from kintsugi_engine.contract import TELEMETRY_NEWEST, TELEMETRY_OLDEST, TELEMETRY_VARIABLE


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
    if not TELEMETRY_OLDEST <= (int(found[1]), int(found[2])) <= TELEMETRY_NEWEST:
        known = " to ".join(".".join(map(str, one)) for one in (TELEMETRY_OLDEST, TELEMETRY_NEWEST))
        return f"vLLM {version} is not known: only {known} are. {TELEMETRY_VARIABLE}=Force measures it all the same"
    return ""
