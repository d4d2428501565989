"""The telemetry's part of vLLM's command: a connector that moves no KV, and a path that asks for compaction.

What a user wrote stays byte for byte: beside a `--kv-transfer-config` of the user's nothing is added, since the connector
would have to go into it (`docs/fragmentation.md` says how).
"""

import json
from typing import Any, Final

from kintsugi.api.effective import Pool
from kintsugi.core.catalog.version import EngineVersion
from kintsugi.core.command.argument import Argument, Command
from kintsugi.core.command.choice import Choice
from kintsugi.core.command.flags import canonical, root_of
from kintsugi.core.command.offload import CONNECTOR, GIB, HYBRID, SIZE, TRANSFER
from kintsugi.core.command.render import DEFAULT
from kintsugi.core.command.sheet import Sheet
from kintsugi_engine.contract import (
    COMPACT_MIDDLEWARE,
    TELEMETRY_CONNECTOR,
    TELEMETRY_MODULE,
    TELEMETRY_NEWEST,
    TELEMETRY_OLDEST,
    TELEMETRY_ROLE,
    TELEMETRY_VARIABLE,
)

MIDDLEWARE: Final = "--middleware"
HEADLESS: Final = "--headless"
_MANAGER: Final = canonical(HYBRID)
_CONFIG: Final = {
    "kv_connector": TELEMETRY_CONNECTOR,
    "kv_connector_module_path": TELEMETRY_MODULE,
    "kv_role": TELEMETRY_ROLE,
}


def unsure(pool: Pool, choice: Choice) -> str:
    """Why the pool's engine might not start with flags of ours, in words that continue the path of its version; '' where
    it does.

    An engine ends at a flag that it does not know, so a release must be named, and be one of those that were read.
    `KINTSUGI_TELEMETRY=Force` in `engine.env`, which has the engine side measure any release, counts as the user's word.
    """
    if any(
        v.name == TELEMETRY_VARIABLE and (v.value or "").strip().lower() == "force" for v in pool.engine.env
    ):
        return ""
    version = choice.version
    known = " to ".join(f"{major}.{minor}" for major, minor in (TELEMETRY_OLDEST, TELEMETRY_NEWEST))
    if version is None:
        return f"names no release of vLLM, so no telemetry is laid on: only {known} are known"
    if not TELEMETRY_OLDEST <= (version.major, version.minor) <= TELEMETRY_NEWEST:
        return f"says {version}, so no telemetry is laid on: only vLLM {known} are known"
    return ""


def measured(command: Command, choice: Choice) -> Command:
    """`command` with the telemetry switched on, or as it is where that can't be: an old release, no page to show it on,
    a connector of the user's."""
    if choice.version is not None and choice.version < EngineVersion(*TELEMETRY_OLDEST):
        return command
    if command.on("--disable-log-stats", False):
        return command
    dropped = {TRANSFER, SIZE}
    if any(root_of(argument.flag) in dropped for argument in choice.extra):
        return command
    theirs, size = command.get(TRANSFER), command.get(SIZE)
    kept = [argument for argument in command.arguments if root_of(argument.flag) not in dropped]
    sheet = Sheet()
    sheet.say(TRANSFER, json.dumps(_config(theirs, size), separators=(",", ":")), DEFAULT)
    if command.get(_MANAGER) is None and choice.understood(_MANAGER):
        sheet.say(HYBRID, None, DEFAULT)
    if command.get(HEADLESS) is None:
        sheet.say(MIDDLEWARE, COMPACT_MIDDLEWARE, DEFAULT)
    first = len(kept) - len(choice.extra)  # what the user wrote comes last
    return Command((*kept[:first], *sheet.without((), ()), *kept[first:]))


def _config(theirs: Argument | None, size: Argument | None) -> dict[str, Any]:
    """Our connector alone, or beside the operator's own for KV in host memory.

    There the size moves into that connector: vLLM would put it in the place of any other (`VllmConfig`).
    """
    if size is not None:
        beside: Any = {
            "kv_connector": CONNECTOR,
            "kv_role": "kv_both",
            "kv_connector_extra_config": {"cpu_bytes_to_use": round(float(size.value or 0) * GIB)},
        }
    elif theirs is not None:
        beside = json.loads(theirs.value or "{}")
    else:
        return dict(_CONFIG)
    return {
        "kv_connector": "MultiConnector",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {"connectors": [beside, dict(_CONFIG)]},
    }
