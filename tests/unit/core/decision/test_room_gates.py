"""Gates about what lies outside of the fleet: budgets of others, quotas, nodes, and the operator's own youth."""

from dataclasses import replace
from typing import Any

import pytest

from kintsugi.core import gate
from kintsugi.core.moment import moment
from kintsugi.core.poolview import pool_views
from kintsugi.core.question import Answer, Question
from kintsugi.core.room_gates import capacity, disruption_budget, operator_start
from kintsugi.core.snapshot import Cover, NodeRoom, Quota
from tests.unit.core.decision.made import spec
from tests.unit.core.decision.test_gates import attempt, question
from tests.unit.core.decision.world import running_world


def asked(nodes: tuple[NodeRoom, ...] | None = None, node: str = "n1", **more: Any) -> Question:
    """The question about the first pod, on `node`, with this much room and these limits."""
    q = question(running_world(spec(4)))
    seen = replace(q.snapshot, nodes=nodes, **more)
    (view,) = pool_views(seen, [q.view.pool], q.view.verdicts)
    return replace(q, snapshot=seen, view=view, instance=replace(q.instance, node=node))


def cover(name: str = "theirs", blocks: bool = True, never: bool = False) -> Cover:
    return Cover(name, blocks, never)


def limits(q: Question, *found: Cover) -> Question:
    return replace(q, snapshot=replace(q.snapshot, covers={q.instance.uid: found}))


FULL = (NodeRoom("n1", True, True, 0), NodeRoom("n2", True, True, 0))
SPARE = (NodeRoom("n1", True, True, 0), NodeRoom("n2", True, True, 1))


@pytest.mark.parametrize(
    ("nodes", "found", "is_open"),
    [
        (FULL, (), True),
        (FULL, (cover(blocks=False),), True),
        (FULL, (cover(),), False),
        (SPARE, (cover(),), True),
        (SPARE, (cover(never=True),), False),
        (SPARE, (cover("a", blocks=False), cover("b", blocks=False)), False),
    ],
)
def test_a_budget_of_somebody_else_is_waited_for(
    nodes: tuple[NodeRoom, ...], found: tuple[Cover, ...], is_open: bool
) -> None:
    answer = disruption_budget(limits(asked(nodes), *found))
    assert answer.open is is_open
    assert is_open or found[0].name in answer.message


@pytest.mark.parametrize(
    ("nodes", "is_open", "says"),
    [
        (None, True, "not known"),
        ((), True, "not known"),
        (SPARE, True, "room for 1 more"),
        (FULL, True, "frees its own"),
        ((NodeRoom("n1", True, False, 0), FULL[1]), False, "cordoned"),
        ((NodeRoom("n1", False, True, 0), FULL[1]), False, "not Ready"),
        ((NodeRoom("n1", True, True, -1), FULL[1]), False, "fewer healthy GPUs"),
        ((FULL[1],), False, "gone"),
        ((NodeRoom("n1", True, False, 0), SPARE[1]), True, "room for 1 more"),
    ],
)
def test_a_replacement_must_have_room_with_what_the_sick_one_frees(
    nodes: tuple[NodeRoom, ...] | None, is_open: bool, says: str
) -> None:
    answer = capacity(asked(nodes))
    assert (answer.open, says in answer.message) == (is_open, True), answer.message


@pytest.mark.parametrize(("room", "is_open", "more"), [(2, True, 1), (0, True, 0), (-1, False, 0)])
def test_a_quota_that_is_full_means_removal_first_and_one_that_is_overdrawn_none(
    room: int, is_open: bool, more: int
) -> None:
    q = asked(SPARE, quotas={"main": Quota("limits", "requests.nvidia.com/gpu", room)})
    answer = capacity(q)
    assert answer.open is is_open
    assert q.view.room == more, "no surge into a full quota"
    assert is_open or "limits" in answer.message


@pytest.mark.parametrize(("seconds", "is_open"), [(0.0, False), (59.0, False), (60.0, True)])
def test_a_young_operator_watches_first(seconds: float, is_open: bool) -> None:
    q = asked(FULL)
    young = replace(q, snapshot=replace(q.snapshot, observed_since=q.snapshot.mono - seconds))
    answer = operator_start(young)
    assert answer.open is is_open
    assert answer.next_check == (None if is_open else young.snapshot.now + 60.0 - seconds)


def test_who_holds_the_slot_is_said_with_what_it_does_and_until_when() -> None:
    world = running_world(spec(4))
    other = attempt(world, world.members()[1], phase="Probation", warm_at=moment(world.now - 100))
    answer: Answer = gate.in_flight(question(world, active=(other,)))
    assert not answer.open
    assert "on probation" in answer.message
    assert answer.next_check == pytest.approx(world.now + 500)
