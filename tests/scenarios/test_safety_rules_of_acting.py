"""Safety rules 15 to 28: of acting, of what comes after, and of people; see `test_safety_rules.py`."""

import logging

import pytest

from kintsugi.ports.errors import Unavailable
from kintsugi.testing.fleet import Behaviour
from tests.scenarios.stage import Scene, warm
from tests.scenarios.test_safety_rules import SICK, WELL, fleet

FAST = {"probationSeconds": 60}


async def test_rule_15_attempts_are_reserved_before_they_run_and_counted_once() -> None:
    scene, (victim, *_) = await fleet(3)
    scene.engines.change(victim, **SICK)
    await scene.until_phase("Quarantined")
    order = [f"{w.verb} {w.kind}" for w in scene.cluster.writes]
    made = order.index("create Remediation")
    assert "status DeepSeekV4Deployment" in order[made - 3 : made], "the reservation stands first"
    assert order.index("patch Pod", made) > made, "and its object before anything is touched"
    for _ in range(3):
        scene.cluster.crash_after(1)  # kill -9 right after the next write, again and again
        await scene.run(400)
    scene.cluster.faults.spare()
    await scene.until_done()
    assert (scene.removals(), len(scene.remediations())) == ([victim], 1)
    await scene.run(60)
    (entry,) = scene.status.remediations.recent
    assert entry.attempt == 1


async def test_rule_16_evidence_of_one_process_never_kills_another() -> None:
    scene, (victim, *_) = await fleet(3)
    scene.engines.change(victim, hung=True)
    await scene.until_phase("Quarantined")
    scene.cluster.exit_container("llm", victim)  # the kubelet starts it again in place: same pod, new process
    await scene.run(900)
    assert (scene.removals(), scene.outcomes(), scene.rotation(victim)) == ([], ["Cancelled"], "in")
    assert "about another one" in scene.newest().status.message


async def sick_again(scene: Scene, count: int) -> str:
    """The newest replacement falls sick, too, once it is warm; name of the pod."""
    found = scene.newest().status.replacement
    assert found is not None
    await scene.run(1300)
    scene.engines.change(found.name, **SICK)
    await scene.run_until(lambda _: len(scene.remediations()) == count, 3600)
    return found.name


async def test_rule_17_steps_escalate_and_each_costs_budget() -> None:
    scene, (victim, *_) = await fleet(3, healing={**FAST, "ladder": ["Recreate", "RecreateElsewhere"]})
    scene.engines.change(victim, **SICK)
    await scene.until_done()
    await sick_again(scene, 2)
    done = await scene.until_done()
    assert (done.spec.remedy, done.spec.attempt) == ("RecreateElsewhere", 2)
    await scene.run(60)
    assert [r.counts_towards_budget for r in scene.status.remediations.recent] == [True, True]


async def test_rule_18_evidence_first_and_never_a_reason_to_wait() -> None:
    scene, (victim, *_) = await fleet(3)
    scene.cluster.log("llm", victim, "CUDA error: an illegal memory access", "api_key=abcdefgh")
    scene.engines.change(victim, **SICK)
    await scene.until_phase("Quarantined")
    scene.cluster.fail_next("list", "Event", Unavailable("no answer"), times=100)
    done = await scene.until_done()
    box = done.status.black_box
    assert box is not None
    assert box.taken_at is not None
    assert done.status.timeline.deleted is not None
    assert box.taken_at <= done.status.timeline.deleted
    assert box.logs == ("CUDA error: an illegal memory access", "api_key=[redacted]")
    assert len(box.pages) == 3
    assert box.missing == ("events: no answer",)
    assert scene.removals() == [victim]


async def test_rule_19_verified_by_a_real_request_and_not_by_ready_alone() -> None:
    scene, (victim, *_) = await fleet(3, healing=FAST)
    scene.engines.behaviour = lambda pod: Behaviour(canary_status=422)
    scene.engines.change(victim, **SICK)
    done = await scene.until_done(7200)
    assert done.status.outcome == "NotCured"
    assert scene.serving() == 3, "the replacement is Ready all the while"


async def test_rule_20_probation_and_what_it_finds_only_a_person_clears() -> None:
    scene, (victim, other, *_) = await fleet(4)
    scene.engines.change(victim, **SICK)
    probation = await scene.until_phase("Probation")
    assert probation.status.outcome is None
    assert probation.status.replacement is not None
    scene.engines.change(probation.status.replacement.name, hung=True)
    await scene.run_until(lambda _: scene.outcomes()[0] == "NotCured", 900)
    scene.engines.change(other, **SICK)
    await scene.run(2 * 3600)
    assert (scene.removals(), scene.withheld()[other]) == ([victim], "breaker")
    assert scene.condition("HealingAllowed") == ("False", "BreakerOpen")


async def test_rule_21_the_memory_of_attempts_decays() -> None:
    scene, (victim, *_) = await fleet(3, healing={**FAST, "ladder": ["Recreate", "RecreateElsewhere"]})
    scene.engines.change(victim, **SICK)
    await scene.until_done()
    await scene.run(2 * 3600)
    await sick_again(scene, 2)
    assert scene.newest().spec.remedy == "Recreate", "a new fault after a long healthy time is a new incident"


async def test_rule_22_giving_up_on_one_is_visible_and_the_pool_serves_on() -> None:
    scene, (victim, *_) = await fleet(3, healing={**FAST, "ladder": ["Recreate"]})
    scene.engines.change(victim, **SICK)
    await scene.until_done()
    again = await sick_again(scene, 2)
    done = await scene.until_done()
    assert (done.spec.instance.name, done.status.outcome) == (again, "Exhausted")
    await scene.run(3600)
    assert (scene.removals(), scene.serving()) == ([victim], 3)
    assert scene.withheld() == {again: "exhausted"}
    assert scene.told("RemediationExhausted") == 1


async def test_rule_23_if_it_made_things_worse_it_was_the_last() -> None:
    scene, (victim, second, third, fourth) = await fleet(4, healing=FAST)
    scene.engines.change(victim, **SICK)
    await scene.until_phase("Warming")
    for name in (second, third):
        scene.cluster.set_ready("llm", name, False)
    done = await scene.until_done()
    assert (done.status.outcome, "serves worse than before" in done.status.message) == ("NotCured", True)
    (stopped,) = scene.status.remediations.breakers
    assert stopped.reason == "WorseAfter"
    for name in (second, third):
        scene.cluster.set_ready("llm", name, True)
    scene.engines.change(fourth, **SICK)
    await scene.run(3600)
    assert (scene.removals(), scene.withheld()[fourth]) == ([victim], "breaker")


async def test_rule_24_observe_then_recommend_then_act_for_each_trigger() -> None:
    modes = {"mode": "Observe", "triggers": {"fragmentation": {"mode": "Recommend"}}}
    scene, (observed, victim, *_) = await fleet(healing=modes)
    scene.engines.change(observed, hung=True)
    await scene.run(600)
    assert (scene.remediations(), scene.withheld()) == ([], {observed: "mode"})
    scene.engines.change(observed, hung=False)
    scene.engines.change(victim, **SICK)
    mend = await scene.until_phase("AwaitingApproval")
    await scene.run(1200)
    assert (scene.removals(), scene.rotation(victim)) == ([], "in"), (
        "nothing is touched before a person says so"
    )
    assert "kubectl annotate mend" in scene.newest().status.message
    scene.approve(mend.metadata.name)
    done = await scene.until_done()
    assert (scene.removals(), done.status.outcome, done.status.approved_by) == ([victim], "Cured", "alice")


async def test_rule_25_a_pause_has_a_name_and_two_people_do_not_end_each_others() -> None:
    scene, (victim, *_) = await fleet(healing={"pauseRequests": ["audit"]})
    scene.annotate(**{"kintsugi.dev__pause.night": "by bob"})
    scene.engines.change(victim, **SICK)
    await scene.run(900)
    scene.annotate(**{"kintsugi.dev__pause.night": None})
    await scene.run(300)
    assert (scene.remediations(), scene.withheld()) == ([], {victim: "paused"})
    assert "audit" in scene.status.remediations.withheld[0].message
    scene.edit(healing={"pauseRequests": None})
    await scene.until_removed()
    assert scene.removals() == [victim]


async def test_rule_26_every_refusal_is_explained_and_every_action_leaves_its_proof(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "kintsugi.act")
    scene, names = await fleet(3)
    for name in names:
        scene.engines.change(name, **SICK)
    await scene.run(900)
    assert set(scene.withheld()) == set(names)
    assert all(entry.message for entry in scene.status.remediations.withheld)
    assert scene.told("HealingWithheld") >= 1
    for name in names:
        scene.engines.change(name, **WELL)
    await scene.run(1500)
    scene.engines.change(names[0], **SICK)
    done = await scene.until_done()
    assert "fragmentation" in done.status.why
    assert done.status.evidence
    assert len(done.status.gates) >= 15
    assert all(gate.open and gate.message for gate in done.status.gates)
    taken = [record.__dict__["action"] for record in caplog.records if record.message == "action taken"]
    assert {"Withdraw", "Release", "Evict"} <= set(taken)


async def test_rule_27_a_new_operator_first_watches_for_a_whole_window() -> None:
    scene, (victim, dead, *_) = await fleet(5)
    scene.engines.change(victim, **SICK)
    await scene.run(280)
    scene.restart()
    before, wrote = scene.cluster.clock.mono(), len(scene.cluster.writes)
    await scene.run(300)
    assert scene.writes("patch", "evict", "delete", "create", since=wrote) == []
    await scene.until_withdrawn(victim)
    assert scene.cluster.clock.mono() - before >= 300
    scene.engines.change(victim, **WELL)
    await scene.run(900)
    scene.cluster.fail_pod("llm", dead)
    scene.restart()
    await scene.run(30)
    assert (scene.removals(), scene.withheld()) == ([], {dead: "operatorStart"})
    await scene.until_removed()
    assert scene.removals() == [dead]


async def test_rule_28_budgets_and_not_the_client_limit_healing() -> None:
    budget = {"maxInFlightPerPool": 8, "maxPerPoolPer30Minutes": 8, "maxPerHour": 100}
    scene = await warm({"short": 30}, nodes=30, seconds=180, healing={"budget": budget})
    dead = scene.names_of("short")[:8]
    for name in dead:
        scene.cluster.fail_pod("llm", name)
    await scene.until_removed(8, within=600)
    at = {w.at for w in scene.cluster.writes if w.verb == "evict"}
    assert sorted(scene.removals()) == sorted(dead)
    assert len(at) == 1, "all in one pass, in the same second of simulated time"
