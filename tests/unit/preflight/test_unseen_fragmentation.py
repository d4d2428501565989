"""Who gets no telemetry is told so, once, with the cure."""

from typing import Any

import pytest

from kintsugi.core.preflight.check import check_spec
from tests.unit.pod.pods import deployment

NIGHTLY = {"image": "vllm/vllm-openai:nightly"}


def said(engine: dict[str, Any]) -> list[str]:
    """Findings that speak of the telemetry."""
    return [
        str(found) for found in check_spec(deployment({"engine": engine})) if "telemetry" in found.message
    ]


@pytest.mark.parametrize("more", [{}, {"telemetry": "Auto"}], ids=["default", "asked for"])
def test_an_image_whose_release_nobody_knows_is_one_warning(more: dict[str, Any]) -> None:
    (found,) = said(NIGHTLY | more)
    assert found.startswith("spec.engine.image is 'vllm/vllm-openai:nightly': ")
    assert "no telemetry is laid on, so that fragmentation is not seen" in found
    assert "set spec.engine.version" in found


@pytest.mark.parametrize(
    ("engine", "path"),
    [
        ({"image": "vllm/vllm-openai:v0.99.0"}, "spec.engine.image"),
        ({"version": "0.99.0"}, "spec.engine.version"),
    ],
)
def test_a_release_that_is_too_new_is_named_where_it_is_said(engine: dict[str, Any], path: str) -> None:
    (found,) = said(engine)
    assert found.startswith(
        f"{path} says 0.99.0, so no telemetry is laid on: only vLLM 0.20 to 0.33 are known"
    )


@pytest.mark.parametrize(
    "engine",
    [
        {},
        NIGHTLY | {"version": "0.32.0"},
        NIGHTLY | {"telemetry": "Image"},
        NIGHTLY | {"command": ["/start.sh"]},
        NIGHTLY | {"env": [{"name": "KINTSUGI_TELEMETRY", "value": "force"}]},
    ],
    ids=str,
)
def test_nothing_is_said_where_it_is_laid_on_or_not_wanted(engine: dict[str, Any]) -> None:
    assert said(engine) == []
