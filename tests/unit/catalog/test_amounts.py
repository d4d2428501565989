import pytest
from hypothesis import given
from hypothesis import strategies as st

from kintsugi.core.catalog.amount import bytes_of


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (1024, 1024),
        ("1024", 1024),
        ("80Gi", 80 * 2**30),
        ("80GiB", 80 * 2**30),
        ("80 GiB", 80 * 2**30),
        ("160GB", 160 * 10**9),
        ("160G", 160 * 10**9),
        ("148.66GiB", 159_622_459_556),
        ("81559MiB", 81559 * 2**20),
        ("1.5TB", 1_500 * 10**9),
        ("64kB", 64_000),
        ("512B", 512),
    ],
)
def test_a_size_is_bytes_whatever_its_unit(written: object, expected: int) -> None:
    assert bytes_of(written) == expected


@pytest.mark.parametrize(
    "written",
    [None, True, 0, -1, 1.5, "", "GiB", "-80Gi", "0", "80 apples", "80iB", "1e9", "9" * 80, ["80Gi"], {}],
)
def test_what_is_no_size_is_none(written: object) -> None:
    assert bytes_of(written) is None


@given(st.text(max_size=80) | st.integers() | st.floats() | st.booleans())
def test_anything_is_a_positive_size_or_none(written: object) -> None:
    size = bytes_of(written)

    assert size is None or size > 0
