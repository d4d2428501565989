"""The closed form against the engine that steps."""

import random
import time

import pytest

from kintsugi.testing.engine import CoarseLoad, SimulatedEngine
from kintsugi.testing.engine.faults import Hang, StarvedAdmission


@pytest.mark.parametrize("rate", [0.2, 1.0, 4.0, 8.0])
def test_closed_form_and_steps_agree_below_saturation(rate: float) -> None:
    coarse = SimulatedEngine(load=CoarseLoad(rate, prompt_tokens=400, output_tokens=60))
    for second in range(0, 2001, 5):
        coarse.advance(float(second))
    stepped = SimulatedEngine()
    rng = random.Random(1)
    now = 0.0
    while now < 2000.0:
        now += rng.expovariate(rate)
        stepped.submit(now, 400, 60)
    one, other = coarse.counters[0], stepped.counters[0]
    assert one.steps == pytest.approx(other.steps, rel=0.10)
    assert one.generation_tokens == pytest.approx(other.generation_tokens, rel=0.15)
    mean = [c.inter_token_latency.total / c.inter_token_latency.count for c in (one, other)]
    assert mean[0] == pytest.approx(mean[1], rel=0.05)


def test_above_capacity_all_slots_run_and_the_queue_grows_and_drains() -> None:
    engine = SimulatedEngine(load=CoarseLoad(30.0))
    engine.advance(60.0)
    counters = engine.counters[0]
    assert counters.running == engine.shape.max_num_seqs
    full = counters.waiting
    assert full > 300
    engine.set_load(CoarseLoad(1.0), 60.0)
    for second in range(61, 300):
        engine.advance(float(second))
    assert counters.waiting == 0


def test_faults_hold_for_closed_form_traffic_too() -> None:
    engine = SimulatedEngine(load=CoarseLoad(4.0))
    engine.advance(50.0)
    engine.inject(Hang(), 50.0)
    steps = engine.counters[0].steps
    canary = engine.submit(60.0, 4, 1)
    engine.advance(200.0)
    assert (engine.counters[0].steps, engine.produced(canary)) == (steps, 0)
    engine.clear(200.0)
    engine.advance(210.0)
    # What the hang lasted is not made up for afterwards.
    assert 0 < engine.counters[0].steps - steps < 1000
    assert engine.produced(canary) == 1


def test_starved_admission_lets_the_queue_grow() -> None:
    engine = SimulatedEngine(load=CoarseLoad(4.0))
    engine.inject(StarvedAdmission(max_running=1), 0.0)
    engine.advance(60.0)
    assert engine.counters[0].running <= 1
    assert engine.counters[0].waiting > 100


def test_a_stepping_engine_takes_no_load() -> None:
    with pytest.raises(TypeError, match="load"):
        SimulatedEngine().set_load(CoarseLoad(1.0), 0.0)


@pytest.mark.parametrize("bad", [{"requests_per_second": -1}, {"output_tokens": 1}, {"cached_share": 1.5}])
def test_a_load_out_of_bounds_is_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(bad)).split("_")[0]):
        CoarseLoad(**bad)  # type: ignore[arg-type]


def test_a_thousand_engines_advance_five_seconds_in_a_quarter_second_of_cpu() -> None:
    fleet = [SimulatedEngine(seed=seed, load=CoarseLoad(4.0)) for seed in range(1000)]
    for engine in fleet:
        engine.advance(5.0)
    begun = time.process_time()
    for engine in fleet:
        engine.advance(10.0)
    assert time.process_time() - begun < 0.25
