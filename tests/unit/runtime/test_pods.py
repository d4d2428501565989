"""Pods as instances: each version parsed once, nothing kept of a pod that is gone."""

from typing import Any

import pytest

from kintsugi.adapters.kube import parse
from kintsugi.runtime.pods import Pods


def pod(uid: str, version: str, ready: str = "True", model: str = "m") -> dict[str, Any]:
    return {
        "metadata": {"name": f"pod-{uid}", "uid": uid, "resourceVersion": version},
        "spec": {"containers": [{"name": "engine", "args": ["--served-model-name", model]}]},
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    }


@pytest.fixture
def parses(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The pods that were parsed, by UID, in order."""
    seen: list[str] = []
    plain = parse.instance

    def counted(raw: dict[str, Any], *rest: Any) -> Any:
        seen.append(raw["metadata"].get("uid", ""))
        return plain(raw, *rest)

    monkeypatch.setattr(parse, "instance", counted)
    return seen


def test_a_pod_that_did_not_change_is_parsed_once(parses: list[str]) -> None:
    pods = Pods()
    first = pods.parsed([pod("a", "1"), pod("b", "2")])
    assert pods.parsed([pod("b", "2"), pod("a", "1")]) == first[::-1]
    assert parses == ["a", "b"]


def test_a_changed_pod_is_parsed_anew() -> None:
    pods = Pods()
    assert pods.parsed([pod("a", "1")])[0].instance.ready
    changed = pods.parsed([pod("a", "2", ready="False", model="other")])[0]
    assert not changed.instance.ready
    assert changed.model == "other"
    assert pods.parsed([pod("a", "1")])[0].instance.ready


def test_another_pod_with_the_same_version_is_another_pod() -> None:
    pods = Pods()
    pods.parsed([pod("a", "1")])
    assert not pods.parsed([pod("b", "1", ready="False")])[0].instance.ready


def test_a_pod_that_is_gone_is_forgotten(parses: list[str]) -> None:
    pods = Pods()
    pods.parsed([pod("a", "1"), pod("b", "1")])
    pods.parsed([pod("b", "1")])
    assert len(pods) == 1
    pods.parsed([pod("a", "1"), pod("b", "1")])
    assert parses == ["a", "b", "a"]


@pytest.mark.parametrize("missing", ["uid", "resourceVersion"])
def test_an_object_that_cannot_be_told_from_its_next_version_is_parsed_each_time(missing: str) -> None:
    pods = Pods()
    for ready in ("True", "False"):
        odd = pod("a", "1", ready=ready)
        del odd["metadata"][missing]
        assert pods.parsed([odd])[0].instance.ready == (ready == "True")
