"""The table of kinds in the documentation: `python -m tests.unit.classify.table` writes it anew."""

import re
from pathlib import Path

from kintsugi.core.classify import kinds

PAGE = Path(__file__).parents[3] / "docs" / "start-failures.md"
BEGIN, END = "<!-- kinds -->\n", "<!-- /kinds -->"
TRIES = {
    "Never": "nobody, until the spec changes",
    "BackOff": "the same pod, with growing pauses",
    "ByKubelet": "Kubernetes, by itself",
}


def render() -> str:
    """One row a kind."""
    rows = [
        f"| `{kind.name}` | `{kind.field}` | {TRIES[kind.retry.value]} | {'yes' if kind.recreate_helps else 'no'} "
        f"| {kind.cure.replace('{at}', f'spec.{kind.field}')} |"
        for kind in kinds.KINDS
    ]
    head = "| kind | field to look at | who tries again | may healing replace it | what to do |\n|---|---|---|---|---|\n"
    return head + "\n".join(rows) + "\n"


def with_table(page: str) -> str:
    """`page` with the table of now."""
    return re.sub(f"{BEGIN}.*?{END}", lambda _: BEGIN + render() + END, page, flags=re.DOTALL)


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
