"""The per-rank files: written whole, read by their own engine alone, removed when they are old."""

import json
import os
from pathlib import Path

import pytest

from kintsugi_engine import contract
from kintsugi_engine.telemetry.rankfile import (
    STALE_SECONDS,
    RankFile,
    folder,
    last_records,
    read,
    remove_stale,
)


def test_a_file_tells_whose_sample_it_is(tmp_path: Path) -> None:
    RankFile(tmp_path / "new", "abc", "pool", "0").write({"at": 5.0})
    (found,) = read(tmp_path / "new", "abc")
    assert found == {
        "format": 1,
        "instance": "abc",
        "kind": "pool",
        "rank": "0",
        "pid": os.getpid(),
        "at": 5.0,
    }


def test_a_file_is_replaced_and_no_scratch_stays(tmp_path: Path) -> None:
    file = RankFile(tmp_path, "abc", "pool", "../0")
    file.write({"at": 1.0})
    file.write({"at": 2.0})
    assert [one["at"] for one in read(tmp_path, "abc")] == [2.0]
    assert [path.name for path in tmp_path.iterdir()] == ["pool-.._0-abc.json"]


def test_only_the_own_engine_and_its_data_parallel_ranks_are_read(tmp_path: Path) -> None:
    for instance in ("abc", "abc_dp1", "abcd", "other"):
        RankFile(tmp_path, instance, "pool", "0").write({"at": 1.0})
    assert sorted(one["instance"] for one in read(tmp_path, "abc")) == ["abc", "abc_dp1"]


def test_what_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "half.json").write_text('{"format": 1, "inst')
    (tmp_path / "list.json").write_text("[]")
    (tmp_path / "newer.json").write_text(json.dumps({"format": 2, "instance": "abc"}))
    assert list(read(tmp_path, "abc")) == []
    assert list(read(tmp_path / "none", "abc")) == []


def test_files_of_engines_that_ended_long_ago_are_removed(tmp_path: Path) -> None:
    for instance in ("abc", "old", "young"):
        RankFile(tmp_path, instance, "pool", "0").write({"at": 1.0})
    now = (tmp_path / "pool-0-old.json").stat().st_mtime + STALE_SECONDS + 60
    os.utime(tmp_path / "pool-0-young.json", (now, now))
    remove_stale(tmp_path, "abc", now)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pool-0-abc.json", "pool-0-young.json"]


def test_the_folder_is_named_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(contract.TELEMETRY_DIR_VARIABLE, "/somewhere")
    assert folder() == Path("/somewhere")
    monkeypatch.delenv(contract.TELEMETRY_DIR_VARIABLE)
    assert folder().name == f"kintsugi-telemetry-{os.getuid()}"


def test_the_last_record_of_each_rank_is_told_with_its_age_whichever_process_wrote_it(tmp_path: Path) -> None:
    RankFile(tmp_path, "before", "pool", "0").write({"at": 10.0, "steps": 5})
    RankFile(tmp_path, "now", "pool", "0").write({"at": 90.0, "steps": 7})
    RankFile(tmp_path, "now", "allocator", "0-1").write({"at": 99.5, "fragmentation": 0.1})
    RankFile(tmp_path, "now", "pool", "1").write({"at": "soon"})
    found = last_records(tmp_path, 100.0)
    assert [(one["kind"], one["rank"], one["age"]) for one in found] == [
        ("allocator", "0-1", 0.5),
        ("pool", "0", 10.0),
    ]
    assert found[1]["steps"] == 7
    assert last_records(tmp_path / "none", 100.0) == []
