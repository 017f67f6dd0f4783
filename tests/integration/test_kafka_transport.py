"""What is Kafka's own in the transport: groups that rebalance, partitions, offsets, and what others write there."""

from __future__ import annotations

import functools
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import attrs
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from harness.fleet.envelope import encode
from harness.fleet.errors import FleetBrokenError, FleetUnavailableError, StaleReceiptError
from harness.fleet.ports import Delivery
from harness.fleet.transport.kafka import KafkaQueue, KafkaTransport
from harness.fleet.transport.kafka_cluster import KafkaCluster
from harness.fleet.transport.kafka_lanes import FULL
from harness.fleet.transport.kafka_producer import KafkaProducer
from tests.conformance.transport_rig import names, receipts, turn
from tests.integration.kafka_member import member
from tests.kafka_queue import LIMIT_S, plant, queue

PLENTY = 10_000
NOBODY = "127.0.0.1:1"  #: an address where nothing listens

Open = Callable[[KafkaQueue], KafkaTransport]


@pytest.fixture
def opened() -> Iterator[Open]:
    """Clients that are closed in the end."""
    made: list[KafkaTransport] = []

    def open_one(place: KafkaQueue) -> KafkaTransport:
        made.append(KafkaTransport(place))
        return made[-1]

    yield open_one
    for transport in made:
        transport.close()


def receive_all(transport: KafkaTransport, count: int) -> list[Delivery]:
    """So many that are out at once."""
    found: list[Delivery] = []
    while len(found) < count:
        came = transport.receive(count - len(found), LIMIT_S)
        assert came, f"{len(found)} of {count} came"
        found += came
    return found


def work_off(transport: KafkaTransport, count: int) -> list[Delivery]:
    """So many, each acknowledged as it comes."""
    done: list[Delivery] = []
    while len(done) < count:
        came = transport.receive(count - len(done), LIMIT_S)
        assert came, f"{len(done)} of {count} came"
        assert transport.acknowledge(receipts(came)) == (None,) * len(came)
        done += came
    return done


def partition(delivery: Delivery) -> int:
    """Where it was."""
    return int(delivery.receipt.place.split(":")[1].split("@")[0])


def partitions(place: KafkaQueue) -> int:
    cluster = KafkaCluster(place)
    try:
        return cluster.partitions()
    finally:
        cluster.close()


def in_partitions(place: KafkaQueue) -> None:
    """One turn in each partition, named by it."""
    for number in range(place.partitions):
        plant(place, None, raw(f"{number}"), partition=number)


def raw(job_id: str) -> bytes:
    return encode(turn(job_id))


@functools.cache
def admin(servers: str) -> AdminClient:
    """One that lives on: with the last reference, its requests end unanswered."""
    return AdminClient({"bootstrap.servers": servers, "log_level": 0})


# -- members that come and go ------------------------------------------------------------------------------------------


def test_a_turn_longer_than_the_poll_interval_keeps_its_partition(kafka_broker: str, opened: Open) -> None:
    """The group takes whoever does not poll for a second to be gone; another member waits to take over."""
    place = queue(kafka_broker, 1, session_s=1.0, poll_s=1.0)
    worker, other = opened(place), opened(place)
    worker.put_many([turn("long"), turn("next")], PLENTY)
    (long,) = receive_all(worker, 1)
    assert other.receive(1, 3.0) == ()
    assert worker.extend([long.receipt]) == (None,)
    assert worker.acknowledge([long.receipt]) == (None,)
    assert names(worker.receive(1, LIMIT_S)) == ["next"]


def test_a_rebalance_takes_away_no_more_than_it_moves(kafka_broker: str, opened: Open) -> None:
    place = queue(kafka_broker, 4)
    worker, newcomer = opened(place), opened(place)
    in_partitions(place)
    out = receive_all(worker, 4)
    again = newcomer.receive(4, LIMIT_S)
    again += tuple(receive_all(newcomer, 2 - len(again)))
    moved = set(names(again))
    answers = dict(zip(names(tuple(out)), worker.acknowledge(receipts(out)), strict=True))
    assert len(moved) == 2
    assert {name for name, answer in answers.items() if isinstance(answer, StaleReceiptError)} == moved
    assert [answer for name, answer in answers.items() if name not in moved] == [None, None]
    assert worker.depth() == 2, "what is stale commits nothing"
    assert newcomer.acknowledge(receipts(again)) == (None, None)
    assert worker.depth() == 0


def test_members_that_come_and_go_while_turns_run_lose_none(kafka_broker: str, opened: Open) -> None:
    """Each turn is acknowledged by one; whoever had it before was told that it is no longer his."""
    place = queue(kafka_broker, 4)
    jobs = [f"{number}" for number in range(60)]
    stayer = opened(place)
    stayer.put_many([turn(job) for job in jobs], PLENTY)
    done: list[str] = []
    for _ in range(4):
        visitor = KafkaTransport(place)
        for transport in (stayer, visitor, stayer, visitor):
            came = transport.receive(3, 1.0)
            for name, answer in zip(names(came), transport.acknowledge(receipts(came)), strict=True):
                assert answer is None or isinstance(answer, StaleReceiptError)
                done += [name] if answer is None else []
        visitor.close()
    done += names(tuple(work_off(stayer, stayer.depth())))
    assert sorted(done) == sorted(jobs)
    assert stayer.depth() == 0


def test_a_member_that_is_killed_is_followed_by_another(kafka_broker: str, opened: Open) -> None:
    place = queue(kafka_broker, 1, session_s=1.0)
    opened(place).put_many([turn("a")], PLENTY)
    with member(place) as killed:
        assert killed.ask("receive") == "a"
        killed.process.kill()
        assert names(opened(place).receive(1, LIMIT_S)) == ["a"]


def test_a_member_that_slept_through_its_end_acknowledges_nothing(kafka_broker: str, opened: Open) -> None:
    place = queue(kafka_broker, 1, session_s=1.0)
    other = opened(place)
    other.put_many([turn("a")], PLENTY)
    with member(place) as sleeper:
        assert sleeper.ask("receive") == "a"
        sleeper.process.send_signal(signal.SIGSTOP)
        (again,) = receive_all(other, 1)
        sleeper.say("acknowledge")
        sleeper.process.send_signal(signal.SIGCONT)
        assert sleeper.answer() == "StaleReceiptError"
        assert other.depth() == 1
        assert other.acknowledge([again.receipt]) == (None,)


def test_a_client_that_only_puts_takes_no_partition(kafka_broker: str, opened: Open) -> None:
    place = queue(kafka_broker, 4)
    opened(place).put_many([turn("before")], PLENTY)
    worker = opened(place)
    in_partitions(place)
    assert len(work_off(worker, 5)) == 5


def test_a_static_member_that_is_back_in_time_goes_on_where_it_was(kafka_broker: str, opened: Open) -> None:
    place = queue(kafka_broker, 2, session_s=20.0, instance="one")
    first, other = opened(place), opened(queue_like(place, instance="two"))
    assert other.receive(1, 0.0) == ()
    in_partitions(place)
    mine = partition(receive_all(first, 1)[0])
    theirs = receive_all(other, 1)
    assert partition(theirs[0]) != mine
    first.close()
    back = opened(place)
    assert [partition(one) for one in receive_all(back, 1)] == [mine]
    assert other.acknowledge(receipts(theirs)) == (None,), "nobody else's partition moved"


def test_two_static_members_of_one_name_are_told_apart(kafka_broker: str, opened: Open) -> None:
    place = queue(kafka_broker, 1, instance="same")
    first, second = opened(place), opened(place)
    first.put_many([turn("a")], PLENTY)
    receive_all(first, 1)
    receive_all(second, 1)
    with pytest.raises(FleetBrokenError, match="KAFKA_GROUP_INSTANCE_ID"):
        first.receive(1, LIMIT_S)


def queue_like(place: KafkaQueue, **changed: object) -> KafkaQueue:
    return attrs.evolve(place, **changed)  # type: ignore[arg-type]


# -- partitions --------------------------------------------------------------------------------------------------------


def test_new_partitions_are_noticed_and_never_taken_away(kafka_broker: str, opened: Open) -> None:
    place = queue(kafka_broker, 1)
    worker = opened(place)
    worker.put_many([turn("before")], PLENTY)
    assert names(tuple(work_off(worker, 1))) == ["before"]
    grown = queue_like(place, partitions=4)
    opened(grown)
    in_partitions(grown)
    found = work_off(worker, 4)
    assert sorted(map(partition, found)) == [0, 1, 2, 3]
    opened(place)
    assert partitions(place) == 4


def test_those_who_make_the_topic_at_once_get_the_most_that_one_wants(kafka_broker: str, opened: Open) -> None:
    place = queue(kafka_broker, 1)
    go = threading.Barrier(6)

    def make(wanted: int) -> None:
        go.wait(LIMIT_S)
        opened(queue_like(place, partitions=wanted))

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(make, [1, 3, 6, 2, 6, 5]))
    assert partitions(place) == 6


def test_a_session_has_the_partition_that_javas_client_would_give_it(kafka_broker: str, opened: Open) -> None:
    """The hashes are those of Kafka's own tests of its murmur2; the sign bit does not count."""
    hashes = {
        "21": -973932308,
        "foobar": -790332482,
        "a-little-bit-long-string": -985981536,
        "a-little-bit-longer-string": -1486304829,
        "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
        "abc": 479470107,
    }
    place = queue(kafka_broker, 12)
    transport = opened(place)
    transport.put_many([turn(session, session) for session in hashes], PLENTY)
    found = {one.envelope.session_id: partition(one) for one in work_off(transport, len(hashes)) if one.envelope}
    assert found == {session: (number & 0x7FFFFFFF) % 12 for session, number in hashes.items()}


# -- offsets -----------------------------------------------------------------------------------------------------------


def committed(place: KafkaQueue) -> list[int]:
    """Of each partition."""
    reader = Consumer({"bootstrap.servers": place.servers.bootstrap, "group.id": place.group, "log_level": 0})
    try:
        asked = [TopicPartition(place.topic, number) for number in range(place.partitions)]
        return [found.offset for found in reader.committed(asked, timeout=LIMIT_S)]
    finally:
        reader.close()


def test_nothing_is_committed_but_what_was_acknowledged(kafka_broker: str) -> None:
    """Not by time, not by what was given back, not by closing."""
    place = queue(kafka_broker, 1)
    transport = KafkaTransport(place)
    transport.put_many([turn(name) for name in "abc"], PLENTY)
    assert names(tuple(work_off(transport, 1))) == ["a"]
    (out,) = receive_all(transport, 1)
    assert transport.give_back([out.receipt], 0.0) == (None,)
    assert names(tuple(receive_all(transport, 1))) == ["b"]
    transport.close()
    assert committed(place) == [1]


def test_what_was_given_back_comes_after_its_delay_and_before_what_is_behind_it(
    kafka_broker: str, opened: Open
) -> None:
    transport = opened(queue(kafka_broker, 1))
    transport.put_many([turn("a"), turn("b")], PLENTY)
    (out,) = receive_all(transport, 1)
    transport.give_back([out.receipt], 1.0)
    assert transport.receive(1, 0.5) == ()
    assert names(tuple(work_off(transport, 2))) == ["a", "b"]


def test_more_than_a_lane_holds_comes_in_order(kafka_broker: str, opened: Open) -> None:
    transport = opened(queue(kafka_broker, 2))
    jobs = [f"{number:03}" for number in range(3 * FULL)]
    assert all(transport.put_many([turn(job, "s") for job in jobs], PLENTY))
    assert names(tuple(work_off(transport, len(jobs)))) == jobs


def test_a_receipt_is_good_for_its_consumer_alone(kafka_broker: str, opened: Open) -> None:
    place = queue(kafka_broker, 1)
    transport, other = opened(place), opened(place)
    transport.put_many([turn("a")], PLENTY)
    (out,) = receive_all(transport, 1)
    for asked in (other, opened(place)):
        (refused,) = asked.acknowledge([out.receipt])
        assert isinstance(refused, StaleReceiptError) and refused.job_id == "a"
        asked.receive(1, 0.0)
    assert transport.depth() == 1


# -- depth and admission -----------------------------------------------------------------------------------------------


def test_what_the_broker_has_deleted_does_not_count(kafka_broker: str, opened: Open) -> None:
    place = queue(kafka_broker, 1)
    transport = opened(place)
    transport.put_many([turn(name) for name in "abcde"], PLENTY)
    work_off(transport, 1)
    (deleted,) = admin(place.servers.bootstrap).delete_records([TopicPartition(place.topic, 0, 3)]).values()
    deleted.result(LIMIT_S)
    assert transport.depth() == 2


def test_a_depth_that_cannot_be_read_admits_nothing(kafka_broker: str, opened: Open) -> None:
    place = queue(kafka_broker, 1)
    transport = opened(place)
    (gone,) = admin(place.servers.bootstrap).delete_topics([place.topic]).values()
    gone.result(LIMIT_S)
    with pytest.raises(FleetBrokenError, match="the topic is gone"):
        while True:  # the broker tells of it a moment later
            transport.depth()
    with pytest.raises(FleetBrokenError, match="the topic is gone"):
        transport.put_many([turn("a")], PLENTY)


def test_a_cluster_that_is_not_there_is_told_at_once() -> None:
    with pytest.raises(FleetUnavailableError, match="out of reach"):
        KafkaTransport(queue(NOBODY, 1, patience_s=0.5))


def test_callers_at_once_never_exceed_the_limit_of_their_client(kafka_broker: str, opened: Open) -> None:
    transport = opened(queue(kafka_broker, 3))
    go = threading.Barrier(8)

    def produce(number: int) -> int:
        go.wait(LIMIT_S)
        return sum(sum(transport.put_many([turn(f"{number}-{n}-{m}") for m in range(2)], 11)) for n in range(3))

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(produce, range(8))) == 11
    assert transport.depth() == 11


class WaitingCluster(KafkaCluster):
    """Tells the first who asks for the depth when it may be told."""

    def __init__(self, place: KafkaQueue) -> None:
        super().__init__(place)
        self.asked = 0
        self.is_asked, self.go = threading.Event(), threading.Event()

    def depth(self) -> int:
        self.asked += 1
        self.is_asked.set()
        assert self.go.wait(LIMIT_S)
        return super().depth()


def test_what_comes_while_a_flush_is_under_way_shares_the_next(kafka_broker: str) -> None:
    place = queue(kafka_broker, 2)
    cluster = WaitingCluster(place)
    cluster.prepare()
    producer = KafkaProducer(place, cluster)
    with ThreadPoolExecutor(8) as pool:
        first = pool.submit(producer.put_many, [turn("first")], 5)
        assert cluster.is_asked.wait(LIMIT_S)
        others = [pool.submit(producer.put_many, [turn(f"{number}")], 5) for number in range(6)]
        assert producer.await_waiting(6, LIMIT_S)
        cluster.go.set()
        assert first.result(LIMIT_S) == (True,)
        assert sorted(other.result(LIMIT_S) for other in others) == [(False,)] * 2 + [(True,)] * 4
    assert cluster.asked == 2
    assert cluster.depth() == 5
    producer.close()
    cluster.close()


# -- poison ------------------------------------------------------------------------------------------------------------


def test_what_nobody_can_read_comes_once_and_holds_up_nothing(kafka_broker: str, opened: Open) -> None:
    place = queue(kafka_broker, 1)
    roomy = NewTopic(place.topic, 1, 1, config={"max.message.bytes": "6000000"})
    (made,) = admin(place.servers.bootstrap).create_topics([roomy]).values()
    made.result(LIMIT_S)
    transport = opened(place)
    broken = [b"{", b"[]", b'{"v":2}', b"\xff\xfe", b"\0" * 9, b'{"v":1,"job_id":"a\\u0000"}']
    poison = [None, b"", *broken, b"x" * 5_000_000]
    for value in poison:
        plant(place, b"\xff not UTF-8", value, raw("good"))
    found = work_off(transport, 2 * len(poison))
    assert [one.raw for one in found if one.envelope is None] == [value or b"" for value in poison]
    assert all(one.problem for one in found if one.envelope is None)
    assert names(tuple(found))[1::2] == ["good"] * len(poison)
    assert transport.depth() == 0
