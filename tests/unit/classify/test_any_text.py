"""Whatever a pod says: an answer, the same each time, in one line that fits."""

import time

from hypothesis import given, settings
from hypothesis import strategies as st

from kintsugi.core.classify import StartFacts, StartFailure, Told, classify, kinds
from kintsugi.core.classify.lines import FIRST_KEPT, LAST_KEPT, LINE_LENGTH, REASON_LENGTH, telling

WORDS = st.sampled_from(
    [
        "ValueError:",
        "CUDA out of memory",
        "unrecognized arguments:",
        "estimated maximum model length is",
        "/dev/shm",
        "No space left on device",
        "429 Client Error",
        "{at}",
        "{most}",
        "\x1b[31m",
        "\x00",
        "\r",
        "(EngineCore pid=1) ERROR 10-08 20:33:48 [core.py:1]",
        "shards 3/0",
        "Traceback (most recent call last):",
        "Worker failed with error '",
        "init container x:",
    ]
)
TEXT = st.lists(st.one_of(WORDS, st.text(max_size=40)), max_size=12).map(" ".join)
REASONS = st.one_of(
    st.sampled_from(
        [
            "",
            "ContainerCreating",
            "CrashLoopBackOff",
            "ImagePullBackOff",
            "CreateContainerConfigError",
            "Evicted",
        ]
    ),
    st.text(max_size=20),
)
FACTS = st.builds(
    StartFacts,
    phase=st.one_of(
        st.sampled_from(["Pending", "Running", "Failed", "Succeeded", "Unknown"]), st.text(max_size=8)
    ),
    phase_reason=REASONS,
    phase_message=TEXT,
    scheduled=st.booleans(),
    waiting_reason=REASONS,
    waiting_message=TEXT,
    exit_code=st.none() | st.integers(-300, 300),
    ended_reason=REASONS,
    ended_message=TEXT,
    restarts=st.integers(0, 99),
    events=st.lists(st.builds(Told, REASONS, TEXT, st.integers(0, 9)), max_size=4).map(tuple),
    log=st.lists(TEXT, max_size=8).map(tuple),
    host_ipc=st.booleans(),
    pool=st.sampled_from(["", "spec.pools[0]"]),
)


@settings(max_examples=500, deadline=None)
@given(FACTS)
def test_any_text_has_an_answer_of_one_line(start: StartFacts) -> None:
    found = classify(start)
    assert found is None or isinstance(found, StartFailure)
    if found is not None:
        assert found.kind in kinds.KIND_NAMES
        assert found.field.startswith("spec.")
        assert len(found.reason) <= REASON_LENGTH + 120
        assert found.message.isprintable()
        assert found.message.strip()


@settings(max_examples=100, deadline=None)
@given(FACTS)
def test_the_same_facts_give_the_same_answer(start: StartFacts) -> None:
    first = classify(start)
    classify.cache_clear()
    assert classify(start) == first


@settings(max_examples=200, deadline=None)
@given(st.lists(TEXT, max_size=300))
def test_what_is_kept_of_a_log_is_short_and_of_that_log(log: list[str]) -> None:
    kept = telling(log)
    assert len(kept) <= FIRST_KEPT + LAST_KEPT
    assert set(kept) <= {line[:LINE_LENGTH] for line in log}


def test_a_log_without_end_takes_no_time() -> None:
    for line in (
        "a" * 100_000,
        "(" * 5_000,
        "/dev/shm " * 5_000,
        "ValueError" * 9_000,
        "x.y" * 50_000,
        "[ " * 30_000,
    ):
        began = time.perf_counter()
        classify(StartFacts(exit_code=1, waiting_reason="CrashLoopBackOff", log=(line,) * 1_000))
        assert time.perf_counter() - began < 2.0, line[:20]
