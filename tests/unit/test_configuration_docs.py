import re
from pathlib import Path

from kintsugi.runtime.settings import Settings

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"


def rows() -> dict[str, str]:
    """Variable → default, as the page's table says."""
    text = PAGE.read_text(encoding="utf-8")
    return dict(re.findall(r"^\| `(KINTSUGI_\w+)` \| `?([^|`]*?)`? \|", text, re.MULTILINE))


def test_the_page_lists_every_setting_and_no_other() -> None:
    assert set(rows()) == {f"KINTSUGI_{name.upper()}" for name in Settings.model_fields}


def test_the_page_tells_the_defaults() -> None:
    documented = {name: value for name, value in rows().items() if name != "KINTSUGI_WATCH_NAMESPACES"}
    environment = Settings.from_environment(documented)
    assert environment == Settings.from_environment({})
