"""The suite that defines an authority's registry: who works, and how much there is.

The same tests run on every adapter, by a clock that is moved by hand.
"""

from __future__ import annotations

import functools
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

from harness.fleet.commands import Cancel, Claim, Fail, Recover, Retry, Stop, Succeed
from harness.fleet.ports import KEPT_S, Query, WorkerPresence
from harness.fleet.work_item import WorkItemState
from tests.conformance.work_items_rig import ADAPTERS, START, Rig

FIRST = WorkerPresence("first", ("k", "Ünï", "with blank"), 4, 1, 30.0, queue="q1")
SECOND = WorkerPresence("second", (), 1, 0, 0.3)


@pytest.fixture(params=ADAPTERS)
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(functools.partial(ADAPTERS[request.param], tmp_path))
    yield rig
    rig.close()


def tokens(rig: Rig, within_s: float = KEPT_S) -> list[str]:
    """As another client sees them."""
    return [each.token for each in rig.onlooker.workers(within_s)]


def test_who_beats_is_there_since_its_first_and_seen_at_its_last(rig: Rig) -> None:
    assert rig.onlooker.workers(KEPT_S) == ()
    rig.authority.beat(FIRST)
    rig.now += 30.0
    rig.authority.beat(attrs.evolve(FIRST, busy=4, queue="q2"))
    (seen,) = rig.onlooker.workers(KEPT_S)
    assert seen == attrs.evolve(FIRST, busy=4, queue="q2", started_at=START, seen_at=START + 30.0)


def test_the_longest_there_comes_first(rig: Rig) -> None:
    rig.authority.beat(SECOND)
    rig.now += 1.0
    rig.onlooker.beat(FIRST)
    rig.now += 1.0
    rig.authority.beat(SECOND)
    assert tokens(rig) == ["second", "first"]


def test_who_is_silent_is_not_heard_of_for_as_long_as_was_asked(rig: Rig) -> None:
    rig.authority.beat(FIRST)
    rig.now += 10.0
    assert tokens(rig, 10.0) == ["first"]
    assert tokens(rig, 9.0) == []


@pytest.mark.parametrize(("silence_s", "alive"), [(0.0, True), (90.0, True), (90.1, False)])
def test_one_beat_may_be_lost_and_one_be_late(silence_s: float, alive: bool) -> None:
    assert attrs.evolve(FIRST, seen_at=START).is_alive(START + silence_s) is alive


def test_who_takes_its_leave_is_gone_and_who_does_not_is_forgotten_some_day(rig: Rig) -> None:
    for presence in (FIRST, SECOND):
        rig.authority.beat(presence)
    rig.authority.leave("first")
    rig.authority.leave("first")  # again, no change
    rig.authority.leave("a stranger")
    assert tokens(rig) == ["second"]
    rig.now += KEPT_S + 1.0
    rig.authority.beat(FIRST)
    assert tokens(rig, 10 * KEPT_S) == ["first"]
    assert rig.onlooker.workers(KEPT_S)[0].started_at == rig.now


def test_a_tally_of_nothing(rig: Rig) -> None:
    tally = rig.onlooker.tally()
    assert (tally.at, sum(tally.items.values()), sum(tally.outcomes.values())) == (START, 0, 0)
    assert (tally.expired, tally.overdue, tally.overdue_s, dict(tally.due)) == (0, 0, 0.0, {})
    assert tally.schema >= 1


def test_a_tally_equals_what_is_counted_item_by_item(rig: Rig) -> None:
    dice = random.Random(11)
    for number in range(60):
        name = f"j{number}"
        rig.submit(name, kind=f"k{number % 3}", max_attempts=1 + number % 2)
        ends = dice.randrange(8)
        if ends == 0:
            rig.do(Cancel(name, "t", "not wanted"))
        elif ends == 1:
            rig.do(Claim(name, "t", "w", 5.0))  # and never begun
        elif ends < 7:
            lease = rig.start(name, ttl_s=20.0)
            done = {2: Succeed(lease), 3: Fail(lease, "bad"), 4: Retry(lease, "no luck"), 5: Stop(lease)}
            if ends in done:
                rig.do(done[ends])
        if number == 40:
            rig.now += 30.0
            rig.do(*(Recover(item.id, "t") for item in rig.authority.overtaken(7)))
    rig.now += 60.0
    items = rig.onlooker.search(Query(limit=1000))
    outcomes = [each for item in items for each in rig.onlooker.outcomes(item.id)]
    overdue = [rig.now - item.expires_at for item in items if item.owner and item.expires_at < rig.now]
    tally = rig.onlooker.tally()
    assert Counter(tally.items) == Counter(item.state for item in items)
    assert Counter(tally.outcomes) == Counter(each.ended for each in outcomes)
    assert tally.expired == sum(each.expired for each in outcomes) > 0
    assert tally.overdue == len(overdue) > 0
    assert tally.overdue_s == pytest.approx(max(overdue))
    assert Counter(tally.due) == Counter(item.kind for item in items if item.state is WorkItemState.READY)


def test_what_is_not_due_yet_is_not_counted_as_due(rig: Rig) -> None:
    rig.submit("a", not_before=START + 10.0)
    assert dict(rig.onlooker.tally().due) == {}
    rig.now += 10.0
    assert dict(rig.onlooker.tally().due) == {"chat": 1}


def test_a_lease_that_ran_out_is_a_failure_of_it_and_no_other_end_is(rig: Rig) -> None:
    """By whoever puts it in order: one that recovers, one that claims, one that cancels."""
    for name in ("a", "b", "c", "d"):
        rig.submit(name, max_attempts=5)
    for name in ("a", "b", "c"):
        rig.start(name, ttl_s=10.0)
    rig.do(Retry(rig.start("d", ttl_s=10.0), "no luck"))
    rig.now += 20.0
    assert (rig.authority.tally().expired, rig.authority.tally().overdue) == (0, 3)
    rig.do(Recover("a", "t"))
    rig.start("b")
    rig.do(Cancel("c", "t", "not wanted"))
    tally = rig.onlooker.tally()
    assert (tally.expired, tally.overdue) == (3, 0)
