"""Saved pages: what is written can be read, and a file that can't be read says where and how to mend it."""

import pytest

from kintsugi.core.advisor.saved import SavedInvalid, saved_head, saved_pages

PAGE = "# HELP vllm:num_requests_running x\nvllm:num_requests_running 1.0\n"


def test_what_is_written_is_read_again() -> None:
    text = saved_head("short", "e-0", 1795961743.25) + PAGE + saved_head("long", "e-1", 1795961744) + PAGE
    found = list(saved_pages(text.splitlines(keepends=True), "pages.txt"))
    assert [(p.pool, p.instance, p.time, p.text) for p in found] == [
        ("short", "e-0", 1795961743.25, PAGE),
        ("long", "e-1", 1795961744.0, PAGE),
    ]


def test_the_pool_may_be_left_out() -> None:
    (found,) = saved_pages(["# kintsugi-page time=5 instance=e-0\n", PAGE], "pages.txt")
    assert found.pool == ""


def test_an_empty_file_holds_no_page() -> None:
    assert list(saved_pages(["\n", ""], "pages.txt")) == []


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("vllm:num_requests_running 1.0\n", "pages.txt:1: a page begins without a line"),
        ("# kintsugi-page time=noon instance=e-0\n", "pages.txt:1: time= must be epoch seconds"),
        ("# kintsugi-page time=nan instance=e-0\n", "time= must be epoch seconds"),
        ("# kintsugi-page time=-5 instance=e-0\n", "time= must be epoch seconds"),
        ("# kintsugi-page time=5 pool=short\n", "pages.txt:1: instance= is missing"),
        ("# kintsugi-page\n", "time= must be epoch seconds"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_with_its_line(line: str, words: str) -> None:
    with pytest.raises(SavedInvalid, match=words):
        list(saved_pages([line], "pages.txt"))
