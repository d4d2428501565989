"""The entry point `vllm.general_plugins`: vLLM calls `register` once in each of its processes."""

import logging
from importlib import import_module
from typing import Final

from kintsugi_engine.contract import TELEMETRY_CONNECTOR, TELEMETRY_MODULE
from kintsugi_engine.telemetry import allocator
from kintsugi_engine.telemetry.engine_version import engine_version, reason_to_be_off

_LOG: Final = logging.getLogger("vllm.kintsugi")


def register() -> None:
    """Make the telemetry known by its name, and begin to watch the allocator. Never raises, may be called again."""
    _register_connector()
    reason = reason_to_be_off(engine_version())
    if reason:
        _LOG.error("Kintsugi telemetry is off: %s. Serving goes on without it.", reason)
        return
    allocator.start_in_workers()


def _register_connector() -> None:
    """MultiConnector finds the statistics of its parts by their names alone."""
    try:
        factory = import_module("vllm.distributed.kv_transfer.kv_connector.factory").KVConnectorFactory
        factory.register_connector(TELEMETRY_CONNECTOR, TELEMETRY_MODULE, TELEMETRY_CONNECTOR)
    except ValueError:
        pass  # registered already
    except (ImportError, AttributeError, TypeError) as error:
        _LOG.error("Kintsugi telemetry cannot be registered with this vLLM: %s", error)
