"""Simulated time."""

import asyncio

import pytest

from kintsugi.testing.clock import EPOCH, SimulatedClock, settle


async def test_sleepers_wake_in_the_order_of_their_time(clock: SimulatedClock) -> None:
    woken: list[tuple[str, float]] = []

    async def sleeper(name: str, seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append((name, clock.mono()))

    tasks = [asyncio.create_task(sleeper(name, seconds)) for name, seconds in (("b", 2), ("a", 1), ("c", 2))]
    await clock.advance(5)
    assert woken == [("a", 1), ("b", 2), ("c", 2)]
    assert (clock.mono(), clock.now()) == (5, EPOCH + 5)
    await asyncio.gather(*tasks)


async def test_a_loop_that_sleeps_goes_round_as_often_as_time_allows(clock: SimulatedClock) -> None:
    rounds = 0

    async def loop() -> None:
        nonlocal rounds
        while True:
            await clock.sleep(5)
            rounds += 1

    task = asyncio.create_task(loop())
    await clock.advance(3600)
    assert rounds == 720
    task.cancel()


async def test_a_cancelled_sleeper_leaves_no_timer(clock: SimulatedClock) -> None:
    task = asyncio.create_task(clock.sleep(10))
    await settle()
    assert clock.next_due() == 10
    task.cancel()
    await settle()
    assert clock.next_due() is None


async def test_no_time_is_no_wait(clock: SimulatedClock) -> None:
    await clock.sleep(0)
    await clock.sleep(-1)
    assert clock.mono() == 0


def test_a_timer_set_by_a_timer_fires_within_the_same_move(clock: SimulatedClock) -> None:
    fired: list[float] = []
    clock.call_later(1, lambda: clock.call_later(1, lambda: fired.append(clock.mono())))
    clock.move(3)
    assert fired == [2]


def test_a_jump_moves_the_wall_clock_alone(clock: SimulatedClock) -> None:
    fired: list[float] = []
    clock.call_later(10, lambda: fired.append(clock.mono()))
    clock.jump(3600)
    assert (clock.mono(), clock.now(), fired) == (0, EPOCH + 3600, [])
    clock.jump(-7200)
    assert clock.now() == EPOCH - 3600


async def test_a_task_that_never_waits_is_told_of() -> None:
    async def spin() -> None:
        for _ in range(1000):
            await asyncio.sleep(0)

    task = asyncio.create_task(spin())
    with pytest.raises(RuntimeError, match="still busy"):
        await settle(most=50)
    task.cancel()


@pytest.fixture
def clock() -> SimulatedClock:
    return SimulatedClock()
