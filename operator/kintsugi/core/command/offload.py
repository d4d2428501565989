"""KV blocks kept in host memory: `kvOffload` and profile LongContext, in the words of the engine's version."""

import json
from collections.abc import Iterable
from typing import Any, Final

from kintsugi.api.effective import Pool
from kintsugi.core.catalog.amount import bytes_of
from kintsugi.core.command.argument import Argument
from kintsugi.core.command.flags import root_of
from kintsugi.core.command.nested import object_of

GIB: Final = 2**30
PROFILE_OFFLOAD_BYTES: Final = {"LongContext": 32 * GIB}
"""Host memory of one engine by profile where nothing is said: the article's 32G of swap for long texts (A16)."""
SIZE: Final = "--kv-offloading-size"
"""GiB of one engine, all its tensor and pipeline ranks together; each data parallel rank is an engine of its own
(`vllm/config/cache.py`)."""
TRANSFER: Final = "--kv-transfer-config"
HYBRID: Final = "--no-disable-hybrid-kv-cache-manager"
"""vLLM's recipes ask for it beside every connector: V4 has several groups of KV blocks."""
CONNECTOR: Final = "OffloadingConnector"
_DEEPEST: Final = 4
"""Levels of connectors inside connectors that are looked at."""


def wanted_bytes(pool: Pool) -> int:
    """Host memory that the pool asks for, of one engine; 0 for none."""
    if pool.engine.kv_offload:
        return bytes_of(pool.engine.kv_offload.host_memory_per_engine) or 0
    return PROFILE_OFFLOAD_BYTES.get(pool.profile, 0)


def rival(extra: Iterable[Argument]) -> Argument | None:
    """The user's own `--kv-transfer-config` where it names a connector that an offload size would replace in silence
    (`VllmConfig._post_init_kv_transfer_config`); None where both go together."""
    given = [argument for argument in extra if root_of(argument.flag) == TRANSFER]
    if not given:
        return None
    connector = object_of(given, TRANSFER).get("kv_connector", CONNECTOR)
    return None if connector == CONNECTOR else given[-1]


def connector_bytes(arguments: Iterable[Argument], ranks: int) -> int:
    """Host memory of one engine that `--kv-transfer-config` itself asks for, connectors inside a connector included;
    `ranks`: those that one engine has, for sizes that are said per rank. 0 where it asks for none."""
    return _host_bytes(object_of(arguments, TRANSFER), max(1, ranks), 0)


def _host_bytes(config: Any, ranks: int, depth: int) -> int:
    if not isinstance(config, dict) or depth > _DEEPEST:
        return 0
    inner = config.get("kv_connector_extra_config")
    extra = inner if isinstance(inner, dict) else {}
    own = sum(
        value * factor
        for key, factor in (("cpu_bytes_to_use", 1), ("cpu_bytes_to_use_per_rank", ranks))
        if isinstance(value := extra.get(key), int) and not isinstance(value, bool) and value > 0
    )
    nested = extra.get("connectors")
    return own + sum(
        _host_bytes(each, ranks, depth + 1) for each in (nested if isinstance(nested, list) else ())
    )


def offload_argument(size: int, sized: bool) -> tuple[str, str]:
    """Flag and value for `size` bytes; `sized`: the engine knows `--kv-offloading-size`."""
    if sized:
        return SIZE, f"{size / GIB:.6f}".rstrip("0").rstrip(".")
    config: dict[str, Any] = {
        "kv_connector": CONNECTOR,
        "kv_role": "kv_both",
        "kv_connector_extra_config": {"cpu_bytes_to_use": size},
    }
    return TRANSFER, json.dumps(config, separators=(",", ":"))
