"""A Kafka broker that is killed, started again, and stops answering. Nothing that was admitted is lost, and nobody has
to be restarted for it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from harness.fleet.errors import FleetUnavailableError, StaleReceiptError
from harness.fleet.ports import Delivery
from harness.fleet.transport.kafka import KafkaTransport
from tests.conformance.transport_rig import names, turn
from tests.kafka_queue import LIMIT_S, queue
from tests.kafka_server import KafkaServer

PLENTY = 10_000
PATIENCE_S = 1.0  #: of all clients here
SOON_S = 15.0


@pytest.fixture(scope="module")
def server() -> Iterator[KafkaServer]:
    made = KafkaServer()
    try:
        made.start()
        yield made
    finally:
        made.close()


@pytest.fixture
def transport(server: KafkaServer) -> Iterator[KafkaTransport]:
    made = KafkaTransport(queue(server.bootstrap, 4, patience_s=PATIENCE_S, session_s=20.0))  # longer than a restart
    yield made
    made.close()


def settle(transport: KafkaTransport, deliveries: tuple[Delivery, ...], done: list[str]) -> None:
    """Acknowledge until it is known what became of each; whose that was is added to `done`."""
    deadline = time.monotonic() + LIMIT_S
    while deliveries:
        assert time.monotonic() < deadline, f"unsettled: {names(deliveries)}"
        answers = transport.acknowledge([one.receipt for one in deliveries])
        settled = dict(zip(names(deliveries), answers, strict=True))
        done += [name for name, answer in settled.items() if answer is None]
        assert all(isinstance(one, (StaleReceiptError, FleetUnavailableError, type(None))) for one in answers)
        deliveries = tuple(
            one for one, answer in zip(deliveries, answers, strict=True) if isinstance(answer, FleetUnavailableError)
        )


def depth(transport: KafkaTransport) -> int:
    """As soon as the broker tells it."""
    deadline = time.monotonic() + LIMIT_S
    while True:
        try:
            return transport.depth()
        except FleetUnavailableError:
            assert time.monotonic() < deadline


def work_off(transport: KafkaTransport, done: list[str]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while depth(transport):
        assert time.monotonic() < deadline, f"{len(done)} came"
        try:
            settle(transport, transport.receive(4, 1.0), done)
        except FleetUnavailableError:
            continue


def test_a_broker_that_is_killed_and_started_again_loses_nothing(
    server: KafkaServer, transport: KafkaTransport
) -> None:
    jobs = [f"{number}" for number in range(40)]
    transport.put_many([turn(job) for job in jobs], PLENTY)
    done: list[str] = []
    for _ in range(3):
        settle(transport, transport.receive(4, LIMIT_S), done)
    out = transport.receive(4, LIMIT_S)
    idle = KafkaTransport(queue(server.bootstrap, 1, patience_s=PATIENCE_S))
    assert idle.receive(1, 0.0) == ()
    server.crash()
    for ask in (transport.depth, lambda: transport.put_many([turn("late")], PLENTY), lambda: starve(transport)):
        with pytest.raises(FleetUnavailableError):
            ask()
    answers = transport.acknowledge([one.receipt for one in out])
    assert [type(answer) for answer in answers] == [FleetUnavailableError] * len(out)
    begun = time.monotonic()
    idle.close()
    assert time.monotonic() - begun < SOON_S
    server.start()
    settle(transport, out, done)
    work_off(transport, done)
    assert sorted(done) == sorted(jobs), "each is acknowledged, and once"
    assert transport.put_many([turn("late")], PLENTY) == (True,)
    work_off(transport, done)
    assert done[len(jobs) :] == ["late"]


def starve(transport: KafkaTransport) -> None:
    """Receive until there is nothing, which is not the same as nothing to tell."""
    for _ in range(100):
        transport.receive(4, 0.1)


def test_a_receiver_that_waits_through_a_restart_gets_what_comes_after(
    server: KafkaServer, transport: KafkaTransport
) -> None:
    assert transport.receive(1, 1.0) == ()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(transport.receive, 1, LIMIT_S)
        server.stop()
        server.start()
        assert depth(transport) == 0
        transport.put_many([turn("after")], PLENTY)
        assert names(waiting.result(LIMIT_S)) == ["after"]


def test_a_broker_that_does_not_answer_is_out_of_reach_and_nothing_is_lost(
    server: KafkaServer, transport: KafkaTransport
) -> None:
    """What was put without an answer may be there or not: put again, it is there once or twice."""
    transport.put_many([turn("before")], PLENTY)
    done: list[str] = []
    settle(transport, transport.receive(1, LIMIT_S), done)
    with server.suspended():
        begun = time.monotonic()
        with pytest.raises(FleetUnavailableError):
            transport.put_many([turn("meanwhile")], PLENTY)
        assert time.monotonic() - begun < SOON_S
    assert depth(transport) <= 1
    assert transport.put_many([turn("meanwhile")], PLENTY) == (True,)
    work_off(transport, done)
    assert set(done) == {"before", "meanwhile"}
