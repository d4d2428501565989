"""`python -m tests.unit.command.write_golden` writes the golden files of the engine's command anew."""

from tests.unit.command.cases import CASES, GOLDEN, golden_text, path_of


def main() -> None:
    """Write every file, and take away what belongs to no case any more."""
    GOLDEN.mkdir(exist_ok=True)
    for name in CASES:
        path_of(name).write_text(golden_text(name))
    for stale in set(GOLDEN.glob("*.txt")) - {path_of(name) for name in CASES}:
        stale.unlink()


if __name__ == "__main__":
    main()
