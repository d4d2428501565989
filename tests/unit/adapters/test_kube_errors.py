"""Every status that an API server answers, and the error of the port that it stands for."""

import json

import pytest

from kintsugi.adapters.kube.errors import error_of
from kintsugi.ports.errors import (
    AlreadyExists,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    PortError,
    Refused,
    Unavailable,
)


def answer(reason: str = "", message: str = "no", **details: object) -> bytes:
    return json.dumps({"kind": "Status", "reason": reason, "message": message, "details": details}).encode()


@pytest.mark.parametrize(
    ("status", "body", "write", "expected"),
    [
        (400, answer("BadRequest"), True, Invalid),
        (401, answer("Unauthorized"), False, Forbidden),
        (403, answer("Forbidden"), False, Forbidden),
        (404, answer("NotFound"), False, NotFound),
        (405, answer("MethodNotAllowed"), True, Invalid),
        (406, b"", False, Invalid),
        (408, b"", False, Unavailable),
        (409, answer("AlreadyExists"), True, AlreadyExists),
        (409, answer("Conflict"), True, Conflict),
        (410, answer("Expired"), False, NotFound),
        (413, b"too large", True, Invalid),
        (415, b"", True, Invalid),
        (422, answer("Invalid"), True, Invalid),
        (422, answer("Invalid", causes=[{"field": "metadata.uid"}]), True, Conflict),
        (429, answer("TooManyRequests"), True, Refused),
        (429, answer("TooManyRequests", "storage is (re)initializing"), False, Unavailable),
        (500, answer("InternalError"), True, Unavailable),
        (500, answer("", "This pod has more than one PodDisruptionBudget, which …"), True, Refused),
        (502, b"<html>bad gateway</html>", False, Unavailable),
        (503, b"", False, Unavailable),
        (504, answer("Timeout"), True, Unavailable),
        (301, b"", False, Unavailable),
    ],
)
def test_a_status_stands_for_one_error(
    status: int, body: bytes, write: bool, expected: type[PortError]
) -> None:
    error = error_of(status, body, {}, "patch pods llm/a", write)
    assert type(error) is expected
    assert str(error).startswith(f"patch pods llm/a: {status}")


def test_a_refusal_says_when_to_ask_again() -> None:
    by_header = error_of(429, answer("TooManyRequests"), {"Retry-After": "10"}, "call", True)
    by_body = error_of(429, answer("TooManyRequests", retryAfterSeconds=3), {}, "call", True)
    neither = error_of(429, answer("TooManyRequests"), {"Retry-After": "Wed, 21 Oct"}, "call", True)
    assert [getattr(each, "retry_after", "?") for each in (by_header, by_body, neither)] == [10.0, 3.0, None]


def test_a_long_page_of_a_proxy_is_cut() -> None:
    assert len(str(error_of(502, b"x" * 100_000, {}, "get pods", False))) <= 600
