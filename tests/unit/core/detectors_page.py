"""The tables of docs/detectors.md that come from the code: `python -m tests.unit.core.detectors_page` writes them."""

from collections.abc import Iterable
from pathlib import Path

from kintsugi.core.classify.kinds import KINDS
from kintsugi.core.explain.findings import FINDING_WORDS
from kintsugi.core.metric_contract import NEEDS, needed_by
from kintsugi.core.series import TABLE

PAGE = Path(__file__).parents[3] / "docs" / "detectors.md"


def page() -> str:
    """The page with its tables as they should be."""
    text = PAGE.read_text(encoding="utf-8")
    for name, table in (("findings", findings()), ("contract", contract())):
        begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
        before, _, rest = text.partition(begin)
        text = before + begin + table + end + rest.partition(end)[2]
    return text


def findings() -> str:
    """Every finding but those of failed starts, with what it means and what follows."""
    failed = {kind.name for kind in KINDS}
    rows = [
        (f"`{reason}`", words.means, words.then)
        for reason, words in FINDING_WORDS.items()
        if reason not in failed
    ]
    return _table(("finding", "means", "what follows"), rows)


def contract() -> str:
    """Every series of an engine's own page that a detector cannot do without."""
    needed = dict.fromkeys(signal for signals in NEEDS.values() for signal in signals)
    rows = []
    for signal in needed:
        newest, *older = TABLE[signal].names
        before = ", ".join(f"`{name.metric}` before {name.removed_in}" for name in older)
        by = ", ".join(f"`{detector.value}`" for detector in needed_by(signal))
        rows.append((f"`{newest.metric}`", before, by))
    return _table(("series", "older names that are read too", "needed by"), rows)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [" | ".join(head), *(" | ".join(row) for row in rows)]
    first, *others = [f"| {line} |" for line in lines]
    return "\n".join((first, "|" + "---|" * len(head), *others)) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
