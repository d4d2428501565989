"""One JSON object a line, whatever is logged."""

import io
import json
import logging
from collections.abc import Iterator

import pytest

from kintsugi.adapters.jsonlog import configure


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    stream = io.StringIO()
    configure("INFO", stream)
    yield stream
    root.handlers[:] = handlers
    root.setLevel(level)


def read(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_fields_stand_beside_a_constant_message(lines: io.StringIO) -> None:
    logging.getLogger("kintsugi.x").info("write", extra={"verb": "patch", "namespace": "llm", "empty": ""})
    (line,) = read(lines)
    assert {key: line[key] for key in ("level", "logger", "message", "verb", "namespace")} == {
        "level": "INFO",
        "logger": "kintsugi.x",
        "message": "write",
        "verb": "patch",
        "namespace": "llm",
    }
    assert "empty" not in line
    assert str(line["time"]).endswith("+00:00")


def test_a_traceback_stays_on_its_line(lines: io.StringIO) -> None:
    try:
        raise ValueError("a\nb")
    except ValueError:
        logging.getLogger("kintsugi.x").exception("failed")
    (line,) = read(lines)
    assert "ValueError: a\nb" in str(line["traceback"])


def test_what_json_does_not_know_is_written_as_text(lines: io.StringIO) -> None:
    logging.getLogger("kintsugi.x").warning("odd", extra={"value": {1, 2}, "level": "mine"})
    (line,) = read(lines)
    assert line["value"] == "{1, 2}"
    assert (line["level"], line["field_level"]) == ("WARNING", "mine")


def test_less_than_the_level_is_left_out(lines: io.StringIO) -> None:
    logging.getLogger("kintsugi.x").debug("quiet")
    assert read(lines) == []
