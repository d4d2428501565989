"""What the README tells people to write and to run must exist."""

import re
from pathlib import Path

import yaml

from kintsugi.api.objects import parse_deployment
from kintsugi.core.accept import problems_of_spec

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_fleet_in_the_readme_is_accepted() -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)
    deployment = parse_deployment(yaml.safe_load(block))
    assert problems_of_spec(deployment.spec) == ()


def test_every_command_of_make_in_the_documents_is_a_target() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for name in ("README.md", "CONTRIBUTING.md"):
        text = (ROOT / name).read_text(encoding="utf-8")
        assert set(re.findall(r"(?:^|`)make ([a-z-]+)", text, re.MULTILINE)) <= targets, name


def test_links_between_documents_lead_somewhere() -> None:
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")):
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
