"""The order of claims, as a sort: each key decides where all before it are equal."""

from __future__ import annotations

import pytest

from harness.fleet.envelope import AgentTurnEnvelope, opaque
from harness.fleet.fairness import History, Waiting, claim, order_key

NOW = 100.0


def waiting(job_id: str, tenant: str = "t", group: str = "", **fields: object) -> Waiting:
    return Waiting(job_id, tenant, group or f"group of {job_id}", **fields)  # type: ignore[arg-type]


HISTORY = History(9, {"seldom": 3, "often": 8}, {"g3": 3, "g8": 8})


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (waiting("z", "often", "g8", priority=3, deadline=99.9), waiting("a", "new", priority=0)),
        (waiting("z", "often", "g8", priority=1), waiting("a", "new", priority=2, deadline=101)),
        (waiting("z", "new", priority=2, enqueued_at=9), waiting("a", "seldom", priority=2)),
        (waiting("z", "seldom", "g8", enqueued_at=9), waiting("a", "often", "g3")),
        (waiting("z", "seldom", "g3", enqueued_at=9), waiting("a", "seldom", "g8", deadline=101)),
        (waiting("z", "seldom", "g3", deadline=101, enqueued_at=9), waiting("a", "seldom", "g3", deadline=102)),
        (waiting("z", "seldom", "g3", deadline=101, enqueued_at=9), waiting("a", "seldom", "g3")),
        (waiting("z", "seldom", "g3", enqueued_at=8), waiting("a", "seldom", "g3", enqueued_at=9)),
        (waiting("a", "seldom", "g3"), waiting("z", "seldom", "g3")),
    ],
    ids=["expired", "priority", "tenant", "tenant before group", "group", "deadline", "no deadline", "enqueued", "id"],
)
def test_the_keys_in_their_order(first: Waiting, second: Waiting) -> None:
    assert order_key(first, HISTORY, NOW) < order_key(second, HISTORY, NOW)


def test_a_deadline_has_passed_once_it_is_over() -> None:
    at, past = waiting("a", deadline=NOW), waiting("b", deadline=NOW - 0.001)
    assert order_key(past, History(), NOW) < order_key(at, History(), NOW)


def test_each_claim_is_made_after_the_one_before() -> None:
    found = claim(
        [waiting("a1", "a"), waiting("a2", "a"), waiting("b1", "b"), waiting("c1", "c")], (), History(), NOW, 9
    )
    assert [one.job_id for one, _ in found] == ["a1", "b1", "c1", "a2"]
    assert [number for _, number in found] == [1, 2, 3, 4]


def test_of_a_group_one_is_claimed_and_none_of_a_busy_one() -> None:
    queued = [waiting("a", group="g"), waiting("b", group="g"), waiting("c", group="h"), waiting("d", group="busy")]
    assert [one.job_id for one, _ in claim(queued, {"busy"}, History(), NOW, 9)] == ["a", "c"]


@pytest.mark.parametrize("limit", [0, 1, 2, 5])
def test_no_more_than_asked_for(limit: int) -> None:
    assert len(claim([waiting(f"{number}") for number in range(3)], (), History(), NOW, limit)) == min(3, limit)


def test_history_goes_with_the_last_queued_work() -> None:
    history = History()
    claim([waiting("a", "x", "g"), waiting("b", "x", "h"), waiting("c", "y", "i")], (), history, NOW, 3)
    history.forget([waiting("b", "x", "h")])
    assert (set(history.tenants), set(history.groups)) == ({"x"}, {"h"})
    assert history.claims == 3, "the numbers of claims go on"


def test_only_opaque_references_are_known() -> None:
    envelope = AgentTurnEnvelope("job", "my session", "kind", "", "my tenant", 1, 5.0, 0, 7.0)
    one = Waiting.of(envelope)
    assert one == Waiting("job", opaque("my tenant"), opaque("my tenant", "my session"), 1, 5.0, 7.0)
    assert "my" not in one.tenant + one.group
