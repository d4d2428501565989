"""The kinds and their page."""

from kintsugi.core.classify import kinds
from tests.unit.classify.table import PAGE, with_table


def test_the_page_has_the_table_of_now() -> None:
    """`python -m tests.unit.classify.table` writes it."""
    page = PAGE.read_text(encoding="utf-8")
    assert with_table(page) == page
    assert all(f"`{kind.name}`" in page for kind in kinds.KINDS)


def test_every_kind_has_a_name_of_its_own_and_a_cure() -> None:
    assert len(kinds.KIND_NAMES) == len(kinds.KINDS)
    assert all(kind.name.isalnum() and kind.name[0].isupper() and kind.cure for kind in kinds.KINDS)


def test_what_the_spec_is_to_blame_for_is_never_tried_again_and_never_recreated() -> None:
    blamed = [kind for kind in kinds.KINDS if kind.blames_spec]
    assert blamed
    assert all(kind.retry.value == "Never" and not kind.recreate_helps for kind in blamed)
