"""What must hold of every detector: order says nothing, absence proves nothing, and load is no fault."""

import random
from dataclasses import dataclass
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kintsugi.core.finding import InstanceVerdict, Severity, Verdict
from kintsugi.core.snapshot import Device, Failure
from tests.unit.core.staging import Engine, Rank, Stage, deployment
from tests.unit.core.step_fleet import StepFleet, Worker

FAST = {"rehearsal": {"speedUp": 10}}
"""Judge's times at a tenth, so that short histories reach every threshold."""
SLOTS = 16
"""`maxNumSeqs` of the staged instances."""
GPU = "nvidia.com/gpu"
SEEDS = st.integers(0, 2**32 - 1)


@dataclass(frozen=True)
class Span:
    """How three engines do for a while."""

    running: tuple[int, ...]
    waiting: tuple[int, ...]
    steps: tuple[int, ...]
    kv: tuple[float, ...]
    preempted: int
    hits: float
    health: tuple[str, ...]
    answers: bool
    passes: int


def three(values: list[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.tuples(*(st.sampled_from(values) for _ in range(3)))


SPANS = st.builds(
    Span,
    running=three([0, 1, 1, 4, SLOTS]),
    waiting=three([0, 8, 8, 30]),
    steps=three([0, 5, 40, 40]),
    kv=three([0.05, 0.05, 0.3, 0.95]),
    preempted=st.sampled_from([0, 0, 10]),
    hits=st.sampled_from([0.2, 0.9]),
    health=three(["Healthy", "Healthy", "Unhealthy", "Unknown"]),
    answers=st.booleans(),
    passes=st.sampled_from([5, 20, 60, 90]),
)
HISTORIES = st.lists(SPANS, min_size=1, max_size=5)
Shape = tuple[Verdict, str, tuple[tuple[str, str, Severity], ...]]


def shape(verdict: InstanceVerdict) -> Shape:
    told = sorted((f.detector.value, f.reason, f.severity) for f in verdict.findings)
    return verdict.verdict, verdict.reason, tuple(told)


def play(history: list[Span], order: random.Random | None) -> list[dict[str, Shape]]:
    """Every pass's verdicts. `order` shuffles the pods, and the lines of every page."""
    stage = Stage(deployment(FAST))
    engines = {f"pod-{n}": Engine([Rank(), Rank()]) for n in range(3)}
    seen = []
    for span in history:
        for _ in range(span.passes):
            for place, engine in enumerate(engines.values()):
                move(engine, span, place)
            uids = sorted(engines)
            pages = {uid: engines[uid].page() for uid in uids}
            if order is not None:
                order.shuffle(uids)
                pages = {uid: shuffled(pages[uid], order) for uid in uids}
            fields = {
                f"pod_{n}": {
                    "devices": (Device(GPU, "GPU-0", span.health[n]), Device(GPU, "GPU-1", "Healthy"))
                }
                for n in range(3)
            }
            judged = stage.look(pages, 0.0, **fields)
            if span.answers:
                stage.answer_all()
            seen.append({uid: shape(judged.verdicts[uid]) for uid in sorted(judged.verdicts)})
    return seen


def move(engine: Engine, span: Span, place: int) -> None:
    for rank in engine.ranks:
        rank.running, rank.waiting, rank.kv = span.running[place], span.waiting[place], span.kv[place]
        rank.steps += span.steps[place]
        rank.generation += span.steps[place] * span.running[place]
        rank.itl_count += span.steps[place] * span.running[place]
        rank.itl_sum += 0.5 * span.running[place]
        rank.first_tokens += span.steps[place] // 5
        rank.preemptions += span.preempted
        rank.queries += 400
        rank.hits += 400 * span.hits


def shuffled(page: str, order: random.Random) -> str:
    lines = page.splitlines()
    order.shuffle(lines)
    return "\n".join(lines) + "\n"


@settings(max_examples=15, deadline=None)
@given(HISTORIES, SEEDS)
def test_the_order_of_pods_and_of_lines_never_changes_a_verdict(history: list[Span], seed: int) -> None:
    assert play(history, None) == play(history, random.Random(seed))


@settings(max_examples=15, deadline=None)
@given(SEEDS, st.sampled_from([0.05, 0.3, 0.6]), st.booleans())
def test_what_is_absent_or_unreadable_alone_never_makes_a_busy_engine_sick(
    seed: int, lost: float, whole_pages: bool
) -> None:
    """Three engines with a queue that work well; series, pages and the words on GPUs come and go."""
    luck, stage = random.Random(seed), Stage(deployment(FAST))
    engines = {f"pod-{n}": Engine([Rank(running=1, waiting=6, kv=0.05), Rank(running=1)]) for n in range(3)}
    dark: dict[str, int] = dict.fromkeys(engines, 0)
    failures = [each for each in Failure if each is not Failure.SILENT and each is not Failure.REFUSED]
    for _ in range(300):
        pages: dict[str, str | Failure] = {}
        fields: dict[str, dict[str, Any]] = {}
        for uid, engine in engines.items():
            for rank in engine.ranks:
                rank.steps, rank.generation = rank.steps + 20, rank.generation + 20
                rank.first_tokens, rank.prompt = rank.first_tokens + 1, rank.prompt + 50
                rank.itl_count, rank.itl_sum = rank.itl_count + 20, rank.itl_sum + 0.5
            dark[uid] = luck.randrange(1, 60) if luck.random() < 0.01 else max(0, dark[uid] - 1)
            lines = engine.page().splitlines()
            kept = [line for line in lines if whole_pages or luck.random() >= lost]
            gone = dark[uid] > 0 or (whole_pages and luck.random() < lost)
            pages[uid] = luck.choice(failures) if gone else "\n".join(kept) + "\n"
            said = luck.choice([None, (), (Device(GPU, "GPU-0", "Unknown"),)])
            fields[uid.replace("-", "_")] = {"devices": said}
        judged = stage.look(pages, 0.0, **fields)
        stage.answer_all()
        assert [v.name for v in judged.verdicts.values() if v.sick() is not None] == []


@settings(max_examples=8, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from([0.0, 1.0, 4.0, 12.0, 40.0, 400.0]), st.sampled_from([20, 60, 150])),
        min_size=2,
        max_size=6,
    ),
    st.integers(0, 1000),
)
def test_more_or_less_load_on_every_instance_alike_makes_nobody_sick(
    loads: list[tuple[float, int]], seed: int
) -> None:
    """Saturated, overloaded or idle, yes; after half an hour in which their steps are learned."""
    workers = [Worker(f"pod-{n}", Engine([Rank()]), level=1.0 + 0.03 * n) for n in range(3)]
    fleet = StepFleet(Stage(deployment(FAST)), workers, seed)
    for load, passes in [(8.0, 420), *loads]:
        for worker in workers:
            worker.load = min(load, SLOTS)
            worker.engine.ranks[0].waiting = max(0.0, load - SLOTS)
        for _ in range(passes):
            for worker in workers:
                worker.engine.ranks[0].preemptions += 50 if load > SLOTS else 0
            fleet.look()
            assert fleet.stage.last is not None
            assert [v.name for v in fleet.stage.last.verdicts.values() if v.sick() is not None] == []
