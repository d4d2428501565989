"""Versions of the engine, read from what people write: a tag, a digest, a field."""

import re
from dataclasses import dataclass
from typing import Final

_RELEASE: Final = re.compile(r"^v?(\d+)\.(\d+)(?:\.(\d+))?(?![\d.])")


@dataclass(frozen=True, slots=True, order=True)
class EngineVersion:
    """A release of vLLM; suffixes such as `rc1`, `.post1` and `-cu129` do not count."""

    major: int
    minor: int
    patch: int = 0

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"


def parse_version(text: str) -> EngineVersion | None:
    """`v0.27.1-cu129` as 0.27.1; None where the text names no release (`nightly`, `latest`, `deepseekv4-cu130`)."""
    found = _RELEASE.match(text.strip())
    return EngineVersion(int(found[1]), int(found[2]), int(found[3] or 0)) if found else None


def version_of(image: str | None, written: str | None) -> EngineVersion | None:
    """The engine's version: `engine.version` where written, else the image's tag; None where neither says it."""
    if written:
        return parse_version(written)
    name = (image or "").partition("@")[0]
    _, colon, tag = name.rpartition(":")
    return parse_version(tag) if colon and "/" not in tag else None
