"""Fails where a Python module is longer than the limit given: a module too long is two modules."""

import subprocess
import sys


def too_long(limit: int) -> list[tuple[str, int]]:
    """Tracked or new Python files of more than `limit` lines, with their lengths."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.py"],
        check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    found = []
    for name in filter(None, listed.split("\0")):
        try:
            with open(name, encoding="utf-8") as file:
                lines = sum(1 for _ in file)
        except FileNotFoundError:  # deleted and not yet committed
            continue
        if lines > limit:
            found.append((name, lines))
    return found


def main() -> int:
    limit = int(sys.argv[1])
    found = too_long(limit)
    for name, lines in found:
        print(f"{name}: {lines} lines, more than {limit}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
