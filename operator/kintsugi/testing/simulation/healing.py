"""The healing settings of the two runs of `kintsugi simulate`, from those that a user wrote."""

from collections.abc import Mapping
from typing import Any, Final

from kintsugi.api.healing import ADVICE_ONLY

DEFAULT_MODE: Final = "Act"


def acting(healing: Mapping[str, Any]) -> dict[str, Any]:
    """Settings under which healing heals: `mode: Act` and nothing pauses. A trigger's own mode stays as written."""
    return {key: value for key, value in healing.items() if key != "pauseRequests"} | {"mode": "Act"}


def observing(healing: Mapping[str, Any]) -> dict[str, Any]:
    """Settings under which nobody is removed, whatever a trigger says for itself."""
    triggers = {name: _without_mode(trigger) for name, trigger in (healing.get("triggers") or {}).items()}
    return {**healing, **({"triggers": triggers} if triggers else {}), "mode": "Observe"}


def forced(healing: Mapping[str, Any]) -> list[str]:
    """What the column `healing` takes otherwise than it is written, and which triggers it leaves idle: sentences."""
    said = []
    mode = healing.get("mode", DEFAULT_MODE)
    if mode != "Act":
        said.append(
            f"the column healing runs with healing.mode Act, to show its worth; the policy says {mode}"
        )
    if healing.get("pauseRequests"):
        said.append("the column healing runs without healing.pauseRequests, which would hold it all the time")
    idle = {
        name: trigger["mode"]
        for name, trigger in (healing.get("triggers") or {}).items()
        if name not in ADVICE_ONLY and (trigger.get("mode") or "Act") != "Act"
    }
    if idle:
        named = ", ".join(f"{name} ({mode})" for name, mode in sorted(idle.items()))
        said.append(
            f"as the policy says of them, these triggers never act, and what they find stays: {named}"
        )
    return said


def _without_mode(trigger: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in trigger.items() if key != "mode"}
