"""The flags of each release of the engine, packed: one line a flag with the releases that have it."""

from typing import Final

from kintsugi.core.catalog.version import EngineVersion, parse_version

_RELEASES: Final = "releases"


def flag_lists(packed: str) -> tuple[tuple[EngineVersion, frozenset[str]], ...]:
    """Flags by release, oldest first.

    The first line that is no comment names the releases, oldest first; every other one a flag and its spans of releases by
    their place in that line: `--seed 0-15`, `--swap-space 0-2,4`.
    """
    lines = [line.split() for line in packed.splitlines() if line.strip() and not line.startswith("#")]
    if not lines or lines[0][0] != _RELEASES:
        return ()
    versions = [version for text in lines[0][1:] if (version := parse_version(text))]
    flags: list[set[str]] = [set() for _ in versions]
    for flag, spans in lines[1:]:
        for span in spans.split(","):
            first, _, last = span.partition("-")
            for index in range(int(first), int(last or first) + 1):
                flags[index].add(flag)
    return tuple((version, frozenset(known)) for version, known in zip(versions, flags, strict=True))
