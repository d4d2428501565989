"""Writes the chart's README from the comments of values.yaml: `python -m tests.unit.chart.readme`."""

import json

from tests.unit.chart.values import CHART, documented

INTRODUCTION = """\
# Kintsugi

Installs the operator that deploys DeepSeek-V4 on vLLM and replaces sick engines.

    helm install kintsugi helm/kintsugi --namespace kintsugi-system --create-namespace

- The CustomResourceDefinitions are templates, so `helm upgrade` upgrades them; they are kept on uninstall, and with
  them every fleet. A release installed over kept definitions needs Helm's `--take-ownership`, if its name or
  namespace differs.
- The operator runs under the *restricted* Pod Security level: not as root, on a read-only root filesystem.
- An upgrade of the operator moves no engine.

## Values

| value | default | meaning |
|---|---|---|
"""


def render() -> str:
    """The whole README.md. Written by `make generate`; a test compares."""
    rows = [f"| `{value.path}` | `{json.dumps(value.default)}` | {value.text} |" for value in documented()]
    return INTRODUCTION + "\n".join(rows) + "\n"


if __name__ == "__main__":
    (CHART / "README.md").write_text(render(), encoding="utf-8")
