"""An engine that hangs behind a healthy `/health` (S15): withdrawn, removed, replaced, while its sibling serves."""

import pytest

from tests.integration.fleet import Fleet

pytestmark = pytest.mark.cluster

ENDPOINT_SECONDS = 1.0
"""The design's bar from withdrawal to the last new request: EndpointSlice first, then every node's kube-proxy."""
ACTION_SECONDS = 5.0
"""The design's bars from verdict to withdrawal, and from the end of the hold to the replacement."""


def test_a_hanging_engine_is_replaced_and_nobody_but_those_already_inside_it_loses_a_request(
    fleet: Fleet,
) -> None:
    fleet.apply({"short": 2})
    victim, other = fleet.wait_until_warm()
    name, uid = victim["metadata"]["name"], victim["metadata"]["uid"]
    with fleet.traffic(short=4) as sent:
        fleet.engines.inject(name, "hang")
        withdrawn = fleet.wait_until_withdrawn(victim)
        done = fleet.wait_until_done()["status"]
    replacement = done["replacement"]["uid"]
    assert (done["outcome"], done["path"]) == ("Cured", "Surge")
    assert fleet.ended() == {uid}
    assert fleet.uids() == {other["metadata"]["uid"], replacement}

    sick, out = fleet.sick_at(uid), fleet.out_of_endpoints_at(victim, "short")
    assert sick is not None
    assert out is not None
    held = max(sick + fleet.times.hold, sick - fleet.times.stall_withdraw + fleet.times.stall_remove)
    figures = {
        "verdict to withdrawn": withdrawn - sick,
        "withdrawn to out of the endpoints": out - withdrawn,
        "hold over to replacement created": fleet.created_at(replacement) - held,
    }
    print({what: round(seconds, 2) for what, seconds in figures.items()})
    assert figures["verdict to withdrawn"] <= ACTION_SECONDS, figures
    assert figures["withdrawn to out of the endpoints"] <= ENDPOINT_SECONDS, figures
    assert figures["hold over to replacement created"] <= ACTION_SECONDS, figures

    lost = {one.id: round(one.started - withdrawn, 2) for one in sent if one.error}
    late = {request: after for request, after in lost.items() if after > ENDPOINT_SECONDS}
    assert late == {}, f"lost requests, sent so many seconds after the withdrawal: {lost}"
    assert sum(1 for one in sent if not one.error and one.started > out) > 20, "its sibling served on"
