"""The transport on Apache Kafka: a topic of turns, keyed by session, and one consumer group of all workers.

Kafka bounds what may be worked on at once by the number of partitions, which only grows, and keeps a session serial by
keeping it in one partition. What waits behind a delivery of the same partition waits for it, also of another session;
so does what is behind one that was given back. Depth is the group's lag; where several producers admit at once, each
bounds its own share, and the topic's retention and the broker's quotas bound all of them.

A client joins the group when it first receives: one that only puts takes no partition from those that work.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from harness.fleet.envelope import AgentTurnEnvelope
from harness.fleet.errors import FleetBrokenError, StaleReceiptError
from harness.fleet.ports import Delivery, Receipt
from harness.fleet.transport.kafka_cluster import KafkaCluster, KafkaQueue
from harness.fleet.transport.kafka_consumer import KafkaConsumer, job_of
from harness.fleet.transport.kafka_producer import KafkaProducer

__all__ = ["KafkaQueue", "KafkaTransport"]


class KafkaTransport:
    """Passes the suite of `Transport`. Makes the topic, or grows it, and raises at once if it can't."""

    def __init__(self, queue: KafkaQueue) -> None:
        self._queue = queue
        self._cluster = KafkaCluster(queue)
        try:
            self._cluster.prepare()
        except BaseException:
            self._cluster.close()
            raise
        self._producer = KafkaProducer(queue, self._cluster)
        self._joining = threading.Lock()
        self._consumer: KafkaConsumer | None = None
        self._is_closed = False

    def put_many(self, envelopes: Sequence[AgentTurnEnvelope], limit: int) -> tuple[bool, ...]:
        self._check()
        return self._producer.put_many(envelopes, limit) if envelopes else ()

    def receive(self, limit: int, wait_s: float) -> tuple[Delivery, ...]:
        """One that finds nothing, and met an error meanwhile, looks whether the cluster is there, and raises if not."""
        consumer = self._joined()
        received = consumer.receive(limit, wait_s)
        if not received and consumer.trouble() is not None:
            self._cluster.depth()
        return received

    def acknowledge(self, receipts: Sequence[Receipt]) -> tuple[Exception | None, ...]:
        return self._of_the_consumer(receipts, lambda consumer: consumer.acknowledge(receipts))

    def give_back(self, receipts: Sequence[Receipt], delay_s: float) -> tuple[Exception | None, ...]:
        return self._of_the_consumer(receipts, lambda consumer: consumer.give_back(receipts, delay_s))

    def extend(self, receipts: Sequence[Receipt]) -> tuple[Exception | None, ...]:
        return self._of_the_consumer(receipts, lambda consumer: consumer.extend(receipts))

    def depth(self) -> int:
        self._check()
        return self._cluster.depth()

    def close(self) -> None:
        with self._joining:
            was_closed, self._is_closed = self._is_closed, True
            consumer = self._consumer
        if was_closed:
            return
        if consumer is not None:
            consumer.close()
        self._producer.close()
        self._cluster.close()

    def _joined(self) -> KafkaConsumer:
        with self._joining:
            self._check()
            if self._consumer is None:
                self._consumer = KafkaConsumer(self._queue)
            return self._consumer

    def _of_the_consumer(
        self, receipts: Sequence[Receipt], ask: Callable[[KafkaConsumer], tuple[Exception | None, ...]]
    ) -> tuple[Exception | None, ...]:
        self._check()
        if self._consumer is None:
            return tuple(StaleReceiptError(job_of(receipt)) for receipt in receipts)
        return ask(self._consumer)

    def _check(self) -> None:
        if self._is_closed:
            raise FleetBrokenError("the transport was closed; open another")
