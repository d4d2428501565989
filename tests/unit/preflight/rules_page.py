"""Writes docs/rules.md from the rules: `python -m tests.unit.preflight.rules_page`."""

from pathlib import Path

from kintsugi.core.preflight.page import page

PAGE = Path(__file__).parents[3] / "docs" / "rules.md"

if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
