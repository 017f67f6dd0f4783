"""Queues of turns on the tests' Kafka broker, and what a stranger may write into them."""

from __future__ import annotations

import secrets
from typing import Any

from confluent_kafka import Producer

from harness.fleet.kafka_servers import KafkaServers
from harness.fleet.transport.kafka import KafkaQueue

LIMIT_S = 30.0


def queue(bootstrap: str, partitions: int, **settings: Any) -> KafkaQueue:
    """One that nobody else uses; its members are soon missed, and soon hear of what is new."""
    return queue_at(KafkaServers(bootstrap), partitions, **settings)


def queue_at(servers: KafkaServers, partitions: int, **settings: Any) -> KafkaQueue:
    """The same, where one has to be let in."""
    name = f"turns-{secrets.token_hex(4)}"
    given = {"topic": name, "group": f"of-{name}", "session_s": 3.0, "poll_s": 10.0, "refresh_s": 0.5, **settings}
    return KafkaQueue(servers, partitions, **given)


def plant(place: KafkaQueue, key: bytes | None, *values: bytes | None, partition: int = -1) -> None:
    """As any client of Kafka could; a partition of -1 is the key's."""
    producer = Producer(
        {"bootstrap.servers": place.servers.bootstrap, "partitioner": "murmur2_random", "message.max.bytes": 6_000_000}
    )
    refused: list[object] = []
    for value in values:
        producer.produce(place.topic, value, key, partition, on_delivery=lambda error, _: refused.append(error))
    assert producer.flush(LIMIT_S) == 0
    assert refused == [None] * len(values)
