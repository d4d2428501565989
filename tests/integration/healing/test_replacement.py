"""Memory that falls to pieces, and which way the instance is replaced: by what room there is, and who stands beside it.

All fleets of this file warm up side by side, each in its own namespace.
"""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.integration.fleet import CALM_SPEED_UP, MARGIN, PATIENCE, Fleet, in_rotation, is_ready
from tests.integration.gpus import no_free_gpu
from tests.integration.installed import Release
from tests.integration.sight import Json

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

SIZES = {"surge": 3, "deleteFirst": 2, "clears": 2, "oneWithRoom": 1, "oneWithout": 1}


@pytest.fixture(scope="module")
def warm(installed: Release) -> Iterator[dict[str, Fleet]]:
    """A fleet for each story, warmed up and known to be calm."""
    fleets = {story: Fleet(installed.cluster, installed.image) for story in SIZES}
    for story, fleet in fleets.items():
        fleet.apply({"short": SIZES[story]}, {"rehearsal": {"speedUp": CALM_SPEED_UP}})
    with ThreadPoolExecutor(len(fleets)) as side_by_side:
        for waiting in [side_by_side.submit(fleet.wait_until_warm, calm=True) for fleet in fleets.values()]:
            waiting.result()
    yield fleets
    for fleet in fleets.values():
        fleet.close()


def fragment(fleet: Fleet) -> Json:
    """Let the memory of the oldest engine fall to pieces; its pod."""
    victim = fleet.pods()[0]
    fleet.engines.inject(victim["metadata"]["name"], "fragmentation", percent=60)
    return victim


def test_with_a_free_gpu_the_replacement_starts_first_and_no_request_fails(
    warm: dict[str, Fleet],
) -> None:
    fleet = warm["surge"]
    before = fleet.uids()
    with fleet.traffic(short=4) as sent:
        victim = fragment(fleet)
        uid = victim["metadata"]["uid"]
        withdrawn = fleet.wait_until_withdrawn(victim)
        mend = fleet.wait_until_done()
    done = mend["status"]
    assert (done["outcome"], done["path"], done["streamsCut"]) == ("Cured", "Surge", 0)
    assert fleet.ended() == {uid}
    assert fleet.uids() == before - {uid} | {done["replacement"]["uid"]}
    assert [one.error for one in sent if one.error] == []
    assert len(sent) > 40

    line = done["timeline"]
    steps = ["detected", "decided", "withdrawn", "released", "drained", "deleted", "ready", "verified"]
    assert [line[step] for step in steps] == sorted(line[step] for step in steps)
    assert mend["spec"]["instance"]["uid"] == uid
    assert mend["spec"]["trigger"] == "fragmentation"
    assert any(e["signal"].startswith("fragmentation") and e["value"] == 60.0 for e in done["evidence"])
    assert all(gate["open"] for gate in done["gates"])
    told = {"InstanceSick", "Withdrawn", "Released", "Evicting", "Replaced", "RemediationCured"}
    fleet.sight.wait(f"events {told}", lambda: told <= fleet.events(), PATIENCE)

    sick = fleet.sick_at(uid)
    assert sick is not None
    created = fleet.created_at(done["replacement"]["uid"])
    figures = {"verdict to withdrawn": withdrawn - sick, "hold over": created - sick - fleet.times.hold}
    print({what: round(seconds, 2) for what, seconds in figures.items()})
    assert figures["verdict to withdrawn"] <= 5.0
    assert figures["hold over"] >= -MARGIN
    assert figures["hold over"] <= 5.0


def test_without_a_free_gpu_the_sick_one_goes_first(warm: dict[str, Fleet]) -> None:
    fleet = warm["deleteFirst"]
    before = fleet.uids()
    with no_free_gpu(fleet.cluster, fleet.namespace):
        victim = fragment(fleet)
        uid = victim["metadata"]["uid"]
        fleet.wait_until_withdrawn(victim)
        done = fleet.wait_until_done()["status"]
    replacement = done["replacement"]["uid"]
    assert (done["outcome"], done["path"]) == ("Cured", "DeleteFirst")
    assert "released" not in done["timeline"]
    assert fleet.ended() == {uid}
    assert fleet.uids() == before - {uid} | {replacement}
    ending = fleet.ending_at(uid)
    assert ending is not None
    assert fleet.created_at(replacement) >= ending


def test_a_trigger_that_clears_after_the_withdrawal_gives_the_pod_back_untouched(
    warm: dict[str, Fleet],
) -> None:
    fleet = warm["clears"]
    before = fleet.uids()
    # Long enough for the memory to be whole again before the hold is over.
    fleet.edit(healing=fleet.manifest["spec"]["healing"] | {"storm": {"holdSeconds": 1200}})
    victim = fragment(fleet)
    name = victim["metadata"]["name"]
    fleet.wait_until_withdrawn(victim)
    fleet.engines.clear(name)
    done = fleet.wait_until_done()["status"]
    assert done["outcome"] == "Cancelled"
    fleet.sight.wait(
        "the pod is back", lambda: in_rotation(fleet.sight.now("pods")[name]) and fleet.ended() == set(), 10
    )
    assert fleet.uids() == before
    # The EndpointSlice follows the label by a moment of its own.
    address = victim["status"]["podIP"]
    fleet.sight.wait("the Service sends to it again", lambda: address in fleet.addresses("short"), 10)


def test_the_only_instance_serves_until_its_replacement_is_ready(warm: dict[str, Fleet]) -> None:
    fleet = warm["oneWithRoom"]
    with fleet.traffic(short=2) as sent:
        victim = fragment(fleet)
        withdrawn = fleet.wait_until_withdrawn(victim)
        done = fleet.wait_until_done()["status"]
    assert (done["outcome"], done["path"]) == ("Cured", "Surge")
    assert fleet.ended() == {victim["metadata"]["uid"]}
    assert fleet.ready_at(done["replacement"]["uid"]) <= withdrawn
    assert [one.error for one in sent if one.error] == []


def test_without_room_the_only_instance_is_left_alone_while_it_serves_and_replaced_when_it_hangs(
    warm: dict[str, Fleet],
) -> None:
    fleet = warm["oneWithout"]
    with no_free_gpu(fleet.cluster, fleet.namespace):
        victim = fragment(fleet)
        name, uid = victim["metadata"]["name"], victim["metadata"]["uid"]
        fleet.sight.wait(
            "it is withheld", lambda: fleet.withheld(name) == "poolOfOne", PATIENCE + fleet.times.hold
        )
        time.sleep(2 * fleet.times.hold)
        assert fleet.ended() == set()
        assert fleet.withdrawn_at(uid) is None
        assert is_ready(fleet.sight.now("pods")[name])

        fleet.engines.clear(name)
        fleet.engines.inject(name, "hang")
        # Its first attempt may be cancelled meanwhile, since fragmentation cleared: the hang is another's.
        fleet.sight.wait("it is removed", lambda: fleet.ended() == {uid}, 2 * PATIENCE)
        done = fleet.wait_until_done(2 * PATIENCE)["status"]
    assert done["outcome"] == "Cured"
    assert fleet.ended() == {uid}
    assert len(fleet.pods()) == 1
