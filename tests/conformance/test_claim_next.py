"""The suite that defines who is next where there is no transport, on every adapter of an authority."""

from __future__ import annotations

import functools
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from harness.fleet.claiming import claim_next
from harness.fleet.commands import Deliver, Start, Succeed
from harness.fleet.work_item import WorkItem, WorkItemState
from tests.conformance.work_items_rig import ADAPTERS, TTL_S, Rig

LIMIT_S = 30.0


@pytest.fixture(params=ADAPTERS)
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(functools.partial(ADAPTERS[request.param], tmp_path))
    yield rig
    rig.close()


def names(items: tuple[WorkItem, ...]) -> list[str]:
    return [item.id for item in items]


def test_the_most_urgent_comes_first_then_the_earliest_deadline_then_the_first_to_come(rig: Rig) -> None:
    for name, priority, deadline in (
        ("last", 3, 1.0),
        ("second", 2, None),
        ("third", 2, None),
        ("soon", 2, 9.0),
        ("sooner", 2, 5.0),
        ("now", 0, None),
    ):
        rig.submit(name, priority=priority, deadline=None if deadline is None else rig.now + deadline)
    assert names(claim_next(rig.authority, "w", TTL_S)) == ["now"]
    assert names(claim_next(rig.authority, "w", TTL_S, limit=2)) == ["sooner", "soon"]
    assert names(claim_next(rig.authority, "w", TTL_S, limit=9)) == ["second", "third", "last"]
    assert claim_next(rig.authority, "w", TTL_S) == ()


def test_it_is_leased_and_begun_if_asked(rig: Rig) -> None:
    rig.submit("a")
    rig.submit("b")
    (leased,) = claim_next(rig.authority, "w", TTL_S)
    (running,) = claim_next(rig.authority, "w", TTL_S, starts=True)
    assert [(item.state, item.owner, item.attempt) for item in (leased, running)] == [
        (WorkItemState.LEASED, "w", 0),
        (WorkItemState.RUNNING, "w", 1),
    ]
    assert rig.look("a") == leased and rig.look("b") == running


def test_what_has_a_delivery_what_waits_and_what_is_not_due_is_not_next(rig: Rig) -> None:
    rig.submit("delivered")
    rig.do(Deliver("delivered", "t"))
    rig.submit("waits", depends_on=("delivered",))
    rig.submit("later", not_before=rig.now + 10)
    assert claim_next(rig.authority, "w", TTL_S) == ()
    rig.now += 10
    assert names(claim_next(rig.authority, "w", TTL_S, limit=9)) == ["later"]


def test_of_a_session_one_is_claimed_at_a_time(rig: Rig) -> None:
    for name, session_id in (("a", "one"), ("b", "one"), ("c", "two"), ("d", "one")):
        rig.submit(name, session_id=session_id)
    first, other = claim_next(rig.authority, "w", TTL_S, limit=9)
    assert names((first, other)) == ["a", "c"]
    assert claim_next(rig.authority, "v", TTL_S) == ()
    rig.item(Succeed(rig.item(Start(first.lease)).lease))
    assert names(claim_next(rig.authority, "v", TTL_S, limit=9)) == ["b"]


def test_whose_lease_ran_out_is_next_before_all_others(rig: Rig) -> None:
    rig.submit("a", priority=3)
    rig.submit("same", session_id="session of a", priority=0)
    rig.claim("a", "dead", ttl_s=10.0)
    rig.submit("b", priority=1)
    rig.now += 10.5
    assert names(claim_next(rig.authority, "w", TTL_S)) == ["a"]
    assert rig.look("a").epoch == 2
    assert names(claim_next(rig.authority, "w", TTL_S, limit=9)) == ["b"], "its session is worked on again"


def test_whose_deadline_has_passed_is_cancelled_on_the_way(rig: Rig) -> None:
    rig.submit("late", priority=0, deadline=rig.now + 1)
    rig.submit("fine")
    rig.now += 2
    assert names(claim_next(rig.authority, "w", TTL_S)) == ["fine"]
    assert rig.look("late").state is WorkItemState.CANCELLED


def test_only_what_is_wanted_is_claimed(rig: Rig) -> None:
    for name, tenant, kind in (("a", "t", "x"), ("b", "t", "y"), ("c", "u", "x"), ("d", "u", "z")):
        rig.submit(name, tenant=tenant, kind=kind)
    assert names(claim_next(rig.authority, "w", TTL_S, limit=9, tenant="u", kinds=["x", "y"])) == ["c"]
    assert names(claim_next(rig.authority, "w", TTL_S, limit=9, kinds={"y"})) == ["b"]
    assert claim_next(rig.authority, "w", TTL_S, tenant="nobody\n") == ()
    assert claim_next(rig.authority, "w", TTL_S, kinds=["no\nkind"]) == ()
    assert names(claim_next(rig.authority, "w", 1.0, limit=9)) == ["a", "d"]
    rig.now += 2
    assert names(claim_next(rig.authority, "v", 1.0, limit=9, tenant="u")) == ["d"]
    assert names(claim_next(rig.authority, "v", 1.0, limit=9, kinds=["x"])) == ["a"]


def test_many_claim_at_once_and_each_item_is_one_of_theirs(rig: Rig) -> None:
    for number in range(30):
        rig.submit(f"{number:02}")
    clients = [rig.another() for _ in range(5)]
    go = threading.Barrier(len(clients))

    def claim(place: int) -> list[str]:
        go.wait(LIMIT_S)
        claimed: list[str] = []
        while found := claim_next(clients[place], f"w{place}", TTL_S, limit=3):
            claimed += names(found)
        return claimed

    with ThreadPoolExecutor(len(clients)) as pool:
        counts = Counter(name for claimed in pool.map(claim, range(len(clients))) for name in claimed)
    assert counts == {f"{number:02}": 1 for number in range(30)}
