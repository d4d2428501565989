"""`kintsugi run` where it can't."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from kintsugi.__main__ import main


def test_no_cluster_is_no_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The log of the process stays as pytest has it.
    monkeypatch.setattr("kintsugi.cli.run.configure", lambda level: None)
    (tmp_path / "config").write_text("apiVersion: v1\nkind: Config\n", encoding="utf-8")
    result = CliRunner().invoke(main, ["run", "--kubeconfig", str(tmp_path / "config")])
    assert result.exit_code == 1
    assert "no cluster to look after" in result.output
