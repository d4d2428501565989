from typing import Any

import pytest

from kintsugi.core.preflight.paths import existing, locate, value_at, written

RAW: dict[str, Any] = {
    "spec": {
        "pools": [{"name": "a"}, {"name": "b", "labels": {"kintsugi.dev/pool": "x", "a[0]": 1, "": 2}}],
        "a": {"b.c": 3},
        "a.b": {"c": 4},
    }
}


@pytest.mark.parametrize(
    ("path", "location"),
    [
        ("", ()),
        (".", ()),
        ("spec", ("spec",)),
        ("spec.pools[1].name", ("spec", "pools", 1, "name")),
        ("spec.pools[1].labels[kintsugi.dev/pool]", ("spec", "pools", 1, "labels", "kintsugi.dev/pool")),
        ("spec.pools[1].labels.kintsugi.dev/pool", ("spec", "pools", 1, "labels", "kintsugi.dev/pool")),
        ("spec.pools[1].labels.a[0]", ("spec", "pools", 1, "labels", "a[0]")),
        ("spec.pools[1].labels.", ("spec", "pools", 1, "labels", "")),
    ],
)
def test_a_path_leads_to_its_value(path: str, location: tuple[str | int, ...]) -> None:
    assert locate(RAW, path) == (location, True)


def test_keys_with_dots_are_found_by_trying() -> None:
    assert value_at(RAW, "spec.a.b.c") in (3, 4)


@pytest.mark.parametrize(
    ("path", "nearest"),
    [
        ("spec.hardware.gpu", "spec"),
        ("spec.pools[2].name", "spec.pools"),
        ("spec.pools[0].engine.args", "spec.pools[0]"),
        ("status", "."),
        ("spec.pools[²]", "spec.pools"),
        ("spec.pools[-1]", "spec.pools"),
    ],
)
def test_a_path_that_leads_nowhere_ends_at_the_nearest_that_is_there(path: str, nearest: str) -> None:
    assert locate(RAW, path)[1] is False
    assert existing(RAW, path) == nearest
    assert value_at(RAW, path) is None


def test_a_location_is_written_as_people_write_it() -> None:
    assert written(("spec", "pools", 0, "name")) == "spec.pools[0].name"
    assert written(()) == "."
