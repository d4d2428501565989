"""What the documents tell people to write, run and look for must exist."""

import re
from pathlib import Path
from typing import Any

import click
import pytest

from kintsugi.__main__ import COMMANDS, main
from kintsugi.api.objects import DeepSeekV4Deployment, Remediation
from kintsugi.api.structural import PRESERVE, structural
from kintsugi.core.preflight.registry import names

DOCS = Path(__file__).parents[2] / "docs"
README = Path(__file__).parents[2] / "README.md"
ARTICLE = (DOCS / "article.md").read_text(encoding="utf-8")
PAGES = [README, *sorted(DOCS.glob("*.md"))]
SCHEMAS = (structural(DeepSeekV4Deployment), structural(Remediation))

WORDS_OF_OURS = {
    "OrphanedBlocks",
    "Absent",
    "HighThroughput",
    "LongContext",
    "Balanced",
    "DeepSeekV4Deployment",
}


def section(claim: str) -> str:
    found = re.search(rf"^### {claim} · .*?(?=^##|\Z)", ARTICLE, re.MULTILINE | re.DOTALL)
    assert found, f"{claim} has no section"
    return found[0]


@pytest.mark.parametrize("claim", [f"A{number}" for number in range(1, 25)])
def test_every_claim_says_what_is_done_about_it(claim: str) -> None:
    assert re.search(r"\*\*Kintsugi|not built", section(claim)), claim


def test_every_rule_that_the_article_names_exists() -> None:
    named = set(re.findall(r"`([A-Z][a-z]+(?:[A-Z][a-z0-9]*)+)`", ARTICLE)) - WORDS_OF_OURS
    assert named
    assert named <= names(), named - names()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_field_in_the_documents_is_in_the_schema(page: Path) -> None:
    for path in re.findall(r"`((?:spec|status)\.[A-Za-z0-9_.\[\]]+)", page.read_text(encoding="utf-8")):
        assert in_schema(path.rstrip(".")), f"{page.name}: {path}"


def in_schema(path: str) -> bool:
    """Whether one of the two kinds has the field."""
    return any(has(schema, path) for schema in SCHEMAS)


def has(schema: Any, path: str) -> bool:
    node: Any = schema
    for step in re.findall(r"[A-Za-z0-9_]+|\[[^\]]*\]", path):
        if node.get(PRESERVE):
            return True
        if node.get("type") == "array":
            node = node["items"]
        if step.startswith("["):
            continue
        node = node.get("properties", {}).get(step) or node.get("additionalProperties")
        if not isinstance(node, dict):
            return False
    return True


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_in_the_documents_exists_with_its_options(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for line in re.findall(r"(?:`|^    |^)kintsugi ([a-z-]+(?: [^`\n#|]*)?)", text, re.MULTILINE):
        name, *rest = line.split()
        assert name in COMMANDS, f"{page.name}: kintsugi {line}"
        command = main.get_command(click.Context(main), name)
        assert command is not None
        known = {option for each in command.params for option in each.opts} | {"--help"}
        said = {word.partition("=")[0] for word in rest if word.startswith("-") and word != "-"}
        assert said <= known, f"{page.name}: kintsugi {line}: {said - known}"
