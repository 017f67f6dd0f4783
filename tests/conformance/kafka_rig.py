"""The Kafka adapter in the suite of the Transport port: a topic and a group of its own for each test, on one broker."""

from __future__ import annotations

import secrets
from pathlib import Path

from confluent_kafka import Producer

from harness.fleet.transport.kafka import KafkaQueue, KafkaTransport
from tests import kafka_server
from tests.conformance.transport_rig import Rig

#: So many that no two sessions of a test meet in one; what does meet is one lane, which is another file's matter.
PARTITIONS = 23
LIMIT_S = 30.0


def queue(bootstrap: str, partitions: int = PARTITIONS, **settings: object) -> KafkaQueue:
    """One that nobody else uses, and that learns of everything soon."""
    name = f"turns-{secrets.token_hex(4)}"
    given = {"topic": name, "group": f"of-{name}", "session_s": 6.0, "poll_s": 10.0, "refresh_s": 0.5, **settings}
    return KafkaQueue(bootstrap, partitions, **given)  # type: ignore[arg-type]


def put_raw(place: KafkaQueue, key: bytes | None, *values: bytes | None) -> None:
    """As any other client of Kafka could."""
    producer = Producer({"bootstrap.servers": place.servers, "partitioner": "murmur2_random"})
    failed: list[object] = []
    for value in values:
        producer.produce(place.topic, value, key, on_delivery=lambda error, _: error and failed.append(error))
    assert producer.flush(LIMIT_S) == 0
    assert failed == []


class KafkaRig(Rig):
    orders_by_priority = False
    tells_duplicates = False
    bounds_exactly = False
    has_clock = False
    prompt_s = 20.0

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.queue = queue(kafka_server.shared())

    def open(self) -> KafkaTransport:
        return KafkaTransport(self.queue)

    def plant(self, name: str) -> None:
        put_raw(self.queue, name.encode(), b"no envelope: " + name.encode())
