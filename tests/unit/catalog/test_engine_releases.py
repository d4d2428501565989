import pytest

from kintsugi.core.catalog.entities import FlagChange
from kintsugi.core.catalog.flaglists import flag_lists
from kintsugi.core.catalog.load import builtin
from kintsugi.core.catalog.version import EngineVersion

CATALOG = builtin()
RELEASES = [version for version, _ in CATALOG.releases]
LATEST = dict(CATALOG.releases)[RELEASES[-1]]


def test_every_minor_release_from_0_20_to_0_33_has_its_list_of_flags() -> None:
    assert {version.minor for version in RELEASES} == set(range(20, 34))
    assert sorted(RELEASES) == RELEASES


@pytest.mark.parametrize("version", RELEASES, ids=str)
def test_a_list_holds_what_every_release_has_and_nothing_that_is_gone(version: EngineVersion) -> None:
    flags = CATALOG.known_flags(version)

    assert flags is not None
    assert 230 < len(flags) < 400
    assert all(flag.startswith("--") and flag == flag.lower() and "_" not in flag for flag in flags)
    assert {"--model", "--port", "--block-size", "--tensor-parallel-size", "--kv-transfer-config"} <= flags
    assert {"--served-model-name", "--lora-modules", "--api-key", "--headless", "--shutdown-timeout"} <= flags
    assert not {"--swap-space", "--disable-log-requests", "--task", "--rope-scaling"} & flags


def test_nothing_is_known_of_the_flags_of_a_release_that_nobody_read() -> None:
    assert CATALOG.known_flags(EngineVersion(0, 34)) is None
    assert CATALOG.known_flags(EngineVersion(0, 19)) is None
    assert CATALOG.known_flags(EngineVersion(0, 27, 9)) is None


@pytest.mark.parametrize(
    ("flag", "first"),
    [
        ("--max-num-queued-reqs", EngineVersion(0, 29)),
        ("--max-num-queued-tokens", EngineVersion(0, 29)),
        ("--engram-config", EngineVersion(0, 30)),
        ("--watchdog-config", EngineVersion(0, 33)),
        ("--diffusion-config", EngineVersion(0, 24)),
    ],
)
def test_a_flag_appears_with_its_release(flag: str, first: EngineVersion) -> None:
    having = [version for version, flags in CATALOG.releases if flag in flags]

    assert having[0] == first
    assert [change.added for change in CATALOG.flag_changes(flag)] == [first]


@pytest.mark.parametrize(
    ("flag", "removed", "instead"),
    [
        ("--swap-space", EngineVersion(0, 18), "kvOffload"),
        ("--disable-log-requests", EngineVersion(0, 17), "--enable-log-requests"),
        ("--guided-decoding-backend", EngineVersion(0, 12), "--structured-outputs-config.backend"),
        ("--task", EngineVersion(0, 13), "--runner"),
        ("--calculate-kv-scales", EngineVersion(0, 28), "checkpoint"),
        ("--attention-config.use_fp4_indexer_cache", EngineVersion(0, 30), "indexer_kv_dtype"),
    ],
)
def test_a_flag_that_went_names_what_came_in_its_place(
    flag: str, removed: EngineVersion, instead: str
) -> None:
    (change,) = CATALOG.flag_changes(flag)

    assert change.removed == removed
    assert change.replacement is not None
    assert instead in change.replacement


def test_a_flag_that_nobody_described_is_dated_by_the_lists() -> None:
    (change,) = CATALOG.flag_changes("--enable-trace-replay")

    assert (change.added, change.removed) == (EngineVersion(0, 29), None)


@pytest.mark.parametrize("flag", ["--port", "--never-was", "", "port", "--Port"])
def test_nothing_happened_to_a_flag_that_all_have_or_none(flag: str) -> None:
    assert CATALOG.flag_changes(flag) == ()


@pytest.mark.parametrize("change", CATALOG.flags, ids=lambda change: change.flag)
def test_what_is_told_of_a_flag_agrees_with_the_lists(change: FlagChange) -> None:
    (told,) = CATALOG.flag_changes(change.flag)

    assert told.sources
    assert told.added or told.removed
    assert not (told.added and told.removed and told.added >= told.removed)
    if "." not in told.flag:
        for version, flags in CATALOG.releases:
            there = (told.added is None or version >= told.added) and (
                told.removed is None or version < told.removed
            )
            assert (told.flag in flags) == there, f"{told.flag} in {version}"
    for word in (told.replacement or "").replace("(", " ").replace(")", " ").split():
        if word.startswith("--"):
            root = word.partition(".")[0].partition("=")[0]
            assert root in LATEST or told.removed, f"{word} is no flag of the newest release"


def test_a_renamed_series_names_its_successor_and_no_series_succeeds_itself() -> None:
    changes = {change.metric: change for change in CATALOG.metrics}

    assert changes["vllm:gpu_cache_usage_perc"].replacement == "vllm:kv_cache_usage_perc"
    assert all(change.sources and change.metric.startswith("vllm:") for change in CATALOG.metrics)
    assert all(change.metric != change.replacement for change in CATALOG.metrics)


def test_packed_lists_are_read_span_by_span() -> None:
    packed = "# a comment\nreleases 0.1.0 0.2.0 0.3.0\n--all 0-2\n--ends 0,2\n--middle 1\n"

    assert flag_lists(packed) == (
        (EngineVersion(0, 1), frozenset({"--all", "--ends"})),
        (EngineVersion(0, 2), frozenset({"--all", "--middle"})),
        (EngineVersion(0, 3), frozenset({"--all", "--ends"})),
    )
