"""The engine model: what goes in comes out, limits hold, times add up."""

import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kintsugi.testing.engine import EngineModel, EngineShape, StepCost
from kintsugi.testing.engine.sequence import Phase, Sequence

EVEN = StepCost(
    base=0.02,
    per_sequence=0.001,
    per_prefill_token=1e-5,
    per_context_token=0.0,
    per_attention_pair=0.0,
    noise_sigma=0.0,
)
SMALL = EngineShape(
    max_num_seqs=4, max_model_len=512, max_num_batched_tokens=64, block_size=16, num_gpu_blocks=32
)


def run_dry(model: EngineModel, horizon: float = 3600.0) -> None:
    """Advance until nothing is left to do."""
    while model.wake_at is not None and model.now < horizon:
        model.advance(model.wake_at)
    assert model.in_flight == 0


def test_a_request_gives_its_tokens_one_a_step_and_then_ends() -> None:
    model = EngineModel(EngineShape(), EVEN)
    sequence = model.submit(1.0, 100, 5)
    assert model.wake_at is not None
    model.advance(model.wake_at)
    assert model.produced(sequence) == 1
    assert sequence.first_token_at == pytest.approx(1.0 + 0.02 + 100 * 1e-5)
    for produced in (2, 3, 4):
        model.advance(model.wake_at)
        assert model.produced(sequence) == produced
    model.advance(model.wake_at)
    assert (sequence.phase, sequence.finish_reason, model.produced(sequence)) == (Phase.FINISHED, "length", 5)
    assert model.wake_at is None


def test_fewer_tokens_than_the_limit_is_a_stop() -> None:
    model = EngineModel(EngineShape(), EVEN)
    sequence = model.submit(0.0, 10, 5, max_tokens=50)
    run_dry(model)
    assert sequence.finish_reason == "stop"
    assert model.counters.finished["stop"] == 1


def test_tokens_are_conserved_over_thousands_of_requests() -> None:
    model = EngineModel(EngineShape(max_num_seqs=16), StepCost(), seed=3)
    rng = random.Random(4)
    sent: list[Sequence] = []
    now = 0.0
    for _ in range(2000):
        now += rng.expovariate(4.0)
        sent.append(model.submit(now, rng.randint(1, 3000), rng.randint(1, 80)))
    run_dry(model)
    counters = model.counters
    assert all(s.phase is Phase.FINISHED and s.given == s.output_tokens for s in sent)
    assert counters.generation_tokens == sum(s.output_tokens for s in sent)
    assert counters.prompt_tokens == sum(s.prompt_tokens for s in sent)
    assert (
        counters.finished["length"]
        == counters.e2e_latency.count
        == counters.time_to_first_token.count
        == 2000
    )
    # Each output but the first of a request is one inter-token latency.
    assert counters.inter_token_latency.count == counters.generation_tokens - 2000
    # The histogram of a step's tokens sums to all tokens computed, as on the real page.
    assert counters.iteration_tokens.total == counters.generation_tokens + counters.prompt_tokens
    assert counters.kv_usage == 0.0


def test_no_more_than_max_num_seqs_run_and_the_rest_waits() -> None:
    model = EngineModel(EngineShape(max_num_seqs=16), EVEN)
    for _ in range(40):
        model.submit(0.0, 100, 100)
    model.advance(1.0)
    assert (model.counters.running, model.counters.waiting) == (16, 24)
    assert model.counters.kv_usage < 0.05  # waiting does not mean KV pressure
    run_dry(model)
    assert model.counters.queue_time.total > 0


def test_a_long_prompt_is_prefilled_in_chunks_that_no_counter_but_kv_usage_shows() -> None:
    shape = EngineShape(max_num_batched_tokens=64, max_model_len=4096, block_size=16)
    model = EngineModel(shape, EVEN)
    model.submit(0.0, 1000, 3)
    usages = []
    for _ in range(15):
        assert model.wake_at is not None
        model.advance(model.wake_at)
        assert (model.counters.steps, model.counters.prompt_tokens) == (0, 0)
        usages.append(model.counters.kv_usage)
    assert usages == sorted(set(usages))
    model.advance(1.0 / 3)
    assert (model.counters.steps, model.counters.prompt_tokens) == (1, 1000)


def test_decodes_go_on_during_a_chunked_prefill() -> None:
    model = EngineModel(EngineShape(max_num_batched_tokens=64, max_model_len=4096), EVEN)
    short = model.submit(0.0, 10, 200)
    model.advance(0.5)
    before = model.produced(short)
    model.submit(0.5, 2000, 2)
    for _ in range(10):
        assert model.wake_at is not None
        model.advance(model.wake_at)
    assert model.produced(short) >= before + 10


def test_without_chunking_a_whole_prompt_is_one_step() -> None:
    shape = EngineShape(max_num_batched_tokens=64, max_model_len=4096, chunked_prefill=False)
    model = EngineModel(shape, EVEN)
    model.submit(0.0, 2000, 2)
    assert model.wake_at == pytest.approx(0.02 + 2000 * 1e-5)
    model.advance(0.05)
    assert model.counters.prompt_tokens == 2000


def test_cached_prompt_tokens_are_not_computed_but_counted_as_prompt() -> None:
    model = EngineModel(EngineShape(), EVEN)
    model.submit(0.0, 1500, 2, cached_tokens=1280)
    run_dry(model)
    counters = model.counters
    assert (counters.prefix_queries, counters.prefix_hits) == (1500, 1280)
    assert (counters.prompt_tokens, counters.prompt_tokens_cached) == (1500, 1280)
    assert counters.prefill_kv_computed.total == 220
    assert counters.iteration_tokens.total == 222


def test_an_abort_frees_the_kv_blocks_at_the_next_step_and_counts_as_nothing() -> None:
    model = EngineModel(SMALL, EVEN)
    stays, goes = model.submit(0.0, 60, 40), model.submit(0.0, 60, 40)
    model.advance(0.3)
    free = model.free_blocks
    model.abort(goes, 0.3)
    assert model.free_blocks == free  # the step under way still holds them
    run_dry(model)
    assert stays.phase is Phase.FINISHED
    assert (goes.phase, goes.finish_reason) == (Phase.ABORTED, "abort")
    assert model.free_blocks == SMALL.num_gpu_blocks
    assert model.counters.finished["abort"] == 0
    assert model.counters.time_to_first_token.count - model.counters.e2e_latency.count == 1


def test_gauges_fall_when_the_last_request_is_aborted() -> None:
    model = EngineModel(SMALL, EVEN)
    sequence = model.submit(0.0, 60, 40)
    model.advance(0.3)
    assert model.counters.running == 1
    model.abort(sequence, 0.3)
    model.advance(1.0)
    assert (model.counters.running, model.counters.kv_usage, model.wake_at) == (0, 0.0, None)


def test_a_prompt_that_finds_no_room_waits_and_is_not_preempted() -> None:
    model = EngineModel(SMALL, EVEN)
    model.submit(0.0, 400, 20)
    model.submit(0.0, 300, 20)
    model.advance(0.5)
    assert (model.counters.running, model.counters.waiting) == (1, 1)
    run_dry(model)
    assert model.counters.preemptions == 0
    assert model.counters.finished["length"] == 2


def test_when_decodes_run_out_of_blocks_the_youngest_is_preempted_and_still_gives_all_its_tokens() -> None:
    model = EngineModel(SMALL, EVEN)
    old, young = model.submit(0.0, 200, 150), model.submit(0.1, 200, 150)
    while old.phase is not Phase.FINISHED:
        assert model.wake_at is not None
        model.advance(model.wake_at)
        assert 0 <= model.free_blocks <= SMALL.num_gpu_blocks
    assert (old.preemptions, young.preemptions) == (0, 1)
    run_dry(model)
    assert (old.given, young.given) == (150, 150)
    assert model.counters.preemptions == 1
    assert model.counters.generation_tokens == 300
    assert model.counters.prompt_tokens == 400  # the recomputed prefill is in no token counter
    assert model.counters.inter_token_latency.count == 298


@given(
    requests=st.lists(
        st.tuples(st.floats(0, 3), st.integers(1, 250), st.integers(1, 200), st.floats(0, 6) | st.none()),
        min_size=1,
        max_size=12,
    ),
    hang=st.floats(0, 4) | st.none(),
)
@settings(max_examples=80, deadline=None)
def test_whatever_comes_and_goes_blocks_and_tokens_balance(
    requests: list[tuple[float, int, int, float | None]], hang: float | None
) -> None:
    model = EngineModel(SMALL, StepCost(), seed=1)
    sequences: list[Sequence] = []
    events: list[tuple[float, int, int]] = []
    for index, (at, _, _, leaves) in enumerate(requests):
        events.append((at, 0, index))
        if leaves is not None:
            events.append((at + leaves, 1, index))
    if hang is not None:
        events += [(hang, 2, 0), (hang + 1.0, 3, 0)]
    made: dict[int, Sequence] = {}
    for at, kind, index in sorted(events):
        if kind == 0:
            made[index] = model.submit(at, requests[index][1], requests[index][2])
            sequences.append(made[index])
        elif kind == 1:
            model.abort(made[index], at)
        else:
            (model.hang if kind == 2 else model.resume)(at)
        assert 0 <= model.free_blocks <= SMALL.num_gpu_blocks
    run_dry(model)
    assert model.free_blocks == SMALL.num_gpu_blocks
    assert model.counters.kv_usage == 0.0
    assert model.counters.generation_tokens == sum(s.given for s in sequences)
    assert all(s.phase in (Phase.FINISHED, Phase.ABORTED) for s in sequences)
    assert model.counters.finished["length"] == sum(s.phase is Phase.FINISHED for s in sequences)


def test_a_hang_stops_everything_and_resuming_finishes_the_step_under_way() -> None:
    model = EngineModel(EngineShape(), EVEN)
    sequence = model.submit(0.0, 100, 50)
    model.advance(0.2)
    model.hang(0.2)
    steps, given = model.counters.steps, model.produced(sequence)
    late = model.submit(5.0, 100, 50)
    model.advance(30.0)
    assert model.wake_at is None
    assert (model.counters.steps, model.produced(sequence)) == (steps, given)
    assert (model.counters.running, model.counters.waiting, late.phase) == (1, 0, Phase.ARRIVING)
    model.resume(30.0)
    assert model.wake_at is not None
    assert model.wake_at - 30.0 < 0.025  # what was left of the step
    run_dry(model)
    assert (sequence.given, late.given) == (50, 50)
    assert model.counters.inter_token_latency.buckets[-3] == 1  # one gap of half a minute


def test_a_client_that_leaves_while_the_engine_hangs_is_gone_after_it() -> None:
    model = EngineModel(EngineShape(), EVEN)
    model.hang(0.0)
    sequence = model.submit(1.0, 10, 1)
    model.abort(sequence, 2.0)
    assert model.in_flight == 0
    model.resume(3.0)
    model.advance(4.0)
    assert sequence.phase is Phase.ABORTED
    assert (model.counters.steps, model.counters.finished["length"]) == (0, 0)


def test_starved_admission_queues_without_kv_use_and_lets_go_when_it_ends() -> None:
    model = EngineModel(EngineShape(), EVEN)
    model.restrict(0.0, admission_limit=0, blocks_lost=0)
    for _ in range(6):
        model.submit(1.0, 100, 10)
    model.advance(60.0)
    assert (model.counters.running, model.counters.waiting, model.counters.kv_usage) == (0, 6, 0.0)
    model.restrict(60.0, admission_limit=None, blocks_lost=0)
    run_dry(model)
    assert model.counters.finished["length"] == 6


def test_lost_blocks_count_as_used_and_cannot_be_had() -> None:
    model = EngineModel(SMALL, EVEN)
    model.restrict(0.0, admission_limit=None, blocks_lost=24)
    assert model.counters.kv_usage == 0.75
    model.submit(0.0, 200, 10)  # needs 13 blocks of 16 tokens, 8 are left
    model.advance(5.0)
    assert (model.counters.running, model.counters.waiting) == (0, 1)


@pytest.mark.parametrize("running", [1, 4, 16])
def test_the_mean_inter_token_latency_is_the_cost_of_a_step(running: int) -> None:
    cost = StepCost(noise_sigma=0.05)
    model = EngineModel(EngineShape(max_model_len=8192, max_num_batched_tokens=64), cost, seed=5)
    for _ in range(running):
        model.submit(0.0, 1, 3000)
    run_dry(model)
    latency = model.counters.inter_token_latency
    assert latency.total / latency.count == pytest.approx(cost.mean(running, 0, running * 1500), rel=0.02)


def test_a_throughput_fault_stretches_the_step_by_its_factor() -> None:
    means = []
    for factor in (1.0, 2.5):
        model = EngineModel(EngineShape(), StepCost(), seed=7)
        model.step_factor = factor
        for _ in range(8):
            model.submit(0.0, 10, 400)
        run_dry(model)
        latency = model.counters.inter_token_latency
        means.append(latency.total / latency.count)
    assert means[1] / means[0] == pytest.approx(2.5, rel=0.01)


def test_the_same_seed_gives_the_same_run_and_another_does_not() -> None:
    def total(seed: int) -> float:
        model = EngineModel(EngineShape(), StepCost(), seed=seed)
        model.submit(0.0, 10, 400)
        run_dry(model)
        return model.counters.inter_token_latency.total

    assert total(1) == total(1) != total(2)


def test_hiccups_lengthen_some_steps() -> None:
    cost = StepCost(noise_sigma=0.0, hiccups_per_hour=3600.0, hiccup_seconds=2.0)
    model = EngineModel(EngineShape(), cost, seed=1)
    model.submit(0.0, 10, 2000)
    run_dry(model)
    assert sum(model.counters.inter_token_latency.buckets[11:]) > 5


@pytest.mark.parametrize(("prompt", "output"), [(0, 5), (5, 0), (500, 100)])
def test_a_request_that_can_never_fit_is_refused(prompt: int, output: int) -> None:
    with pytest.raises(ValueError, match="token"):
        EngineModel(SMALL, EVEN).submit(0.0, prompt, output)


def test_settings_out_of_bounds_name_their_field() -> None:
    with pytest.raises(ValueError, match=r"EngineShape\.block_size"):
        EngineShape(block_size=0)
    with pytest.raises(ValueError, match=r"EngineShape\.max_num_batched_tokens"):
        EngineShape(max_num_seqs=64, max_num_batched_tokens=32)
    with pytest.raises(ValueError, match=r"StepCost\.noise_sigma"):
        StepCost(noise_sigma=-1)


def test_a_step_costs_less_than_twenty_microseconds_of_cpu() -> None:
    model = EngineModel(EngineShape(), StepCost(), seed=1)
    rng = random.Random(2)
    now = 0.0
    begun = time.process_time()
    while now < 600.0:
        now += rng.expovariate(5.0)
        model.submit(now, rng.randint(50, 2000), rng.randint(20, 80))
    # Measured 4 to 5 us; the bound leaves room for a slow machine.
    assert (time.process_time() - begun) / model.counters.busy_steps < 20e-6 * 2
