"""The watch goes to the same API server as every other call of the operator."""

import logging
from typing import Any

import kopf
import pytest

from kintsugi.runtime import handlers


def login() -> kopf.ConnectionInfo:
    registry = handlers.registry_for(lambda key, gone: None)
    (handler,) = registry._activities.get_all_handlers()
    log_in: Any = handler.fn
    found = log_in(logger=logging.getLogger(), settings=handlers.operator_settings())
    assert isinstance(found, kopf.ConnectionInfo)
    return found


def test_inside_a_cluster_it_needs_no_dns(monkeypatch: pytest.MonkeyPatch) -> None:
    inside = kopf.ConnectionInfo(server="https://kubernetes.default.svc", scheme="Bearer", token="t")

    class Configuration:
        host = "https://10.0.0.7:6443"

    monkeypatch.setattr(kopf, "login_with_service_account", lambda **_: inside)
    monkeypatch.setattr(handlers, "load_configuration", Configuration)
    assert (login().server, login().token) == ("https://10.0.0.7:6443", "t")


def test_outside_the_kubeconfig_says_where(monkeypatch: pytest.MonkeyPatch) -> None:
    outside = kopf.ConnectionInfo(server="https://127.0.0.1:7000")
    monkeypatch.setattr(kopf, "login_with_service_account", lambda **_: None)
    monkeypatch.setattr(kopf, "login_with_kubeconfig", lambda **_: outside)
    assert login() is outside
