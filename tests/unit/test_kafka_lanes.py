"""What of a Kafka partition is out, what comes next, what may be committed; and what Kafka's errors come to."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from harness.fleet.errors import FleetBrokenError, FleetUnavailableError
from harness.fleet.transport.kafka_cluster import lag
from harness.fleet.transport.kafka_errors import meaning
from harness.fleet.transport.kafka_lanes import FULL, LOW, Lanes, Record, Standing


def filled(counts: dict[int, int]) -> Lanes:
    """Lanes with so many records each; those of a higher partition were written earlier."""
    lanes = Lanes()
    lanes.open(counts)
    for partition, count in counts.items():
        for offset in range(count):
            lanes.take_in(partition, Record(offset, b"x", at=offset - 100.0 * partition))
    return lanes


def test_one_of_each_lane_is_out_and_the_oldest_goes_first() -> None:
    lanes = filled({1: 2, 2: 2, 3: 2})
    assert [out.partition for out in lanes.hand_out(2, 0.0)] == [3, 2]
    assert [out.partition for out in lanes.hand_out(5, 0.0)] == [1]
    assert lanes.hand_out(5, 0.0) == []


def test_a_lane_goes_on_when_its_first_is_committed() -> None:
    lanes = filled({1: 2})
    (first,) = lanes.hand_out(1, 0.0)
    assert not lanes.commit(1, 2), "an offset behind another record settles nothing"
    assert first.standing is Standing.OUT
    lanes.commit(1, 1)
    assert (first.standing, lanes.is_done(first.ticket), lanes.find(first.ticket)) == (Standing.DONE, True, None)
    (second,) = lanes.hand_out(1, 0.0)
    assert second.record.offset == 1


def test_what_was_given_back_comes_again_in_its_time_by_another_ticket() -> None:
    lanes = filled({1: 2})
    (first,) = lanes.hand_out(1, 0.0)
    lanes.give_back(first, due=5.0)
    assert (first.standing, lanes.next_due(), lanes.hand_out(1, 4.9)) == (Standing.BACK, 5.0, [])
    (again,) = lanes.hand_out(1, 5.0)
    assert (again.record, again.ticket != first.ticket) == (first.record, True)
    assert lanes.find(first.ticket) is None


@pytest.mark.parametrize("comes_back", [False, True])
def test_what_was_out_is_lost_with_its_partition(comes_back: bool) -> None:
    lanes = filled({1: 1, 2: 1})
    out = {one.partition: one for one in lanes.hand_out(2, 0.0)}
    if comes_back:
        lanes.open([1])
    else:
        lanes.end([1])
    assert (out[1].standing, lanes.find(out[1].ticket)) == (Standing.LOST, None)
    assert not lanes.commit(1, 1) and not lanes.is_done(out[1].ticket)
    assert out[2].standing is Standing.OUT
    assert lanes.is_idle is False


def test_what_comes_of_a_partition_that_is_gone_is_left_to_others() -> None:
    lanes = Lanes()
    assert lanes.take_in(1, Record(0, b"x")) is False
    assert lanes.is_idle and lanes.next_due() is None


def test_a_full_lane_pauses_once_and_goes_on_when_it_is_low() -> None:
    lanes = filled({1: FULL - 1})
    assert lanes.take_in(1, Record(FULL - 1, b"x")) is True
    assert lanes.take_in(1, Record(FULL, b"x")) is False, "it is paused already"
    resumed = []
    for offset in range(FULL + 1):
        lanes.hand_out(1, 0.0)
        if lanes.commit(1, offset + 1):
            resumed.append(FULL - offset)
    assert resumed == [LOW]


@pytest.mark.parametrize(
    ("start", "end", "committed", "expected"),
    [
        (0, 0, None, 0),
        (0, 5, None, 5),
        (0, 5, 0, 5),
        (0, 5, 3, 2),
        (0, 5, 5, 0),
        (3, 5, None, 2),
        (3, 5, 1, 2),  # what it was to go on with is deleted
        (0, 2, 7, 2),  # the topic was made anew
    ],
)
def test_lag(start: int, end: int, committed: int | None, expected: int) -> None:
    assert lag(start, end, committed) == expected


@pytest.mark.parametrize(
    ("code", "expected", "says"),
    [
        (KafkaError._TRANSPORT, FleetUnavailableError, "out of reach"),
        (KafkaError._TIMED_OUT, FleetUnavailableError, "out of reach"),
        (KafkaError.REBALANCE_IN_PROGRESS, FleetUnavailableError, "out of reach"),
        (KafkaError.NOT_ENOUGH_REPLICAS, FleetUnavailableError, "out of reach"),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, FleetBrokenError, "grant READ, WRITE and DESCRIBE"),
        (KafkaError.FENCED_INSTANCE_ID, FleetBrokenError, "KAFKA_GROUP_INSTANCE_ID"),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, FleetBrokenError, "start the worker again"),
        (KafkaError.MSG_SIZE_TOO_LARGE, FleetBrokenError, "max.message.bytes"),
    ],
)
def test_errors_say_what_to_do_and_name_no_host(code: int, expected: type[Exception], says: str) -> None:
    found = meaning(KafkaError(code, "broker-7.example:9092/7: it went wrong"))
    assert type(found) is expected
    assert says in str(found) and "example" not in str(found)


def test_an_error_that_ends_the_client_is_no_matter_of_patience() -> None:
    assert isinstance(meaning(KafkaError(KafkaError._FATAL, "", True)), FleetBrokenError)
