"""The suite that defines a joint: what concerns authority and queue happens in one transaction, or not at all."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from harness.fleet.commands import Claim, Defer, Succeed
from harness.fleet.errors import ItemExistsError, LeaseLostError, QueueFullError, UnknownItemError, WrongStateError
from harness.fleet.opening import Fleet
from harness.fleet.work_item import WorkItem, WorkItemState
from tests.conformance.joint_rig import (
    LIMIT_S,
    PLACES,
    begin,
    ending,
    joint_of,
    opened,
    opening,
    settle,
    state,
    turn,
)

READY, SUBMITTED = WorkItemState.READY, WorkItemState.SUBMITTED
RUNNING, SUCCEEDED = WorkItemState.RUNNING, WorkItemState.SUCCEEDED


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return PLACES[request.param](tmp_path)


@pytest.fixture
def fleet(place: str) -> Iterator[Fleet]:
    with opened(place) as made:
        yield made


# -- admission ---------------------------------------------------------------------------------------------------------


def test_an_item_is_told_as_it_stands_and_delivered_as_it_is(fleet: Fleet) -> None:
    fleet.queue.submit(turn("before"))
    item = fleet.queue.submit(turn("a", priority=1))
    assert item == fleet.authority.find(["a"])["a"]
    assert item.state is READY and item.delivered
    envelopes = [delivery.envelope for delivery in fleet.transport.receive(9, 0.0)]
    assert [each.job_id for each in envelopes if each is not None] == ["a", "before"]
    assert item.envelope(item.changed_at) in envelopes


def test_what_needs_no_delivery_gets_none(fleet: Fleet) -> None:
    results = fleet.queue.submit_many([turn("a"), turn("b", depends_on=("a",))])
    assert [(each.state, each.delivered) for each in results if isinstance(each, WorkItem)] == [
        (READY, True),
        (SUBMITTED, False),
    ]
    assert not fleet.queue.submit(turn("later", not_before=2e9)).delivered
    assert fleet.transport.depth() == 1


def test_submitted_again_it_is_no_other_and_has_no_second_delivery(fleet: Fleet) -> None:
    first = fleet.queue.submit(turn("a"))
    assert joint_of(fleet).admit([turn("a")], 100) is None
    assert joint_of(fleet).admit([turn("b"), turn("a")], 100) is None
    assert fleet.authority.find(["b"]) == {}, "all or none"
    assert fleet.queue.submit(turn("a")) == first
    with pytest.raises(ItemExistsError):
        fleet.queue.submit(turn("a", priority=0))
    assert fleet.transport.depth() == 1


def test_named_twice_it_is_one(fleet: Fleet) -> None:
    one, same = fleet.queue.submit_many([turn("a"), turn("a")])
    assert one == same and fleet.transport.depth() == 1


def test_what_can_not_be_is_refused_by_itself(fleet: Fleet) -> None:
    refused, fine = fleet.queue.submit_many([turn("a", depends_on=("nobody",)), turn("b")])
    assert isinstance(refused, UnknownItemError) and isinstance(fine, WorkItem)
    assert fleet.transport.depth() == 1


def test_a_refused_admission_leaves_nothing(fleet: Fleet, place: str) -> None:
    with opened(place, depth=3) as small:
        results = small.queue.submit_many([turn(name) for name in "abcde"])
        assert [isinstance(each, WorkItem) for each in results] == [True] * 3 + [False] * 2
        with pytest.raises(QueueFullError):
            small.queue.submit(turn("f"))
        assert joint_of(small).admit([turn("g")], 3) is None
        assert sorted(fleet.authority.find(list("abcdefg"))) == ["a", "b", "c"]
        assert fleet.transport.depth() == 3


def test_many_at_once_never_exceed_the_bound_and_leave_no_orphans(place: str) -> None:
    with contextlib.ExitStack() as stack:
        fleets = [stack.enter_context(opened(place, depth=10)) for _ in range(8)]
        go = threading.Barrier(len(fleets))

        def submit(number: int) -> list[str]:
            go.wait(LIMIT_S)
            accepted = []
            for other in range(5):
                with contextlib.suppress(QueueFullError):
                    accepted.append(fleets[number].queue.submit(turn(f"{number}-{other}")).id)
            return accepted

        with ThreadPoolExecutor(len(fleets)) as pool:
            accepted = [name for names in pool.map(submit, range(len(fleets))) for name in names]
        assert len(accepted) == fleets[0].transport.depth() == 10
        everybody = [f"{number}-{other}" for number in range(8) for other in range(5)]
        assert sorted(fleets[0].authority.find(everybody)) == sorted(accepted)


def test_the_same_submitted_by_all_at_once_is_one(place: str) -> None:
    with contextlib.ExitStack() as stack:
        fleets = [stack.enter_context(opened(place)) for _ in range(6)]
        go = threading.Barrier(len(fleets))

        def submit(number: int) -> list[WorkItem]:
            go.wait(LIMIT_S)
            return [fleets[number].queue.submit(turn(f"{name}")) for name in range(10)]

        with ThreadPoolExecutor(len(fleets)) as pool:
            seen = list(pool.map(submit, range(len(fleets))))
        assert all([item.id for item in items] == [f"{name}" for name in range(10)] for items in seen)
        assert fleets[0].transport.depth() == 10


# -- ends and beginnings -----------------------------------------------------------------------------------------------


def test_an_end_is_written_down_acknowledged_and_unlocked(fleet: Fleet, place: str) -> None:
    ((one, item),) = begin(fleet, "a")
    settled = settle(fleet, [ending(one, item)])
    assert [each.state for each in settled.endings if isinstance(each, WorkItem)] == [SUCCEEDED]
    assert fleet.transport.depth() == 0
    with opened(place) as other:
        assert other.authority.lock_sessions([("t", "of a")]) == (True,)


def test_ends_and_beginnings_go_together(fleet: Fleet, place: str) -> None:
    ((one, item),) = begin(fleet, "a")
    fleet.queue.submit(turn("b"))
    (next_one,) = fleet.transport.receive(9, LIMIT_S)
    settled = settle(fleet, [ending(one, item)], [opening(next_one)])
    assert (state(fleet, "a"), state(fleet, "b"), settled.locked) == (SUCCEEDED, RUNNING, (True,))
    assert fleet.transport.depth() == 1
    with opened(place) as other:
        assert other.authority.lock_sessions([("t", "of a"), ("t", "of b")]) == (True, False)


def test_who_lost_the_lease_acknowledges_nothing(fleet: Fleet, place: str) -> None:
    (one, item), (two, other_item) = begin(fleet, "a", "b")
    fleet.authority.perform([Defer(item.lease, "given back")])
    lost, fine = settle(fleet, [ending(one, item), ending(two, other_item)]).endings
    assert isinstance(lost, LeaseLostError) and isinstance(fine, WorkItem)
    assert fleet.transport.depth() == 1, "the other's is gone"
    with opened(place) as other:
        assert other.authority.lock_sessions([("t", "of a"), ("t", "of b")]) == (True, True)


def test_a_claim_that_is_refused_keeps_no_lock(fleet: Fleet, place: str) -> None:
    fleet.queue.submit(turn("a"))
    (one,) = fleet.transport.receive(9, LIMIT_S)
    (item,) = fleet.authority.perform([Claim("a", "t", "somebody", 60.0, starts=True)])
    assert isinstance(item, WorkItem)
    fleet.authority.perform([Succeed(item.lease)])
    assert isinstance(settle(fleet, openings=[opening(one)]).openings[0], WrongStateError)
    assert fleet.transport.depth() == 1, "who claims in vain has not acknowledged"
    with opened(place) as other:
        assert other.authority.lock_sessions([("t", "of a")]) == (True,)


def test_a_lock_that_somebody_holds_is_told_and_stays_theirs(fleet: Fleet, place: str) -> None:
    fleet.queue.submit(turn("a"))
    (one,) = fleet.transport.receive(9, LIMIT_S)
    with opened(place) as other:
        assert other.authority.lock_sessions([("t", "of a")]) == (True,)
        settled = settle(fleet, openings=[opening(one)])
        assert settled.locked == (False,)
        assert [each.state for each in settled.openings if isinstance(each, WorkItem)] == [RUNNING]
        assert fleet.authority.seize_sessions([("t", "of a")]) == (True,)


def test_an_acknowledgement_that_is_anothers_by_now_leaves_the_end_alone(fleet: Fleet) -> None:
    ((one, item),) = begin(fleet, "a")
    assert fleet.transport.give_back([one.receipt], 0.0) == (None,)
    (again,) = fleet.transport.receive(9, LIMIT_S)
    (ended,) = settle(fleet, [ending(one, item)]).endings
    assert isinstance(ended, WorkItem) and ended.state is SUCCEEDED
    assert fleet.transport.depth() == 1
    assert fleet.transport.acknowledge([again.receipt]) == (None,)


def test_acknowledged_again_by_the_queue_itself_it_is_done(fleet: Fleet) -> None:
    ((one, item),) = begin(fleet, "a")
    settle(fleet, [ending(one, item)])
    assert fleet.transport.acknowledge([one.receipt]) == (None,)
