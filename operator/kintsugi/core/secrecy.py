"""What may be shown of words that hold secrets, and whether a token can be sent at all."""

import re
from typing import Final

_SENDABLE: Final = re.compile(r"[\x21-\x7e]+")
_USERINFO: Final = re.compile(r"(://|^)\S*@")


def sendable(token: str) -> bool:
    """Whether it can stand in a header: no white space, no control character, nothing beyond ASCII."""
    return _SENDABLE.fullmatch(token) is not None


def shown(text: str) -> str:
    """An URL, or words with URLs in them, without users and passwords."""
    return _USERINFO.sub(r"\1", text)
