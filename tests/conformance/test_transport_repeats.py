"""The Transport port, on each adapter: the same job put again, and receipts that are used again."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from harness.fleet.errors import StaleReceiptError
from harness.fleet.ports import Transport
from tests.conformance.transport_rig import RIGS, Rig, receipts, turn

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


def test_one_that_waits_already_stands(rig: Rig, transport: Transport) -> None:
    if rig.tells_duplicates:
        transport.put_many([turn("a", kind="first"), turn("b")], 2)
        assert transport.put_many([turn("a", kind="second"), turn("c"), turn("b")], 2) == (True, False, True)
        assert transport.depth() == 2
        assert [one.envelope.kind for one in rig.receive_all(transport, 2) if one.envelope] == ["first", "agent"]
        assert transport.put_many([turn("a", kind="third")], 2) == (True,), "one that is out stands as well"
        assert transport.depth() == 2


def test_what_is_put_while_it_is_out_is_received_after_that(rig: Rig, transport: Transport) -> None:
    assert transport.put_many([turn("a", "s"), turn("b")], PLENTY) == (True, True)
    out = rig.receive_all(transport, 2)
    first, *_ = (one for one in out if one.envelope is not None and one.envelope.job_id == "a")
    assert rig.client().put_many([turn("a", "s"), turn("a", "s")], PLENTY) == (True, True)
    assert rig.receive_all(transport, 0) == ()
    assert transport.acknowledge(receipts(out)) == (None, None)
    assert transport.depth() >= 1
    (again, *_) = rig.receive_all(transport, 1)
    assert again.envelope == turn("a", "s")
    assert again.receipt != first.receipt
    assert transport.acknowledge([first.receipt]) == (None,), "that is done"
    assert transport.depth() >= 1
    if rig.tells_duplicates:
        assert transport.acknowledge([again.receipt]) == (None,)
        assert transport.depth() == 0


def test_a_strangers_delivery_of_the_same_name_comes_once(rig: Rig, transport: Transport) -> None:
    if rig.tells_duplicates:
        transport.put_many([turn("a", tenant="stranger")], PLENTY)
        out = rig.receive_all(transport, 1)
        assert transport.put_many([turn("a", tenant="ours")], PLENTY) == (True,)
        assert transport.acknowledge(receipts(out)) == (None,)
        assert transport.depth() == 0


def test_what_is_put_while_it_is_acknowledged_is_received_after_that(rig: Rig, transport: Transport) -> None:
    if not rig.tells_duplicates:
        return
    other = rig.client()
    transport.put_many([turn("a")], PLENTY)
    with ThreadPoolExecutor(2) as pool:
        for _ in range(30):
            (out,) = rig.receive_all(transport, 1)
            go = threading.Barrier(2)

            def put(go: threading.Barrier = go) -> tuple[bool, ...]:
                go.wait(LIMIT_S)
                return other.put_many([turn("a")], PLENTY)

            putting = pool.submit(put)
            go.wait(LIMIT_S)
            assert transport.acknowledge([out.receipt]) == (None,)
            assert putting.result(LIMIT_S) == (True,)
            assert transport.depth() == 1


def test_what_was_acknowledged_can_neither_be_given_back_nor_kept(rig: Rig, transport: Transport) -> None:
    transport.put_many([turn("a")], PLENTY)
    (out,) = rig.receive_all(transport, 1)
    assert transport.acknowledge([out.receipt]) == (None,)
    for done in (transport.give_back([out.receipt], 0.0), transport.extend([out.receipt])):
        assert isinstance(done[0], StaleReceiptError)
    assert transport.depth() == 0


def test_a_receipt_is_no_other_deliverys(rig: Rig, transport: Transport) -> None:
    """Not even that of the next one for the same job."""
    transport.put_many([turn("a")], PLENTY)
    (first,) = rig.receive_all(transport, 1)
    transport.acknowledge([first.receipt])
    transport.put_many([turn("a")], PLENTY)
    assert transport.acknowledge([first.receipt]) == (None,), "that is done"
    (second,) = rig.receive_all(transport, 1)
    assert transport.acknowledge([first.receipt]) == (None,)
    assert isinstance(transport.give_back([first.receipt], 0.0)[0], StaleReceiptError)
    assert transport.depth() == 1
    assert transport.acknowledge([second.receipt]) == (None,)
    assert transport.depth() == 0


def test_the_same_twice_in_a_batch_is_one(rig: Rig, transport: Transport) -> None:
    if rig.tells_duplicates:
        assert transport.put_many([turn("a"), turn("a"), turn("b"), turn("a")], 1) == (True, True, False, True)
        assert transport.depth() == 1


def test_what_was_acknowledged_may_come_again(rig: Rig, transport: Transport) -> None:
    transport.put_many([turn("a", attempt=0)], PLENTY)
    transport.acknowledge(receipts(rig.receive_all(transport, 1)))
    assert transport.put_many([turn("a", attempt=1)], PLENTY) == (True,)
    (again,) = rig.receive_all(transport, 1)
    assert again.envelope == turn("a", attempt=1)
