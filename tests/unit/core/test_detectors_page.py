"""docs/detectors.md says what the code does: detectors, findings, series, figures in force, and who acts."""

import re
from typing import Any

import pytest

from kintsugi.adapters import telemetry
from kintsugi.api.healing import (
    ADVICE_ONLY,
    DEFAULT_STALL_FOR_SECONDS,
    DEFAULT_STALL_REMOVE_AFTER_SECONDS,
    HealingSpec,
    Triggers,
)
from kintsugi.core.detect import collapsed, corrupted, dead, erroring, gpu_trouble, growing, prefill_blocking
from kintsugi.core.detect.cache_hit import ENOUGH_TOKENS
from kintsugi.core.detect.slow import SUSPECT_DROP
from kintsugi.core.detect.stalled import CANARIES_NEEDED
from kintsugi.core.explain.watched import NEVER_ACTS, TRIGGER_WORDS
from kintsugi.core.finding import Detector
from kintsugi.core.measured import GPU_TROUBLE, GPU_USE, RSS, WORKING_SET
from kintsugi.core.pod.seconds import UNKNOWN_START_SECONDS
from kintsugi.core.times import Times
from kintsugi_engine import contract
from tests.unit.core import detectors_page

TEXT = detectors_page.PAGE.read_text(encoding="utf-8")
TIMES = Times()
ROW = re.compile(r"^\| \*\*(?P<name>[^*]+)\*\* `(?P<trigger>\w+)` \| (?P<rest>.*) \|$", re.MULTILINE)
ACTS, ADVISES = (
    TEXT.partition(f"## {head}")[2].partition("\n## ")[0] for head in ("Those that act", "Those that advise")
)


def rows(part: str) -> dict[str, tuple[str, list[str]]]:
    """Name → (trigger, cells)."""
    return {
        m["name"]: (m["trigger"], [cell.strip() for cell in m["rest"].split("|")]) for m in ROW.finditer(part)
    }


def test_the_tables_out_of_the_code_are_up_to_date() -> None:
    assert detectors_page.page() == TEXT, "run: python -m tests.unit.core.detectors_page"


def test_the_figures_that_trust_is_built_on_are_exported_under_the_names_that_are_told() -> None:
    part = TEXT.partition("## Before you let one act")[2].partition("\n## ")[0]
    exported = {name for name, *_ in telemetry.table()}
    assert set(re.findall(r"\bkintsugi_\w+", part)) <= exported
    told = dict(re.findall(r"^\| `(\w+)` \| `(\w+)`", part, flags=re.MULTILINE))
    acting = {trigger for trigger, _ in rows(ACTS).values()}
    assert told == {name: TRIGGER_WORDS[name].signal for name in acting if TRIGGER_WORDS[name].signal}
    half = 100 * (1 - (1 - HealingSpec().triggers.throughput.drop_percent / 100) ** 0.5)
    assert f"below {half:.0f} at the default" in part or f"below {int(half)} at the default" in part


def test_every_detector_has_its_line_and_no_other() -> None:
    told = {trigger for part in (ACTS, ADVISES) for trigger, _ in rows(part).values()}
    assert told == {detector.value for detector in Detector} - {Detector.DATA.value}


@pytest.mark.parametrize(("name", "line"), [*rows(ACTS).items(), *rows(ADVISES).items()])
def test_every_line_is_whole(name: str, line: tuple[str, list[str]]) -> None:
    _, cells = line
    assert len(cells) == 5
    assert cells[0].strip(), "its signal"
    assert cells[1].strip(), "when it is told"
    assert cells[4].strip(), "what follows"


def test_who_is_said_to_act_acts_on_defaults_and_who_is_said_to_advise_never_does() -> None:
    healing = HealingSpec()
    acting = {trigger for trigger, _ in rows(ACTS).values()}
    assert all(healing.mode_of(trigger) == "Act" for trigger in acting)
    assert not acting & (ADVICE_ONLY | set(NEVER_ACTS))
    advising = {trigger for trigger, _ in rows(ADVISES).values()}
    assert advising - acting == ADVICE_ONLY | set(NEVER_ACTS) | {Detector.LOAD.value}


def _defaults() -> list[tuple[str, str, Any]]:
    """(trigger, setting as users write it, its default) of all that have one."""
    return [
        (trigger, setting, value)
        for trigger, settings in Triggers().model_dump(by_alias=True).items()
        for setting, value in settings.items()
        if setting != "mode" and value is not None
    ]


@pytest.mark.parametrize(("trigger", "setting", "value"), _defaults())
def test_the_settings_and_their_defaults_are_those_of_the_api(trigger: str, setting: str, value: Any) -> None:
    (cells,) = [
        cells
        for name, cells in [*rows(ACTS).values(), *rows(ADVISES).values()]
        if name == trigger and f"`{setting}`" in cells[3]
    ]
    shown = ", ".join(value) if isinstance(value, list | tuple) else f"{value:g}"
    assert f"`{setting}` {shown}" in cells[3]


def test_no_setting_is_told_that_the_api_does_not_have() -> None:
    known = {
        (trigger, setting)
        for trigger, settings in Triggers().model_dump(by_alias=True).items()
        for setting in settings
    }
    for trigger, cells in [*rows(ACTS).values(), *rows(ADVISES).values()]:
        for setting in re.findall(r"`([a-z]\w+)` (?:\d|[A-Z])", cells[3]):
            assert (trigger, setting) in known


FIGURES = [
    ("dead", f"{dead.RESTARTS_NEEDED} restarts in {TIMES.dead_restarts_window:g} s"),
    ("stalled", f"`forSeconds` {DEFAULT_STALL_FOR_SECONDS}"),
    ("stalled", f"`removeAfterSeconds` {DEFAULT_STALL_REMOVE_AFTER_SECONDS}"),
    ("stalled", f"withdrawn after {TIMES.stall_withdraw:g} s with {CANARIES_NEEDED} canaries unanswered"),
    ("stalled", f"removed after {TIMES.stall_remove:g} s"),
    ("stalled", f"admits nobody for {TIMES.not_admitting:g} s"),
    ("stalled", f"silent for {TIMES.silent:g} s"),
    ("slow", f"told from {SUSPECT_DROP:g} % on"),
    ("erroring", f"at least {erroring.LEAST_ERRORS} errors"),
    ("erroring", f"{TIMES.erroring_window:g} to {TIMES.erroring_longest:g} s"),
    ("erroring", f"{erroring.ROUND_BAD} of {erroring.ROUND_CANARIES} canaries"),
    (
        "corrupted",
        f"at least {corrupted.WRONG} answers wrong in two bursts {TIMES.corrupted_burst:g} s apart",
    ),
    ("corrupted", f"one question in {TIMES.corrupted_every:g} s"),
    ("collapsed", f"stands for {TIMES.starved_window:g} s"),
    ("collapsed", f"{collapsed.CANARIES} canaries wait {TIMES.starved_canary:g} s each"),
    ("growing", f"above {100 * growing.LEVEL:g} % of the limit"),
    ("growing", f"two looks {TIMES.growth_look / 60:g} min apart"),
    ("growing", f"first {(TIMES.growth_young + growing.BUCKETS * TIMES.growth_bucket_short) / 3600:g} hours"),
    ("low cache hit", f"over {TIMES.advice_window:g} s"),
    ("low cache hit", f"fewer than {ENOUGH_TOKENS:,.0f} tokens"),
    ("preempting", f"over {TIMES.preemption_window:g} s"),
    ("GPU use", f"over {TIMES.advice_window:g} s"),
    ("diverging rank", f"{TIMES.advice_window:g} s"),
    ("saturated", f"for {TIMES.readable_gap:g} s"),
    ("idle", f"for {TIMES.canary_idle:g} s"),
    ("ranks uneven", f"for {TIMES.readable_gap:g} s"),
    ("long prefill blocking", f"for {TIMES.readable_gap:g} s"),
    ("long prefill blocking", f"at least {prefill_blocking.BLOCKED_FROM:g} run"),
    ("starting over budget", f"{UNKNOWN_START_SECONDS} s where the model is not known"),
]


@pytest.mark.parametrize(("name", "figure"), FIGURES)
def test_the_figures_are_those_of_the_code(name: str, figure: str) -> None:
    _, cells = {**rows(ACTS), **rows(ADVISES)}[name]
    assert figure in " | ".join(cells)


def test_the_series_that_are_named_are_those_that_are_read() -> None:
    for name in (
        *(contract.GPU_FRAGMENTATION, contract.KV_ORPHANED_BLOCKS_RATIO, contract.CONTAINER_MEMORY_ANONYMOUS),
        *(
            RSS,
            WORKING_SET,
            *(field for field in GPU_TROUBLE if field != "DCGM_FI_DEV_XID_ERROR"),
            next(iter(GPU_USE)),
        ),
    ):
        assert f"`{name}`" in TEXT
    assert not {13, 31, 43, 45} & set(gpu_trouble.XIDS)
