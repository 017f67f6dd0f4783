"""A topic and a consumer group of a Kafka cluster: made, grown, and how far the group lags behind."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any, TypeVar

import attrs
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]  # public, its stubs forgot
from confluent_kafka.cimpl import NewPartitions, NewTopic

from harness.fleet.errors import FleetBrokenError, FleetError, FleetUnavailableError
from harness.fleet.kafka_servers import KafkaServers, at_fault
from harness.fleet.transport.kafka_errors import is_missing, is_settling, meaning, reason, telling

TOPIC = "agent_turns"
GROUP = "agent-dispatch"
_LOOK_S = 0.05  #: between two looks for a change of the topic: the cluster tells nobody
_SLICE_S = (
    1.0  #: of a wait for a cluster that may have refused who we are: the client goes on trying, and says it aside
)
_GROW_TRIES = 5
_OLDEST, _END = OffsetSpec.earliest(), OffsetSpec.latest()  # type: ignore[no-untyped-call]
Answer = TypeVar("Answer")
Client = TypeVar("Client")


@attrs.frozen
class KafkaQueue:
    """Where the turns are, and how a consumer of theirs behaves.

    `instance`, unless empty, makes the consumer a static member: it may be away
    for `session_s` without a rebalance, and no other may go by the same name. A member that is not heard of for
    `session_s`, or does not poll for `poll_s`, is taken to be gone. `refresh_s`: how often new partitions are looked
    for. `patience_s`: after so long without an answer the cluster is out of reach.
    """

    servers: KafkaServers
    partitions: int = 12
    topic: str = TOPIC
    group: str = GROUP
    instance: str = ""
    session_s: float = 30.0
    poll_s: float = 300.0
    refresh_s: float = 30.0
    patience_s: float = 10.0

    def client(self) -> dict[str, Any]:
        """The settings of all clients alike. Nothing is written to standard error: errors are raised, or counted."""
        return {
            **self.servers.client(),
            "client.id": "slice-dispatch",
            "log_level": 0,
            "allow.auto.create.topics": False,
            "socket.timeout.ms": milliseconds(self.patience_s),
            "socket.keepalive.enable": True,
            "reconnect.backoff.max.ms": 1_000,
            "topic.metadata.refresh.interval.ms": milliseconds(self.refresh_s),
        }


def _made(kind: Callable[[dict[str, Any]], Client], settings: dict[str, Any]) -> Client:
    """A client. Raises `InvalidSettingError` for a file that it can't use."""
    try:
        return kind(settings)
    except KafkaException as error:
        raise at_fault(reason(error).str() or "") or meaning(reason(error)) from None  # its text may name a path


def milliseconds(seconds: float) -> int:
    return round(seconds * 1_000)


class KafkaCluster:
    """May be used from any thread. Every method raises `FleetUnavailableError` and `FleetBrokenError`."""

    def __init__(self, queue: KafkaQueue) -> None:
        self._queue = queue
        settings = queue.client()
        del settings["allow.auto.create.topics"]  # a consumer's setting
        self._kept_out: FleetError | None = None  # what an admin client met last that says more than a failed request
        self._admin = _made(AdminClient, {**settings, "error_cb": self._met})
        # It never subscribes, so the group does not hear of it. The admin client has a call for the same, by which
        # librdkafka 2.16 ends the whole process where the group's coordinator is not known yet: its bug 5040.
        self._reader = Consumer({**queue.client(), "group.id": queue.group})
        self._reading = threading.Lock()  # it is for one thread at a time
        self._is_closed = False

    def close(self) -> None:
        with self._reading:
            self._is_closed = True
            self._reader.close()

    def prepare(self) -> None:
        """The topic is there, with as many partitions as were asked for or more: their number only grows."""
        wanted = self._queue.partitions
        for _ in range(_GROW_TRIES):
            found = self._partitions(self._queue.patience_s)
            if found >= wanted:
                return
            self._grow(found, wanted)
            self._await_partitions(wanted)
        raise FleetUnavailableError("Kafka's topic is being changed by others; try again")

    def partitions(self) -> int:
        """How many the topic has. A topic that is missing is an error."""
        found = self._partitions(self._queue.patience_s)
        if not found:
            raise meaning(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
        return found

    def depth(self) -> int:
        """The group's lag: records that are there and whose offset the group has not committed past.

        Offsets that were never committed, or point to what is no longer there, count from the oldest record: there a
        consumer would begin. The committed ones are read first: what is done meanwhile still counts, nothing that is
        added meanwhile is missed.
        """
        places = [TopicPartition(self._queue.topic, number) for number in range(self.partitions())]
        committed = self._committed(places)
        ends, starts = self._offsets(places, _END), self._offsets(places, _OLDEST)
        return sum(lag(starts[number], ends[number], committed.get(number)) for number in ends)

    def _committed(self, places: list[TopicPartition]) -> dict[int, int]:
        with self._reading:
            if self._is_closed:
                raise FleetBrokenError("the transport was closed; open another")
            found = self._asked(lambda: self._reader.committed(places, timeout=self._queue.patience_s))
        for place in found:
            if place.error is not None:
                raise meaning(place.error)
        return {place.partition: place.offset for place in found if place.offset >= 0}

    def _offsets(self, places: list[TopicPartition], which: OffsetSpec) -> dict[int, int]:
        asked = dict.fromkeys(places, which)
        answers = self._answers(lambda: self._admin.list_offsets(asked, **self._limits()).values())
        return {place.partition: answer.offset for place, answer in zip(asked, answers, strict=True)}

    def _partitions(self, limit_s: float) -> int:
        """0 if there is no topic. The first that is asked, and so where it shows that we are not let in."""
        wait_s = min(limit_s, _SLICE_S)
        topic = self._asked(lambda: self._admin.list_topics(self._queue.topic, timeout=wait_s))
        found = topic.topics[self._queue.topic]
        if found.error is not None and not is_missing(found.error):
            raise meaning(found.error)
        return len(found.partitions)

    def _grow(self, found: int, wanted: int) -> None:
        """Another process may be about the same: what it did first is found out by looking again."""
        name = self._queue.topic
        if found:
            futures = self._admin.create_partitions([NewPartitions(name, wanted)], **self._limits())
        else:
            futures = self._admin.create_topics([NewTopic(name, wanted, -1)], **self._limits())
        try:
            futures[name].result(self._queue.patience_s)
        except KafkaException as error:
            if reason(error).code() not in (KafkaError.TOPIC_ALREADY_EXISTS, KafkaError.INVALID_PARTITIONS):
                raise meaning(reason(error)) from error

    def _await_partitions(self, wanted: int) -> None:
        """Until the brokers that we ask have heard of them, or it took too long."""
        deadline = time.monotonic() + self._queue.patience_s
        pause = threading.Event()
        while self._partitions(self._queue.patience_s) < wanted and time.monotonic() < deadline:
            pause.wait(_LOOK_S)

    def _answers(self, ask: Callable[[], Iterable[Future[Answer]]]) -> list[Answer]:
        limit_s = self._queue.patience_s + 1  # the request has given up by then
        return self._asked(lambda: [future.result(limit_s) for future in ask()])

    def _asked(self, ask: Callable[[], Answer]) -> Answer:
        """Asks again while the cluster is away, or about to know."""
        self._admin.poll(0)  # what was met before is told, and forgotten
        self._kept_out = None
        deadline, pause = time.monotonic() + self._queue.patience_s, threading.Event()
        while True:
            try:
                return ask()
            except KafkaException as error:
                failed = self._meaning(meaning(reason(error)))
                is_over = isinstance(failed, FleetBrokenError) and not is_settling(reason(error))
                if is_over or time.monotonic() >= deadline:
                    raise failed from error
                pause.wait(_LOOK_S)
            except TimeoutError as error:
                silent = FleetUnavailableError("Kafka is out of reach: it does not answer; try again later")
                raise self._meaning(silent) from error

    def _meaning(self, failed: FleetError) -> FleetError:
        """The same, or what kept us from asking at all."""
        self._admin.poll(0)
        is_apart = isinstance(failed, FleetUnavailableError)
        return self._kept_out if is_apart and self._kept_out is not None else failed

    def _met(self, error: KafkaError) -> None:
        self._kept_out = telling(error) or self._kept_out

    def _limits(self) -> dict[str, float]:
        return {"request_timeout": self._queue.patience_s}


def lag(start: int, end: int, committed: int | None) -> int:
    """Records of a partition from `start` to before `end` that are not committed past."""
    is_there = committed is not None and start <= committed <= end
    return end - (committed if is_there and committed is not None else start)
