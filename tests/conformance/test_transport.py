"""The Transport port, on each adapter."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from harness.fleet.envelope import AgentTurnEnvelope
from harness.fleet.errors import FleetBrokenError, StaleReceiptError
from harness.fleet.ports import Receipt, Transport
from tests.conformance.transport_rig import RIGS, START, VISIBILITY_S, Rig, names, receipts, turn

PLENTY = 1000
LIMIT_S = 30.0


@pytest.fixture(params=RIGS)
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rig]:
    made = RIGS[request.param](tmp_path)
    yield made
    made.close()


@pytest.fixture
def transport(rig: Rig) -> Transport:
    return rig.client()


# -- there and back ----------------------------------------------------------------------------------------------------


def test_what_was_put_is_received_as_it_was(rig: Rig, transport: Transport) -> None:
    given = turn(
        "a", "s", kind="k", payload_ref="", tenant="x", priority=0, deadline=START + 0.125, attempt=3,
        enqueued_at=START - 0.1,
    )  # fmt: skip
    assert transport.put_many([given], PLENTY) == (True,)
    (delivery,) = rig.receive_all(transport, 1)
    assert (delivery.envelope, delivery.problem) == (given, "")


def test_an_envelope_without_a_deadline_has_none_on_the_way(rig: Rig, transport: Transport) -> None:
    transport.put_many([turn("a"), turn("b", deadline=START + 9)], PLENTY)
    found = {one.envelope.job_id: one.envelope.deadline for one in rig.receive_all(transport, 2) if one.envelope}
    assert found == {"a": None, "b": START + 9}


@pytest.mark.parametrize(
    "text",
    [
        "NULL",
        "null",
        '"',
        "\\",
        '\\"',
        "{}",
        "a,b",
        "a b",
        "'",
        "''",
        "$1",
        "%s",
        ":x",
        "ä€😀",
        "é",
        "0",
        "-",
        "x" * 512,
    ],
)
def test_texts_arrive_as_they_were(rig: Rig, transport: Transport, text: str) -> None:
    first = turn(text, text, kind=text, payload_ref=text, tenant=text)
    second = turn(f"2{text}"[:512], "other", tenant=f"{text}2"[-512:])
    assert transport.put_many([first, second], PLENTY) == (True, True)
    found = rig.receive_all(transport, 2)
    assert {one.envelope for one in found} == {first, second}
    assert transport.acknowledge(receipts(found)) == (None, None)
    assert transport.depth() == 0


def test_nothing_to_do_is_nothing_done(transport: Transport) -> None:
    assert transport.put_many([], PLENTY) == ()
    assert transport.acknowledge([]) == ()
    assert transport.give_back([], 1.0) == ()
    assert transport.extend([]) == ()
    assert transport.receive(0, 0.0) == ()
    assert transport.receive(5, 0.0) == ()
    assert transport.depth() == 0


def test_what_one_client_puts_another_receives(rig: Rig, transport: Transport) -> None:
    transport.put_many([turn("a")], PLENTY)
    assert names(rig.receive_all(rig.client(), 1)) == ["a"]


def test_no_more_than_asked_for(rig: Rig, transport: Transport) -> None:
    transport.put_many([turn(f"{number}") for number in range(5)], PLENTY)
    assert len(transport.receive(3, rig.prompt_s)) <= 3


def test_a_receiver_that_waits_is_woken(rig: Rig, transport: Transport) -> None:
    receiver = rig.client()
    assert receiver.receive(1, 0.0) == ()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(receiver.receive, 1, LIMIT_S)
        transport.put_many([turn("a")], PLENTY)
        assert names(waiting.result(LIMIT_S)) == ["a"]


def test_others_may_use_a_client_whose_receiver_waits(rig: Rig, transport: Transport) -> None:
    transport.put_many([turn("a")], PLENTY)
    out = rig.receive_all(transport, 1)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(transport.receive, 1, LIMIT_S)
        assert transport.acknowledge(receipts(out)) == (None,)
        transport.put_many([turn("b")], PLENTY)
        assert names(waiting.result(LIMIT_S)) == ["b"]


# -- admission ---------------------------------------------------------------------------------------------------------


def test_of_a_batch_as_many_are_admitted_as_there_is_room_for(rig: Rig, transport: Transport) -> None:
    if rig.bounds_exactly:
        assert transport.put_many([turn(name) for name in "abc"], 2) == (True, True, False)
        assert transport.put_many([turn("d")], 2) == (False,)
        assert transport.depth() == 2
        assert transport.put_many([turn("d")], 3) == (True,)
        assert sorted(names(rig.receive_all(transport, 3))) == ["a", "b", "d"]


@pytest.mark.parametrize("limit", [0, -1])
def test_without_room_nothing_is_admitted(transport: Transport, limit: int) -> None:
    assert transport.put_many([turn("a")], limit) == (False,)
    assert transport.depth() == 0
    assert transport.receive(1, 0.0) == ()


def test_what_is_out_counts_until_it_is_acknowledged(rig: Rig, transport: Transport) -> None:
    transport.put_many([turn("a")], 1)
    out = rig.receive_all(transport, 1)
    assert transport.depth() == 1
    assert transport.put_many([turn("b")], 1) == (False,)
    transport.acknowledge(receipts(out))
    assert transport.depth() == 0
    assert transport.put_many([turn("b")], 1) == (True,)


def test_producers_at_once_fill_the_queue_and_no_more(rig: Rig) -> None:
    limit, producers = 10, [rig.client() for _ in range(8)]
    go = threading.Barrier(len(producers))

    def produce(number: int) -> int:
        go.wait(LIMIT_S)
        return sum(producers[number].put_many([turn(f"{number}-{count}")], limit)[0] for count in range(5))

    with ThreadPoolExecutor(len(producers)) as pool:
        admitted = sum(pool.map(produce, range(len(producers))))
    if rig.bounds_exactly:
        assert (admitted, producers[0].depth()) == (limit, limit)


# -- one of a session --------------------------------------------------------------------------------------------------


def test_of_a_session_one_is_out_at_a_time(rig: Rig, transport: Transport) -> None:
    transport.put_many([turn("a1", "a"), turn("a2", "a"), turn("b1", "b")], PLENTY)
    out = rig.receive_all(transport, 2)
    assert sorted(names(out)) == ["a1", "b1"]
    assert transport.receive(5, 0.0) == ()
    if rig.keeps_place:
        assert rig.client().receive(5, 0.0) == ()
    transport.acknowledge([one.receipt for one in out if one.envelope and one.envelope.job_id == "a1"])
    assert names(rig.receive_all(transport, 1)) == ["a2"]


def test_two_tenants_may_call_their_sessions_the_same(rig: Rig, transport: Transport) -> None:
    transport.put_many([turn("a", "s", tenant="x"), turn("b", "s", tenant="y")], PLENTY)
    if rig.orders_by_priority:
        assert names(transport.receive(5, rig.prompt_s)) == ["a", "b"]


def test_the_end_of_one_wakes_who_waits_for_the_next(rig: Rig, transport: Transport) -> None:
    transport.put_many([turn("a1", "a"), turn("a2", "a", enqueued_at=START + 1)], PLENTY)
    out, other = rig.receive_all(transport, 1), rig.client() if rig.keeps_place else transport
    assert other.receive(1, 0.0) == ()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(rig.receive_all, other, 1)
        transport.acknowledge(receipts(out))
        assert names(waiting.result(LIMIT_S)) == ["a2"]


# -- receipts ----------------------------------------------------------------------------------------------------------


def test_what_was_acknowledged_is_done_with(rig: Rig, transport: Transport) -> None:
    transport.put_many([turn("a")], PLENTY)
    out = rig.receive_all(transport, 1)
    assert transport.acknowledge(receipts(out)) == (None,)
    assert transport.receive(1, 0.0) == ()
    assert transport.acknowledge(receipts(out)) == (None,), "again, since an answer may be lost"


def test_a_receiver_that_is_gone_is_followed_by_another(rig: Rig, transport: Transport) -> None:
    if not rig.has_clock:
        return
    transport.put_many([turn("a")], PLENTY)
    (first,) = transport.receive(1, 0.0)
    rig.clock.now += VISIBILITY_S - 1
    other = rig.client()
    assert other.receive(1, 0.0) == ()
    rig.clock.now += 1
    (second,) = other.receive(1, 0.0)
    assert second.envelope == first.envelope and second.receipt != first.receipt
    for refused in (transport.acknowledge, transport.extend, lambda given: transport.give_back(given, 0.0)):
        (problem,) = refused([first.receipt])
        assert isinstance(problem, StaleReceiptError) and problem.job_id == "a"
    assert transport.depth() == 1
    assert other.acknowledge([second.receipt]) == (None,)
    (problem,) = transport.acknowledge([first.receipt])
    assert isinstance(problem, StaleReceiptError), "another one has acknowledged it"


def test_a_receiver_that_speaks_up_keeps_it(rig: Rig, transport: Transport) -> None:
    if not rig.has_clock:
        return
    transport.put_many([turn("a"), turn("b")], PLENTY)
    out = transport.receive(2, 0.0)
    for _ in range(3):
        rig.clock.now += VISIBILITY_S - 1
        assert transport.extend([out[0].receipt]) == (None,)
        rig.client().receive(5, 0.0)
    assert transport.acknowledge(receipts(out))[0] is None
    assert isinstance(transport.acknowledge(receipts(out))[1], StaleReceiptError)


def test_two_claims_at_one_instant_are_told_apart(rig: Rig, transport: Transport) -> None:
    transport.put_many([turn("a")], PLENTY)
    (first,) = rig.receive_all(transport, 1)
    transport.give_back([first.receipt], 0.0)
    (second,) = rig.receive_all(transport, 1)
    assert isinstance(transport.acknowledge([first.receipt])[0], StaleReceiptError)
    assert transport.depth() == 1
    assert transport.acknowledge([second.receipt]) == (None,)


def test_each_receipt_of_a_batch_has_an_answer_of_its_own(rig: Rig, transport: Transport) -> None:
    transport.put_many([turn(name) for name in "abc"], PLENTY)
    out = {one.envelope.job_id: one.receipt for one in rig.receive_all(transport, 3) if one.envelope}
    transport.give_back([out["b"]], 0.0)
    answers = transport.acknowledge([out["c"], out["b"], out["a"]])
    assert [type(answer) for answer in answers] == [type(None), StaleReceiptError, type(None)]
    assert transport.depth() == 1


def test_another_client_may_acknowledge_with_the_receipt(rig: Rig, transport: Transport) -> None:
    if not rig.has_clock:
        return
    transport.put_many([turn("a")], PLENTY)
    assert rig.client().acknowledge(receipts(transport.receive(1, 0.0))) == (None,)
    assert transport.depth() == 0


# -- giving back -------------------------------------------------------------------------------------------------------


def test_what_was_given_back_is_delivered_again(rig: Rig, transport: Transport) -> None:
    transport.put_many([turn("a")], PLENTY)
    out = rig.receive_all(transport, 1)
    assert transport.give_back(receipts(out), 0.0) == (None,)
    assert names(rig.receive_all(transport, 1)) == ["a"]


def test_and_not_before_its_time(rig: Rig, transport: Transport) -> None:
    if not rig.has_clock:
        return
    transport.put_many([turn("a1", "a"), turn("b1", "b"), turn("a2", "a", enqueued_at=START + 1)], PLENTY)
    out = {one.envelope.job_id: one.receipt for one in transport.receive(2, 0.0) if one.envelope}
    assert transport.give_back([out["a1"]], 10.0) == (None,)
    assert names(transport.receive(5, 0.0)) == ["a2"], "others of its session don't wait for it"
    assert transport.depth() == 3
    rig.clock.now += 9.0
    assert transport.receive(5, 0.0) == ()
    rig.clock.now += 1.0
    assert transport.receive(5, 0.0) == (), "its session is at work on another"
    transport.give_back([out["b1"]], 0.0)
    assert names(transport.receive(5, 0.0)) == ["b1"]


# -- poison ------------------------------------------------------------------------------------------------------------


def test_what_nobody_can_read_is_handed_out_with_the_problem_and_is_in_nobodys_way(
    rig: Rig, transport: Transport
) -> None:
    assert transport.depth() == 0
    rig.plant("poison")
    transport.put_many([turn(name) for name in "ab"], PLENTY)
    rig.plant("venom")
    assert transport.depth() == 4
    found = rig.receive_all(transport, 4)
    assert sorted(names(found)) == ["?", "?", "a", "b"]
    bad = [one for one in found if one.envelope is None]
    assert all(one.raw and one.problem for one in bad)
    assert len({one.raw for one in bad}) == 2
    assert transport.acknowledge(receipts(found)) == (None,) * 4
    assert transport.depth() == 0


# -- order -------------------------------------------------------------------------------------------------------------


def claimed_in_turn(transport: Transport, batch: int) -> list[str]:
    """The whole queue, so many at a time."""
    order: list[str] = []
    while came := transport.receive(batch, 0.0):
        order += names(came)
        transport.acknowledge(receipts(came))
    return order


@pytest.mark.parametrize("batch", [1, 2, 3, 10])
def test_the_order_is_the_contracts(rig: Rig, transport: Transport, batch: int) -> None:
    if not rig.orders_by_priority:
        return
    expected = ["late", "later", "first", "soon", "due", "x1", "y1", "z1", "x2", "y2", "x3", "low"]
    put = {
        "late": turn("late", tenant="a", priority=3, deadline=START - 2),
        "later": turn("later", tenant="b", priority=3, deadline=START - 1),
        "first": turn("first", tenant="c", priority=0),
        "soon": turn("soon", tenant="d", priority=1, deadline=START + 5),
        "due": turn("due", tenant="e", priority=1, deadline=START + 9),
        "x1": turn("x1", tenant="x", enqueued_at=START + 1),
        "x2": turn("x2", tenant="x", enqueued_at=START + 2),
        "x3": turn("x3", tenant="x", enqueued_at=START + 3),
        "y1": turn("y1", tenant="y", enqueued_at=START + 4),
        "y2": turn("y2", tenant="y", enqueued_at=START + 5),
        "z1": turn("z1", tenant="z", enqueued_at=START + 6),
        "low": turn("low", tenant="f", priority=3, deadline=START + 1, enqueued_at=START - 99),
    }
    transport.put_many([put[name] for name in sorted(put)], PLENTY)
    assert claimed_in_turn(transport, batch) == expected


def test_a_session_that_was_served_lets_others_of_its_tenant_go_first(rig: Rig, transport: Transport) -> None:
    if not rig.orders_by_priority:
        return
    turns = [turn("a1", "a"), turn("a2", "a"), turn("b1", "b", deadline=START + 99, enqueued_at=START + 9)]
    transport.put_many([*turns, turn("a3", "a", deadline=START + 50)], PLENTY)
    assert claimed_in_turn(transport, 1) == ["a3", "b1", "a1", "a2"]


def test_a_deadline_that_passes_while_it_waits_brings_it_to_the_front(rig: Rig, transport: Transport) -> None:
    if not rig.has_clock:
        return
    transport.put_many([turn("slow", priority=3, deadline=START + 5), turn("a", priority=0)], PLENTY)
    rig.clock.now = START + 5
    assert names(transport.receive(1, 0.0)) == ["a"], "it is not over yet"
    transport.put_many([turn("b", priority=0)], PLENTY)
    rig.clock.now = START + 5.5
    assert names(transport.receive(2, 0.0)) == ["slow", "b"]


@pytest.mark.parametrize("shared", ["nothing", "tenant"])
def test_history_goes_with_the_last_queued_work(rig: Rig, transport: Transport, shared: str) -> None:
    """Of tenants, and of the sessions of one. Who was served last is forgotten, and so goes before the other."""
    if not rig.orders_by_priority:
        return

    def one(job_id: str, seconds: float) -> AgentTurnEnvelope:
        name = job_id[0]
        return turn(job_id, name, tenant="t" if shared == "tenant" else name, enqueued_at=START + seconds)

    transport.put_many([one("y1", 0), one("x1", 1)], PLENTY)
    first, second = transport.receive(2, 0.0)
    assert names((first, second)) == ["y1", "x1"]
    transport.put_many([one("y2", 2)], PLENTY)
    transport.acknowledge([first.receipt, second.receipt])  # of x nothing is left, of y there is
    transport.put_many([one("x2", 9)], PLENTY)
    assert claimed_in_turn(transport, 1) == ["x2", "y2"], "nobody knows that x was served"


def test_history_stays_as_long_as_there_is_queued_work(rig: Rig, transport: Transport) -> None:
    if not rig.orders_by_priority:
        return
    transport.put_many([turn("y1", tenant="y"), turn("x1", tenant="x", enqueued_at=START + 1)], PLENTY)
    first, second = transport.receive(2, 0.0)
    transport.put_many([turn("x2", tenant="x"), turn("y2", tenant="y", enqueued_at=START + 9)], PLENTY)
    transport.acknowledge([first.receipt, second.receipt])
    assert claimed_in_turn(transport, 1) == ["y2", "x2"], "x was served after y"


def test_a_greedy_tenant_gets_its_share_and_no_more(rig: Rig, transport: Transport) -> None:
    if not rig.orders_by_priority:
        return
    greedy = [turn(f"g{number:03}", tenant="greedy") for number in range(1000)]
    small = [turn(f"s{number}", tenant=f"small {number}", enqueued_at=START + 1) for number in range(9)]
    transport.put_many(greedy, 2 * PLENTY)
    assert len(transport.receive(20, 0.0)) == 20
    transport.put_many(small, 2 * PLENTY)
    assert sorted(names(transport.receive(10, 0.0)))[1:] == [f"s{number}" for number in range(9)]


# -- the end -----------------------------------------------------------------------------------------------------------


def test_what_was_put_outlives_its_client(rig: Rig, transport: Transport) -> None:
    transport.put_many([turn("a")], PLENTY)
    transport.close()
    assert names(rig.receive_all(rig.client(), 1)) == ["a"]


def test_a_closed_client_says_so(transport: Transport) -> None:
    transport.close()
    transport.close()
    for call in (
        transport.depth,
        lambda: transport.receive(1, 0.0),
        lambda: transport.put_many([turn("a")], 1),
        lambda: transport.acknowledge([Receipt("o", START, "1/a")]),
    ):
        with pytest.raises(FleetBrokenError, match="closed"):
            call()


def test_closing_wakes_a_receiver(rig: Rig, transport: Transport) -> None:
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(transport.receive, 1, LIMIT_S)
        transport.close()
        with pytest.raises(FleetBrokenError, match="closed"):
            waiting.result(LIMIT_S)
