"""`build/bench.json`: what the benchmarks measured, one key each, merged so that any of them may run alone."""

import json
from pathlib import Path
from typing import Final

REPORT: Final = Path(__file__).parents[2] / "build" / "bench.json"


def note(name: str, value: float | dict[str, float]) -> None:
    """Write one figure, or a few that belong together, rounded to three digits behind the point."""
    REPORT.parent.mkdir(exist_ok=True)
    known = json.loads(REPORT.read_text(encoding="utf-8")) if REPORT.exists() else {}
    known[name] = (
        {key: round(each, 3) for key, each in value.items()} if isinstance(value, dict) else round(value, 3)
    )
    REPORT.write_text(json.dumps(known, indent=2, sort_keys=True) + "\n", encoding="utf-8")
