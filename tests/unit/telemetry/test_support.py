"""Which engines are measured; and that the package asks for neither torch nor vLLM before it is in an engine."""

import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from kintsugi_engine import contract, plugin
from kintsugi_engine.telemetry.engine_version import engine_version, reason_to_be_off

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def _no_wish(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(contract.TELEMETRY_VARIABLE, raising=False)


@pytest.mark.parametrize("version", ["0.20.0", "0.32.0", "v0.33.1", "0.32.1.dev7+gabc", "0.32.0+cpu"])
def test_a_known_engine_is_measured(version: str) -> None:
    assert reason_to_be_off(version) == ""


@pytest.mark.parametrize("version", ["0.19.2", "0.34.0", "1.0.0", "dev", ""])
def test_an_engine_that_is_not_known_is_not_measured_unless_forced(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "vLLM" in reason_to_be_off(version)
    monkeypatch.setenv(contract.TELEMETRY_VARIABLE, "Force")
    assert reason_to_be_off(version) == ""


def test_the_telemetry_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(contract.TELEMETRY_VARIABLE, "off")
    assert reason_to_be_off("0.32.0") == "KINTSUGI_TELEMETRY is Off"


def test_the_version_is_the_engines_own(monkeypatch: pytest.MonkeyPatch) -> None:
    assert engine_version() == ""
    fake = ModuleType("vllm.version")
    fake.__version__ = "0.32.0"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vllm", ModuleType("vllm"))
    monkeypatch.setitem(sys.modules, "vllm.version", fake)
    assert engine_version() == "0.32.0"


def test_the_package_imports_without_an_engine() -> None:
    code = (
        "import sys, kintsugi_engine.plugin, kintsugi_engine.telemetry.exporter, kintsugi_engine.telemetry.pool\n"
        "kintsugi_engine.plugin.register()\n"
        "assert not {'vllm', 'torch'} & set(sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "Kintsugi telemetry is off: vLLM's version is unreadable" in done.stderr


def test_vllm_finds_the_plugin_by_its_entry_point() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["vllm.general_plugins"]["kintsugi"] == "kintsugi_engine.plugin:register"


def test_the_connector_is_registered_once_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    registered: dict[str, tuple[str, str]] = {}

    def register_connector(name: str, module: str, attribute: str) -> None:
        if name in registered:
            raise ValueError("twice")
        registered[name] = (module, attribute)

    fake: Any = SimpleNamespace(KVConnectorFactory=SimpleNamespace(register_connector=register_connector))
    monkeypatch.setattr(plugin, "import_module", lambda name: fake)
    plugin.register()
    plugin.register()
    assert registered == {
        contract.TELEMETRY_CONNECTOR: (contract.TELEMETRY_MODULE, contract.TELEMETRY_CONNECTOR)
    }
