"""Puts envelopes into a Kafka topic: whatever several callers want at once goes in one flush, which all wait for."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import partial

import attrs
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from harness.fleet.envelope import AgentTurnEnvelope, encode
from harness.fleet.errors import FleetError, FleetUnavailableError
from harness.fleet.transport.kafka_cluster import KafkaCluster, KafkaQueue, milliseconds
from harness.fleet.transport.kafka_errors import is_lasting, meaning, reason

_BATCH_BYTES = 65_536  #: a consumer fetches whole batches, however little of one it wants


@attrs.define(eq=False)
class _Request:
    """What one caller wants admitted, and what came of it."""

    envelopes: Sequence[AgentTurnEnvelope]
    limit: int
    admitted: int = 0
    error: FleetError | None = None
    is_over: bool = False

    def answer(self) -> tuple[bool, ...]:
        if self.error is not None:
            raise self.error
        return tuple(place < self.admitted for place in range(len(self.envelopes)))


class KafkaProducer:
    """May be used from any thread. Deliveries of one session go to one partition, whoever puts them."""

    def __init__(self, queue: KafkaQueue, cluster: KafkaCluster) -> None:
        self._queue, self._cluster = queue, cluster
        self._waiting: list[_Request] = []
        self._came = threading.Condition()  # guards them
        self._turn = threading.Lock()  # whoever has it carries what all wait for
        self._producer = self._made()
        self._is_spent = False

    def put_many(self, envelopes: Sequence[AgentTurnEnvelope], limit: int) -> tuple[bool, ...]:
        """See `Transport.put_many`. Bounds what this producer adds to the lag that it read right before."""
        request = _Request(envelopes, limit)
        with self._came:
            self._waiting.append(request)
            self._came.notify_all()
        with self._turn:
            if not request.is_over:
                with self._came:
                    requests, self._waiting = self._waiting, []
                self._carry(requests)
        return request.answer()

    def await_waiting(self, count: int, limit_s: float) -> bool:
        """Until so many calls wait for the one under way to end; whether they do."""
        with self._came:
            return self._came.wait_for(lambda: len(self._waiting) >= count, limit_s)

    def close(self) -> None:
        """What was put is there: a flush has waited for it."""
        with self._turn:
            self._producer.flush(self._queue.patience_s)

    def _carry(self, requests: list[_Request]) -> None:
        """Each ends with an answer or an error; one lag and one flush serve them all."""
        failed: FleetError | None = FleetUnavailableError("the call that carried this one was broken off; try again")
        try:
            if self._is_spent:
                self._producer, self._is_spent = self._made(), False
            depth = self._cluster.depth()
            for request in requests:
                request.admitted = max(0, min(len(request.envelopes), request.limit - depth))
                depth += request.admitted
                self._produce(request)
            self._flush()
            failed = None
        except FleetError as error:
            failed = error
        finally:
            for request in requests:
                request.error = request.error or failed
                request.is_over = True

    def _produce(self, request: _Request) -> None:
        for envelope in request.envelopes[: request.admitted]:
            key, value = envelope.session_id.encode(), encode(envelope)
            try:
                self._produce_one(key, value, request)
            except KafkaException as error:
                raise self._meaning(reason(error)) from error

    def _produce_one(self, key: bytes, value: bytes, request: _Request) -> None:
        told = partial(self._told, request)
        while True:
            try:
                self._producer.produce(self._queue.topic, value, key, on_delivery=told)
            except BufferError:  # its queue is full: some are to be confirmed first
                self._producer.poll(self._queue.patience_s)
            else:
                return

    def _flush(self) -> None:
        """All that was produced is confirmed or given up when it returns: the producer's own limit is the shorter."""
        if self._producer.flush(2 * self._queue.patience_s):
            raise FleetUnavailableError("Kafka confirms no delivery; what was asked may or may not have happened")

    def _told(self, request: _Request, error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            request.error = self._meaning(error)

    def _meaning(self, error: KafkaError) -> FleetError:
        """A producer that met a lasting error produces nothing more: the next call has a new one."""
        self._is_spent |= is_lasting(error)
        return meaning(error)

    def _made(self) -> Producer:
        settings = self._queue.client()
        del settings["allow.auto.create.topics"]  # a consumer's setting
        return Producer(
            {
                **settings,
                "acks": "all",
                "enable.idempotence": True,
                # As Java's client has it, so that any client's key goes to the same partition.
                "partitioner": "murmur2_random",
                "batch.size": _BATCH_BYTES,
                "message.timeout.ms": milliseconds(self._queue.patience_s),
                "linger.ms": 1,
            }
        )
