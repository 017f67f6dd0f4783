"""A member of the consumer group: one thread that polls, whatever those who work on its deliveries do.

The thread is the consumer's owner: it alone calls it. It takes in what is fetched, commits what is asked for, pauses
and resumes partitions, and hears which come and go. Other threads take deliveries and ask for commits; all they share
with it is `Lanes` and a list of wishes, under a lock that nobody holds while waiting for the cluster. So a turn may
take as long as it likes: the group sees a member that polls.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Sequence
from typing import Any

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaError, KafkaException, Message, TopicPartition

from harness.fleet.envelope import decode
from harness.fleet.errors import (
    FleetBrokenError,
    FleetError,
    FleetUnavailableError,
    InvalidTurnError,
    StaleReceiptError,
)
from harness.fleet.ports import Delivery, Receipt
from harness.fleet.transport.kafka_cluster import KafkaQueue, milliseconds
from harness.fleet.transport.kafka_errors import is_lasting, meaning, reason
from harness.fleet.transport.kafka_lanes import FULL, Lanes, Out, Record, Standing

_POLL_S = 0.2  #: of one poll while nothing is here: a record wakes it, the end doesn't
_NIMBLE_S = 0.02  #: between two polls while something is: what is asked for wakes it, a record doesn't
_AGAIN_S = 0.1  #: after a commit that was refused
_HEARTBEATS = 15  #: in a session: so a member soon hears that the group wants to rebalance
_FETCH_WAIT_S = 0.1  #: how long a fetch that finds nothing keeps others of the same broker waiting
_FETCH_BYTES = 65_536  #: of one partition; one batch at least is fetched, however large
_CLOSE_S = 30.0


class KafkaConsumer:
    """Its methods may be called from any thread. Its receipts are good for this object alone."""

    def __init__(self, queue: KafkaQueue) -> None:
        self.owner = secrets.token_hex(8)
        self._queue = queue
        self._lanes = Lanes()
        self._wishes: dict[int, Out] = {}  # what is to be committed, by ticket
        self._changed = threading.Condition()  # guards these two, and what follows
        self._refused: FleetError | None = None  # the last commit that was
        self._trouble: FleetError | None = None
        self._broken: FleetError | None = None
        self._is_closing = False
        self._commit_from = 0.0  # not before; the thread's own
        self._consumer = Consumer(_settings(queue), error_cb=self._met)
        self._consumer.subscribe(
            [queue.topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked
        )
        self._thread = threading.Thread(target=self._run, name="kafka-poll", daemon=True)
        self._thread.start()

    def receive(self, limit: int, wait_s: float) -> tuple[Delivery, ...]:
        """As soon as there is any; none after `wait_s`."""
        deadline = time.monotonic() + wait_s
        with self._changed:
            while True:
                self._check()
                now = time.monotonic()
                outs = self._lanes.hand_out(limit, now)
                if outs or now >= deadline:
                    return tuple(self._delivery(out) for out in outs)
                due = self._lanes.next_due()
                self._changed.wait((deadline if due is None else min(due, deadline)) - now)

    def acknowledge(self, receipts: Sequence[Receipt]) -> tuple[Exception | None, ...]:
        """Commits what is behind each. That is tried until it is done, or the partition gone, however long the caller
        waits: asking again tells."""
        with self._changed:
            self._check()
            found = [self._find(receipt) for receipt in receipts]
            outs = [out for out in found if isinstance(out, Out)]
            self._wishes |= {out.ticket: out for out in outs}
            self._refused = None
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._is_over(outs), self._queue.patience_s)
            return tuple(self._answer(out, receipt) for out, receipt in zip(found, receipts, strict=True))

    def give_back(self, receipts: Sequence[Receipt], delay_s: float) -> tuple[Exception | None, ...]:
        """The partition waits for it: what is behind it can't be committed before."""
        with self._changed:
            self._check()
            found = [self._find(receipt) for receipt in receipts]
            for out in found:
                if isinstance(out, Out):
                    self._wishes.pop(out.ticket, None)
                    self._lanes.give_back(out, time.monotonic() + delay_s)
            self._changed.notify_all()
        return tuple(None if isinstance(out, Out) else out for out in found)

    def extend(self, receipts: Sequence[Receipt]) -> tuple[Exception | None, ...]:
        """That they are still out; the group hears of us by itself."""
        with self._changed:
            self._check()
            found = [self._find(receipt) for receipt in receipts]
        return tuple(None if isinstance(out, Out) else out for out in found)

    def trouble(self) -> FleetError | None:
        """What was met since the last call; it may be over."""
        with self._changed:
            met, self._trouble = self._trouble, None
            return met

    def close(self) -> None:
        """Leave the group. What is out is delivered to another member."""
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        self._thread.join(_CLOSE_S)

    # -- under the lock ------------------------------------------------------------------------------------------------

    def _check(self) -> None:
        if self._is_closing:
            raise FleetBrokenError("the transport was closed; open another")
        if self._broken is not None:
            raise self._broken

    def _find(self, receipt: Receipt) -> Out | StaleReceiptError:
        out = self._lanes.find(_ticket(receipt)) if receipt.owner == self.owner else None
        return out or StaleReceiptError(job_of(receipt))

    def _is_over(self, outs: Sequence[Out]) -> bool:
        return self._broken is not None or self._is_closing or all(out.standing is not Standing.OUT for out in outs)

    def _answer(self, found: Out | StaleReceiptError, receipt: Receipt) -> Exception | None:
        if receipt.owner == self.owner and self._lanes.is_done(_ticket(receipt)):
            return None
        if isinstance(found, StaleReceiptError):
            return found
        if found.standing is not Standing.OUT:
            return StaleReceiptError(job_of(receipt))
        return self._broken or self._refused or FleetUnavailableError("Kafka has not confirmed it; acknowledge again")

    def _delivery(self, out: Out) -> Delivery:
        raw = out.record.value
        try:
            envelope, problem = decode(raw), ""
        except InvalidTurnError as error:
            envelope, problem = None, str(error)
        job_id = "" if envelope is None else envelope.job_id
        place = f"{out.ticket}:{out.partition}@{out.record.offset}:{job_id}"
        return Delivery(Receipt(self.owner, time.time(), place), envelope, raw, problem)

    # -- in the thread that polls --------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._is_closing and self._broken is None:
                self._round()
        except Exception as error:  # noqa: BLE001 - the thread's door: whoever asks next is told
            with self._changed:
                self._broken = FleetBrokenError(f"the Kafka consumer ended by an error: {type(error).__name__}")
                self._broken.__cause__ = error
                self._changed.notify_all()
        finally:
            self._consumer.close()

    def _round(self) -> None:
        with self._changed:
            is_idle = self._lanes.is_idle
            wishes = list(self._wishes.values())
        if wishes and time.monotonic() >= self._commit_from:
            self._commit(wishes)
        message = self._consumer.poll(_POLL_S if is_idle else 0.0)
        if message is not None:
            self._take(message)
        elif not is_idle:
            with self._changed:
                self._changed.wait_for(self._is_wanted, _NIMBLE_S)

    def _is_wanted(self) -> bool:
        return self._is_closing or (bool(self._wishes) and time.monotonic() >= self._commit_from)

    def _commit(self, outs: Sequence[Out]) -> None:
        """Each is the first of its partition: all before it is committed."""
        topic = self._queue.topic
        places = [TopicPartition(topic, out.partition, out.record.offset + 1) for out in outs]
        try:
            places = self._consumer.commit(offsets=places, asynchronous=False)
        except KafkaException as error:
            self._put_off(reason(error))
            return
        refused = [place.error for place in places if place.error is not None]
        if refused:
            self._put_off(refused[0])
        with self._changed:
            done = [place for place in places if place.error is None]
            to_resume = [place.partition for place in done if self._lanes.commit(place.partition, place.offset)]
            self._drop_wishes()
        if to_resume:
            self._consumer.resume([TopicPartition(topic, partition) for partition in to_resume])

    def _put_off(self, error: KafkaError) -> None:
        """A group that rebalances, or a broker that is away: polling goes on, which is what brings them back."""
        self._commit_from = time.monotonic() + _AGAIN_S
        with self._changed:
            self._refused = meaning(error)
        self._met(error)

    def _drop_wishes(self) -> None:
        """Under the lock: those that came true, or can't any more."""
        self._wishes = {ticket: out for ticket, out in self._wishes.items() if out.standing is Standing.OUT}
        self._changed.notify_all()

    def _take(self, message: Message) -> None:
        error = message.error()
        if error is not None:
            self._met(error)
            return
        partition, offset = message.partition(), message.offset()
        assert partition is not None and offset is not None
        kind, at_ms = message.timestamp()
        at = 0.0 if kind == TIMESTAMP_NOT_AVAILABLE else at_ms / 1_000
        with self._changed:
            is_full = self._lanes.take_in(partition, Record(offset, message.value() or b"", at))
            self._changed.notify_all()
        if is_full:
            self._consumer.pause([TopicPartition(self._queue.topic, partition)])

    def _met(self, error: KafkaError) -> None:
        with self._changed:
            self._trouble = meaning(error)
            if is_lasting(error):
                self._broken = self._trouble
            self._changed.notify_all()

    def _assigned(self, _consumer: Any, places: Sequence[TopicPartition]) -> None:
        with self._changed:
            self._lanes.open(place.partition for place in places)
            self._drop_wishes()

    def _revoked(self, _consumer: Any, places: Sequence[TopicPartition]) -> None:
        """Given up, or lost: what is out of them is another member's from now on."""
        with self._changed:
            self._lanes.end(place.partition for place in places)
            self._drop_wishes()


def job_of(receipt: Receipt) -> str:
    """The job that it is for; where it was, for one that is none."""
    _ticket, _, rest = receipt.place.partition(":")
    where, _, job_id = rest.partition(":")
    return job_id or where


def _ticket(receipt: Receipt) -> int:
    return int(receipt.place.partition(":")[0])


def _settings(queue: KafkaQueue) -> dict[str, Any]:
    session_ms = milliseconds(queue.session_s)
    static = {"group.instance.id": queue.instance} if queue.instance else {}
    return {
        **queue.client(),
        **static,
        "group.id": queue.group,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "earliest",
        "partition.assignment.strategy": "cooperative-sticky",
        "session.timeout.ms": session_ms,
        "heartbeat.interval.ms": max(1, session_ms // _HEARTBEATS),
        "max.poll.interval.ms": max(session_ms, milliseconds(queue.poll_s)),
        "fetch.wait.max.ms": milliseconds(_FETCH_WAIT_S),
        "fetch.message.max.bytes": _FETCH_BYTES,
        "fetch.error.backoff.ms": 100,
        "fetch.queue.backoff.ms": 10,
        "queued.min.messages": FULL,
    }
