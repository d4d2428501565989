"""When a pool is looked at, and what explains its blocks: a cache manager made by hand in place of vLLM's."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from kintsugi_engine import clock
from kintsugi_engine.telemetry import pool as module
from kintsugi_engine.telemetry.pool import TRANSFER_SECONDS, PoolWatch, groups_of


class FullAttentionSpec: ...


class CircularBufferSpec: ...


@dataclass
class Block:
    block_id: int
    ref_cnt: int = 0
    is_null: bool = False
    block_hash: object | None = None


@dataclass
class Manager:
    """One group of 32 tokens a block over ten blocks."""

    held: dict[str, list[Block]] = field(default_factory=dict)
    blocks: list[Block] = field(default_factory=lambda: [Block(i, is_null=i == 0) for i in range(11)])

    @property
    def block_pool(self) -> Any:
        return SimpleNamespace(blocks=self.blocks)

    @property
    def coordinator(self) -> Any:
        one = SimpleNamespace(kv_cache_spec=FullAttentionSpec(), kv_cache_group_id=0, block_size=32)
        return SimpleNamespace(single_type_managers=(one,))

    def get_blocks(self, name: str) -> Any:
        return SimpleNamespace(blocks=(self.held.get(name, []),))

    def hold(self, name: str, *ids: int) -> None:
        self.held[name] = [self.blocks[i] for i in ids]
        for block in self.held[name]:
            block.ref_cnt += 1


@dataclass
class Time:
    now: float = 1000.0


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> Time:
    fake = Time()
    monkeypatch.setattr(clock, "mono", lambda: fake.now)
    monkeypatch.setattr(module, "IDLE_PERIOD", 0.02)
    return fake


@pytest.fixture
def written() -> list[Mapping[str, Any]]:
    return []


@pytest.fixture
def manager() -> Manager:
    return Manager()


@pytest.fixture
def watch(at: Time, manager: Manager, written: list[Mapping[str, Any]]) -> Iterator[PoolWatch]:
    made = PoolWatch(0, written.append)
    made.bind(manager)
    yield made
    made.stop()


def request(name: str, tokens: int, preemptions: int = 0) -> Any:
    return SimpleNamespace(request_id=name, num_computed_tokens=tokens, num_preemptions=preemptions)


def test_a_step_gives_a_sample_and_the_next_ones_wait(watch: PoolWatch, manager: Manager, at: Time) -> None:
    manager.hold("a", 1, 2)
    watch.began(request("a", 40))
    sample = watch.step()
    assert sample is not None
    assert sample["blocks"] == {"active": 2, "cached_free": 0, "empty_free": 8}
    assert sample["waste"] == pytest.approx(24 / 64)
    at.now += 0.5
    assert watch.step() is None
    at.now += 1
    assert watch.step() is not None


def test_a_request_that_was_preempted_and_waits_is_counted(watch: PoolWatch, manager: Manager) -> None:
    manager.hold("a", 1)
    watch.began(request("a", 20, preemptions=1))
    watch.began(request("b", 0, preemptions=1))
    watch.began(request("c", 0))
    sample = watch.step()
    assert sample is not None
    assert (sample["requests"], sample["preempted"]) == (3, 1)


def test_blocks_that_nobody_holds_become_orphans(watch: PoolWatch, manager: Manager, at: Time) -> None:
    manager.blocks[9].ref_cnt = 1
    manager.hold("a", 1)
    watch.began(request("a", 20))
    counts = []
    for _ in range(5):
        at.now += 10
        sample = watch.step()
        assert sample is not None
        counts.append(sample["orphaned"])
    assert counts == [0, 0, 0, 0, 1]


def test_an_ended_request_explains_its_blocks_while_they_may_be_sent_on(
    watch: PoolWatch, manager: Manager, at: Time
) -> None:
    manager.hold("a", 1, 2)
    one = request("a", 64)
    watch.began(one)
    watch.ended(one)
    found = {}
    for passed in (10, 60, TRANSFER_SECONDS, TRANSFER_SECONDS + 10, *range(660, 701, 10)):
        at.now = 1000 + passed
        sample = watch.step()
        assert sample is not None
        found[passed] = sample["orphaned"]
    assert found[60] == found[TRANSFER_SECONDS] == 0
    assert found[700] == 2


def test_time_without_requests_is_no_step(watch: PoolWatch, at: Time) -> None:
    one = request("a", 20)
    watch.began(one)
    at.now += 0.25
    watch.step()
    watch.ended(one)
    at.now += 0.25
    watch.step()
    at.now += 50
    watch.began(request("b", 20))
    at.now += 2
    sample = watch.step()
    assert sample is not None
    assert sample["stepSeconds"] == pytest.approx(2.5)


def test_a_pool_at_rest_is_looked_at_from_a_thread(
    watch: PoolWatch, manager: Manager, at: Time, written: list[Mapping[str, Any]]
) -> None:
    deadline = time.monotonic() + 5
    while len(written) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(written) >= 2
    watch.began(request("a", 1))
    time.sleep(0.1)
    before = len(written)
    time.sleep(0.2)
    assert len(written) == before, "it moves now: only its own steps may look"


def test_a_manager_that_is_made_otherwise_is_refused(written: list[Mapping[str, Any]]) -> None:
    with pytest.raises(AttributeError):
        PoolWatch(0, written.append).bind(SimpleNamespace(block_pool=SimpleNamespace(blocks=[])))


def test_groups_are_told_by_their_kind() -> None:
    managers = (
        SimpleNamespace(kv_cache_spec=FullAttentionSpec(), kv_cache_group_id=0, block_size=256),
        SimpleNamespace(kv_cache_spec=CircularBufferSpec(), kv_cache_group_id=1, block_size=8),
    )
    found = groups_of(SimpleNamespace(coordinator=SimpleNamespace(single_type_managers=managers)))
    assert [(one.name, one.kind, one.block_size, one.by_position) for one in found] == [
        ("0", "FullAttention", 256, True),
        ("1", "CircularBuffer", 8, False),
    ]


def asked(name: str, computed: int, known: int) -> Any:
    """A request of `known` tokens, prompt and answer, of which `computed` have been computed."""
    return SimpleNamespace(request_id=name, num_computed_tokens=computed, num_tokens=known, num_preemptions=0)


def test_prompt_tokens_are_counted_step_by_step_and_by_what_ran_beside_them(watch: PoolWatch) -> None:
    for one in (asked("new", 0, 900), asked("deep", 512, 900), asked("decoding", 899, 900)):
        watch.began(one)

    for step in (
        {"new": 512},
        {"deep": 256, "decoding": 1},
        {"decoding": 1},
        {"gone": 64, "decoding": 1},
        {},
    ):
        watch.scheduled(step, {})

    sample = watch.step()
    assert sample is not None
    assert sample["prefill"] == {"mixed": 256, "alone": 512}


def test_a_request_that_was_preempted_is_computed_again_and_counts(watch: PoolWatch) -> None:
    watch.began(asked("again", 0, 950))  # 900 of its prompt, and 50 that it had answered
    watch.began(asked("decoding", 20, 21))

    watch.scheduled({"again": 950, "decoding": 1}, {})

    sample = watch.step()
    assert sample is not None
    assert sample["prefill"] == {"mixed": 950, "alone": 0}


def test_tokens_drafted_ahead_are_no_prompt(watch: PoolWatch) -> None:
    watch.began(asked("decoding", 899, 900))
    watch.began(asked("ahead", 905, 900))  # the scheduler may count tokens that are not known yet
    watch.began(asked("new", 0, 64))

    watch.scheduled({"decoding": 4, "ahead": 4}, {"decoding": [1, 2, 3], "ahead": [-1, -1, -1]})
    watch.scheduled({"decoding": 1, "ahead": 4, "new": 5}, {"ahead": [-1, -1, -1]})

    sample = watch.step()
    assert sample is not None
    assert sample["prefill"] == {"mixed": 5, "alone": 0}


def test_between_two_looks_at_a_large_pool_counts_are_told_every_second(
    watch: PoolWatch, at: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SHARE", 1e-12)  # a look that costs so much that the next one is hours away
    watch.began(asked("new", 0, 900))
    assert "blocks" in (watch.step() or {})
    watch.scheduled({"new": 512}, {})
    told = []
    for _ in range(8):
        at.now += 0.25
        told.append(watch.step())

    light = [one for one in told if one is not None]
    assert [one["prefill"] for one in light] == [{"mixed": 0, "alone": 512}] * 2
    assert all("blocks" not in one for one in light)


def test_where_others_wait_for_its_steps_nothing_is_counted(at: Time, manager: Manager) -> None:
    made = PoolWatch(0, lambda sample: None, alone=False)
    made.bind(manager)
    try:
        made.began(asked("new", 0, 900))
        made.scheduled({"new": 512}, {})
        assert "prefill" not in (made.step() or {"prefill": 0})
        at.now += 0.1
        assert made.step() is None
    finally:
        made.stop()
