"""The connector must never harm serving. Its base classes are stand-ins for vLLM's; `tests/engine` has the real ones."""

import abc
import importlib
import logging
import sys
import time
from collections.abc import Iterator
from enum import Enum
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from kintsugi_engine import contract
from tests.unit.telemetry.test_pool import Manager

BASE = "vllm.distributed.kv_transfer.kv_connector.v1"


class Role(Enum):
    SCHEDULER = 0
    WORKER = 1


class Base(abc.ABC):
    """Of vLLM's base class, what matters here; `novelty` is a hook that no release has."""

    def __init__(self, config: Any, role: Role, cache: Any) -> None:
        del config, role, cache

    def bind_kv_cache_manager(self, manager: Any) -> None:
        del manager

    def on_new_request(self, request: Any) -> None:
        del request

    def bind_connector_metadata(self, metadata: Any) -> None:
        del metadata

    @abc.abstractmethod
    def novelty(self) -> Any: ...


class Stats:
    def __init__(self, data: dict[str, Any] | None = None) -> None:
        self.data = data or {}


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Iterator[Any]:
    """`kintsugi_engine.connector` as a vLLM 0.32 would import it."""
    monkeypatch.setenv(contract.TELEMETRY_DIR_VARIABLE, str(tmp_path))
    monkeypatch.delenv(contract.TELEMETRY_VARIABLE, raising=False)
    names = BASE.split(".")
    for depth in range(1, len(names) + 1):
        monkeypatch.setitem(sys.modules, ".".join(names[:depth]), ModuleType(names[depth - 1]))
    base: Any = ModuleType("base")
    base.KVConnectorBase_V1, base.KVConnectorRole, base.KVConnectorMetadata = Base, Role, type("M", (), {})
    metrics: Any = ModuleType("metrics")
    metrics.KVConnectorStats, metrics.KVConnectorPromMetrics = Stats, type("P", (), {})
    version: Any = ModuleType("version")
    version.__version__ = "0.32.0"
    for name, made in {f"{BASE}.base": base, f"{BASE}.metrics": metrics, "vllm.version": version}.items():
        monkeypatch.setitem(sys.modules, name, made)
    setattr(sys.modules[BASE], "base", base)  # noqa: B010
    setattr(sys.modules[BASE], "metrics", metrics)  # noqa: B010
    monkeypatch.delitem(sys.modules, "kintsugi_engine.connector", raising=False)
    yield importlib.import_module("kintsugi_engine.connector")
    sys.modules.pop("kintsugi_engine.connector", None)


CONFIG = SimpleNamespace(
    parallel_config=SimpleNamespace(data_parallel_index=0, rank=0),
    model_config=SimpleNamespace(enable_sleep_mode=False),
    instance_id="abc",
    num_lookahead_tokens=0,
)


def test_a_release_that_asks_for_more_gets_a_connector_all_the_same(module: Any) -> None:
    made = module.KintsugiTelemetry(CONFIG, Role.SCHEDULER, None)
    assert made.novelty() is None
    assert made.off == ""


def test_a_hook_that_fails_turns_the_telemetry_off_and_answers_neutrally(
    module: Any, caplog: pytest.LogCaptureFixture
) -> None:
    made = module.KintsugiTelemetry(CONFIG, Role.SCHEDULER, None)
    with caplog.at_level(logging.ERROR, logger="vllm.kintsugi"):
        made.on_new_request(SimpleNamespace(no_id_here=True))
    assert "on_new_request failed" in made.off
    assert "Serving goes on without it" in caplog.text
    assert made.request_finished(object(), []) == (False, None)
    assert made.get_kv_connector_stats() is None
    assert len(caplog.records) == 1, "it says so once"


def test_a_cache_manager_that_is_made_otherwise_is_not_measured(module: Any) -> None:
    made = module.KintsugiTelemetry(CONFIG, Role.SCHEDULER, None)
    made.bind_kv_cache_manager(SimpleNamespace())
    assert "bind_kv_cache_manager failed" in made.off


def test_settings_that_are_not_as_expected_do_not_keep_the_engine_from_starting(module: Any) -> None:
    made = module.KintsugiTelemetry(SimpleNamespace(), Role.WORKER, None)
    assert made.off == "the engine's settings are not as expected"


def test_a_release_that_hands_out_no_pool_is_not_measured(
    module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(Base, "on_new_request")
    assert "no on_new_request" in module.KintsugiTelemetry(CONFIG, Role.SCHEDULER, None).off


def test_a_release_that_is_not_known_is_not_measured(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["vllm.version"], "__version__", "0.99.0")
    made = module.KintsugiTelemetry(CONFIG, Role.SCHEDULER, None)
    assert "0.99.0 is not known" in made.off
    assert made.build_connector_meta(None) is not None, "the workers are handed it in every step"
    assert made.get_num_new_matched_tokens(None, 0) == (0, False)


def test_samples_of_all_ranks_are_kept_and_the_newest_wins(module: Any) -> None:
    first = module.TelemetryStats({"pool": {"at": 1}, "workers": {"0": {"at": 1}}})
    second = module.TelemetryStats({"pool": {"at": 2}, "workers": {"1": {"at": 2}}})
    assert first.aggregate(second).data == {"pool": {"at": 2}, "workers": {"0": {"at": 1}, "1": {"at": 2}}}
    assert module.TelemetryStats({}).is_empty()
    assert module.TelemetryStats({"pool": {"blocks": {"active": 3}}}).reduce() == {"kv_blocks_active": 3}


def test_between_two_looks_the_counts_alone_are_shipped(module: Any) -> None:
    made = module.KintsugiTelemetry(CONFIG, Role.SCHEDULER, None)
    made.on_new_request(SimpleNamespace(request_id="a", num_computed_tokens=0, num_tokens=900))

    made.build_connector_meta(
        SimpleNamespace(num_scheduled_tokens={"a": 512}, scheduled_spec_decode_tokens={})
    )

    shipped = made.get_kv_connector_stats()
    assert made.off == ""
    assert shipped.data["counts"]["prefill"] == {"mixed": 0, "alone": 512}
    assert "pool" not in shipped.data, "there is no pool to look at here"


def test_a_scheduler_that_says_nothing_of_tokens_turns_the_telemetry_off_and_is_handed_its_metadata(
    module: Any,
) -> None:
    made = module.KintsugiTelemetry(CONFIG, Role.SCHEDULER, None)
    assert isinstance(made.build_connector_meta(SimpleNamespace()), module.TelemetryMetadata)
    assert "build_connector_meta failed" in made.off


@pytest.mark.parametrize("size", ["data_parallel_size", "pipeline_parallel_size"])
def test_where_ranks_or_stages_wait_for_each_other_prompts_are_not_counted(module: Any, size: str) -> None:
    parallel = SimpleNamespace(data_parallel_index=0, rank=0, **{size: 2})
    config = SimpleNamespace(**{**vars(CONFIG), "parallel_config": parallel})
    made = module.KintsugiTelemetry(config, Role.SCHEDULER, None)
    made.on_new_request(SimpleNamespace(request_id="a", num_computed_tokens=0, num_tokens=900))

    made.build_connector_meta(
        SimpleNamespace(num_scheduled_tokens={"a": 512}, scheduled_spec_decode_tokens={})
    )

    assert made.get_kv_connector_stats() is None
    assert made.off == ""


def test_what_is_off_tells_nothing_more_so_that_its_last_word_grows_old(
    module: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setattr("kintsugi_engine.telemetry.pool.IDLE_PERIOD", 0.02)
    made = module.KintsugiTelemetry(CONFIG, Role.SCHEDULER, None)
    made.bind_kv_cache_manager(Manager())
    deadline = time.monotonic() + 5
    while not list(tmp_path.glob("pool-*.json")) and time.monotonic() < deadline:
        time.sleep(0.01)
    made.on_new_request(SimpleNamespace(no_id_here=True))
    assert made.off
    time.sleep(0.1)
    (path,) = tmp_path.glob("pool-*.json")
    last = path.read_text()
    time.sleep(0.3)
    assert path.read_text() == last
