"""Engines that answer with errors: which is replaced, and which is left alone."""

from tests.scenarios.stage import UNHURRIED, warm


async def test_an_engine_that_fails_half_of_its_requests_and_canaries_is_replaced() -> None:
    scene = await warm({"short": 3}, then=5)
    victim = scene.names_of("short")[0]
    scene.engines.change(victim, errors=0.5, canary_errors=0.5)
    assert await scene.until_withdrawn(victim) <= 300
    done = await scene.until_done(every=UNHURRIED)
    assert (done.status.outcome, scene.removals()) == ("Cured", [victim])
    assert done.spec.trigger == "errors"
    assert scene.engines.asked, "the replacement answered a real request"


async def test_errors_that_follow_one_clients_requests_remove_nobody() -> None:
    scene = await warm({"short": 3}, then=5)
    victim = scene.names_of("short")[0]
    scene.engines.change(victim, errors=0.5)
    await scene.run(900)
    assert scene.removals() == []
    assert {each.verdict for each in scene.status.instances} == {"Healthy"}


async def test_errors_that_the_whole_pool_has_remove_nobody() -> None:
    scene = await warm({"short": 3}, then=5)
    for name in scene.names_of("short"):
        scene.engines.change(name, errors=0.5, canary_errors=0.5)
    await scene.run(900)
    assert scene.removals() == []


async def test_an_engine_that_recovers_in_the_hold_is_given_back() -> None:
    scene = await warm({"short": 3}, then=5, healing={"storm": {"holdSeconds": 1200}})
    victim = scene.names_of("short")[0]
    scene.engines.change(victim, errors=0.5, canary_errors=0.5)
    await scene.until_withdrawn(victim)
    scene.engines.change(victim, errors=0.0, canary_errors=0.0)
    done = await scene.until_done(every=UNHURRIED)
    assert (done.status.outcome, scene.removals()) == ("Cancelled", [])
    assert scene.rotation(victim) == "in"


async def test_a_trigger_that_observes_says_what_it_would_have_done() -> None:
    scene = await warm({"short": 3}, then=5, healing={"triggers": {"errors": {"mode": "Observe"}}})
    victim = scene.names_of("short")[0]
    scene.engines.change(victim, errors=0.5, canary_errors=0.5)
    await scene.run(600)
    assert scene.withheld() == {victim: "mode"}
    assert scene.removals() == []
