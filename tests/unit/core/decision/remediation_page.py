"""The tables of docs/remediation.md: `python -m tests.unit.core.decision.remediation_page` writes them."""

from pathlib import Path

from kintsugi.core.explain.gates import GATE_WORDS
from kintsugi.core.phases import table

PAGE = Path(__file__).parents[4] / "docs" / "remediation.md"


def page() -> str:
    """The page with its tables as they should be."""
    text = PAGE.read_text(encoding="utf-8")
    for name, rows in (("transitions", table()), ("gates", gates())):
        begin, end = f"<!-- {name} -->\n", f"\n<!-- /{name} -->"
        before, _, rest = text.partition(begin)
        text = before + begin + rows + end + rest.partition(end)[2]
    return text


def gates() -> str:
    """Every gate with what its being closed means, and what opens it."""
    rows = [f"| `{name}` | {words.means} | {words.opens} |" for name, words in GATE_WORDS.items()]
    return "\n".join(["| gate | closed: | opened by |", "|---|---|---|", *rows])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
