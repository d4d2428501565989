"""The counting and the report of the chaos suite, without a cluster."""

import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from rich.console import Console

from tests.chaos.cases import ALL, CASES, ONE_AFTER_THE_OTHER, PROXIED, TWICE
from tests.chaos.report import table, write
from tests.chaos.stage import Tally, evictions
from tests.cluster.cluster import Cluster

GOOD = Tally("a node lost", 0, 0, 0, True, "1 engine went with its node", 80.0)
BAD = Tally("two triggers", 2, 1, 1, False, "not within 120 s\nand more")


def test_the_file_has_the_fields_that_were_asked_for_and_no_others(tmp_path: Path) -> None:
    write([GOOD, BAD], tmp_path / "build" / "chaos.json")
    assert json.loads((tmp_path / "build" / "chaos.json").read_text()) == {
        "cases": [
            {"name": "a node lost", "victims": 0, "allowed": 0, "doubleActions": 0, "converged": True},
            {"name": "two triggers", "victims": 2, "allowed": 1, "doubleActions": 1, "converged": False},
        ]
    }


def test_the_table_names_every_case_and_what_is_wrong() -> None:
    console = Console(width=150, record=True, file=io.StringIO())
    console.print(table([GOOD, BAD]))
    said = console.export_text()
    assert "a node lost" in said
    assert "NOT as it was" in said
    assert "and more" not in said
    assert (GOOD.good, BAD.good) == (True, False)


def line(namespace: str, pod: str, code: int, subresource: str = "eviction") -> str:
    target = {"resource": "pods", "subresource": subresource, "namespace": namespace, "name": pod}
    record: dict[str, Any] = {"objectRef": target, "responseStatus": {"code": code}, "verb": "create"}
    return json.dumps(record) + "\n"


def test_evictions_are_counted_where_they_were_granted_and_meant(tmp_path: Path) -> None:
    log = tmp_path / "audit.log"
    log.write_text(
        line("ours", "a", 201)
        + line("ours", "a", 201)
        + line("ours", "b", 429)
        + line("ours", "eviction", 201, "status")
        + line("theirs", "a", 201)
        + line("ours", "c", 201).rstrip("\n"),
        encoding="utf-8",
    )
    cluster = cast(Cluster, SimpleNamespace(audit_log=log))
    assert evictions(cluster, "ours") == {"a": 2}


def test_every_case_has_a_name_of_its_own_and_every_special_operator_has_cases() -> None:
    assert len({case.name for case in ALL}) == len(ALL)
    assert {case.operator for case in CASES} >= ONE_AFTER_THE_OTHER | PROXIED | TWICE
