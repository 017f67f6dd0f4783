"""A queue for as long as a process lives: for tests, and for trying things out."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Sequence

import attrs

from harness.fleet.envelope import AgentTurnEnvelope, opaque
from harness.fleet.errors import FleetBrokenError, StaleReceiptError
from harness.fleet.fairness import History, Waiting, claim
from harness.fleet.ports import Delivery, Receipt
from harness.fleet.transport.settled import VISIBILITY_S, Settled, place_of, read_place


@attrs.define
class _Row:
    """A delivery. `number` is that of its claim, 0 while it waits; `at` is when it was claimed, `until` when it is due
    again. `again`: since then it was put once more."""

    waiting: Waiting
    envelope: AgentTurnEnvelope | None
    raw: bytes = b""
    problem: str = ""
    owner: str = ""
    number: int = 0
    at: float = 0.0
    until: float = 0.0
    again: bool = False

    def is_of(self, receipt: Receipt) -> bool:
        return self.number != 0 and receipt == self.receipt

    @property
    def receipt(self) -> Receipt:
        return Receipt(self.owner, self.at, place_of(self.waiting.job_id, self.number))

    def wait(self, until: float) -> None:
        self.owner, self.number, self.until = "", 0, until


@attrs.define
class _Queue:
    """What all clients share."""

    clock: Callable[[], float]
    changed: threading.Condition = attrs.field(factory=threading.Condition)
    rows: dict[str, _Row] = attrs.field(factory=dict)
    history: History = attrs.field(factory=History)

    def claim(self, owner: str, limit: int, visibility_s: float) -> list[_Row]:
        now = self.clock()
        for row in self.rows.values():
            if row.number and row.until <= now:
                row.wait(now)
        due = [row.waiting for row in self.rows.values() if not row.number and row.until <= now]
        busy = {row.waiting.group for row in self.rows.values() if row.number}
        claimed = []
        for waiting, number in claim(due, busy, self.history, now, limit):
            row = self.rows[waiting.job_id]
            row.owner, row.number, row.at, row.until, row.again = owner, number, now, now + visibility_s, False
            claimed.append(row)
        return claimed

    def remove(self, job_id: str) -> None:
        del self.rows[job_id]
        self.history.forget(row.waiting for row in self.rows.values())

    def next_change_s(self) -> float:
        """In how many seconds something is due that isn't yet; a second at the most."""
        now = self.clock()
        return min((row.until - now for row in self.rows.values() if row.until > now), default=1.0)


class MemoryTransport:
    """`clock` gives Unix seconds. A receiver that says nothing for `visibility_s` is taken to be gone."""

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.time,
        visibility_s: float = VISIBILITY_S,
        shared: _Queue | None = None,
    ) -> None:
        self._queue = shared or _Queue(clock)
        self._owner, self._visibility_s = secrets.token_hex(8), visibility_s
        self._settled = Settled()
        self._closed = False

    def another(self) -> MemoryTransport:
        """Another client of the same queue."""
        return MemoryTransport(visibility_s=self._visibility_s, shared=self._queue)

    def plant(self, job_id: str, raw: bytes, problem: str) -> None:
        """A delivery that nobody can read, as a stranger might leave one."""
        with self._queue.changed:
            waiting = Waiting(job_id, opaque(""), opaque("", job_id), enqueued_at=self._queue.clock())
            self._queue.rows[job_id] = _Row(waiting, None, raw, problem)
            self._queue.changed.notify_all()

    # -- the port ------------------------------------------------------------------------------------------------------

    def put_many(self, envelopes: Sequence[AgentTurnEnvelope], limit: int) -> tuple[bool, ...]:
        with self._queue.changed:
            self._refuse_when_closed()
            admitted = tuple(self._put(envelope, limit) for envelope in envelopes)
            self._queue.changed.notify_all()
            return admitted

    def receive(self, limit: int, wait_s: float) -> tuple[Delivery, ...]:
        end = time.monotonic() + wait_s
        with self._queue.changed:
            while True:
                self._refuse_when_closed()
                claimed = self._queue.claim(self._owner, limit, self._visibility_s)
                left = end - time.monotonic()
                if claimed or limit <= 0 or left <= 0:
                    return tuple(Delivery(row.receipt, row.envelope, row.raw, row.problem) for row in claimed)
                self._queue.changed.wait(min(left, self._queue.next_change_s()))

    def acknowledge(self, receipts: Sequence[Receipt]) -> tuple[Exception | None, ...]:
        with self._queue.changed:
            self._refuse_when_closed()
            return tuple(self._acknowledge(receipt) for receipt in receipts)

    def give_back(self, receipts: Sequence[Receipt], delay_s: float) -> tuple[Exception | None, ...]:
        with self._queue.changed:
            due = self._queue.clock() + delay_s
            return self._with_each(receipts, lambda row: row.wait(due))

    def extend(self, receipts: Sequence[Receipt]) -> tuple[Exception | None, ...]:
        with self._queue.changed:
            until = self._queue.clock() + self._visibility_s
            return self._with_each(receipts, lambda row: setattr(row, "until", until))

    def depth(self) -> int:
        with self._queue.changed:
            self._refuse_when_closed()
            return len(self._queue.rows)

    def close(self) -> None:
        with self._queue.changed:
            self._closed = True
            self._queue.changed.notify_all()

    # -- one by one ----------------------------------------------------------------------------------------------------

    def _put(self, envelope: AgentTurnEnvelope, limit: int) -> bool:
        rows = self._queue.rows
        if envelope.job_id not in rows:
            if len(rows) >= limit:
                return False
            rows[envelope.job_id] = _Row(Waiting.of(envelope), envelope)
        row = rows[envelope.job_id]
        row.again |= row.envelope is not None and row.envelope.tenant == envelope.tenant
        return True

    def _acknowledge(self, receipt: Receipt) -> Exception | None:
        job_id, _ = read_place(receipt.place)
        row = self._queue.rows.get(job_id)
        if row is not None and row.is_of(receipt):
            if row.again:
                row.wait(self._queue.clock())
            else:
                self._queue.remove(job_id)
            self._settled.add(receipt)
            self._queue.changed.notify_all()  # the next of its session may go
            return None
        return None if receipt in self._settled else StaleReceiptError(job_id)

    def _with_each(self, receipts: Sequence[Receipt], do: Callable[[_Row], None]) -> tuple[Exception | None, ...]:
        self._refuse_when_closed()
        problems: list[Exception | None] = []
        for receipt in receipts:
            job_id, _ = read_place(receipt.place)
            row = self._queue.rows.get(job_id)
            if row is not None and row.is_of(receipt):
                do(row)
                problems.append(None)
            else:
                problems.append(StaleReceiptError(job_id))
        self._queue.changed.notify_all()
        return tuple(problems)

    def _refuse_when_closed(self) -> None:
        if self._closed:
            raise FleetBrokenError("the transport was closed; open another")
