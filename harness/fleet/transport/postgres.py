"""A queue in a PostgreSQL database, for workers anywhere.

What happens there is in the functions of `sql/postgres_0001.sql`; each call here is one of them, in one transaction and
one round trip. What was put or acknowledged is on the disk when the call returns. Claims are kept in unlogged tables: a
crash of the server takes them, and what was out is delivered again.

Nothing depends on the session, save listening: behind a pooler that hands out connections by transaction no hint comes,
and a receiver looks for itself every now and then.
"""

from __future__ import annotations

import contextlib
import math
import secrets
import threading
import time
from collections.abc import Callable, Sequence

from harness.database.killpoint import killpoint
from harness.database.postgres import Connect, connect, locate
from harness.database.postgres_wire import Statement, Value, array, statement
from harness.fleet.envelope import AgentTurnEnvelope
from harness.fleet.errors import FleetBrokenError, FleetUnavailableError, StaleReceiptError
from harness.fleet.ports import Delivery, Receipt
from harness.fleet.transport.postgres_link import Link, Listener
from harness.fleet.transport.postgres_schema import SQL, TERMS
from harness.fleet.transport.row import COLUMNS, delivery_of
from harness.fleet.transport.settled import VISIBILITY_S, Settled, place_of, read_place

LOOK_S = 2.0  #: a receiver that no hint wakes looks for itself that often
SOON_S = 0.005  #: and never more often
WORK_OFF_AT = 1000
_WAKE = Statement(SQL["wake"])


class PostgresTransport:
    """The queue in the database that `conninfo` names: a URL, or libpq's `key=value` form.

    Its tables are made when it is first used. `clock` gives Unix seconds in place of the database's own. A receiver
    that says nothing for `visibility_s` is taken to be gone. May be used by several threads at once; one that waits in
    `receive` is in nobody's way.
    """

    def __init__(
        self,
        conninfo: str,
        *,
        clock: Callable[[], float] | None = None,
        visibility_s: float = VISIBILITY_S,
        connect: Connect = connect,
    ) -> None:
        location = locate(conninfo, TERMS)
        self._clock, self._visibility_s = clock, visibility_s
        self._owner = secrets.token_hex(8)
        self._mutex, self._waiting = threading.Lock(), threading.Lock()
        self._link, self._listener = Link(location, connect), Listener(location, connect)
        self._settled, self._doubtful = Settled(), Settled()
        self._closed = threading.Event()
        self._put = 0  # since notes were worked off from here

    # -- the port ------------------------------------------------------------------------------------------------------

    def put_many(self, envelopes: Sequence[AgentTurnEnvelope], limit: int) -> tuple[bool, ...]:
        if not envelopes:
            self._refuse_when_closed()
            return ()
        killpoint("queue.before-put")
        there = {name for (name,) in self._write("put", *put_values(envelopes, limit), hint=_WAKE)}
        killpoint("queue.after-put")
        self.work_off(len(envelopes))
        return tuple(envelope.job_id in there for envelope in envelopes)

    def receive(self, limit: int, wait_s: float) -> tuple[Delivery, ...]:
        end = time.monotonic() + wait_s
        received = self._receive(limit)
        if received or limit <= 0 or wait_s <= 0:
            return received
        with self._waiting:
            try:
                while True:
                    self._listener.begin()
                    received = self._receive(limit)
                    left = end - time.monotonic()
                    if received or left <= 0:
                        return received
                    self._listener.wait(min(left, LOOK_S, max(SOON_S, self._next_change_s())), self._closed)
            finally:
                self._listener.end()

    def acknowledge(self, receipts: Sequence[Receipt]) -> tuple[Exception | None, ...]:
        if not receipts:
            self._refuse_when_closed()
            return ()
        killpoint("queue.before-acknowledge")
        try:
            answers = self._write("acknowledge", *acknowledge_values(receipts))
        except FleetUnavailableError:
            for receipt in receipts:
                self._doubtful.add(receipt)
            raise
        killpoint("queue.after-acknowledge")
        return self.acknowledged(receipts, answers)

    def acknowledged(
        self, receipts: Sequence[Receipt], answers: Sequence[tuple[object, ...]]
    ) -> tuple[Exception | None, ...]:
        """What the answers of the statement `acknowledge` mean for those receipts. Who waits for more is told."""
        if any(more for _, _, more in answers):
            self._wake()
        gone = {place: done for place, done, _ in answers}
        return tuple(self._answer(receipt, gone.get(place)) for place, receipt in enumerate(receipts, start=1))

    def give_back(self, receipts: Sequence[Receipt], delay_s: float) -> tuple[Exception | None, ...]:
        answers = self._for_each("give_back", receipts, delay_s)
        self._wake()
        return answers

    def extend(self, receipts: Sequence[Receipt]) -> tuple[Exception | None, ...]:
        return self._for_each("extend", receipts, self._visibility_s)

    def depth(self) -> int:
        depth = self._read("depth")
        if depth is None:  # a crash took all that is not logged
            self._write("count")
            depth = self._read("depth")
        assert isinstance(depth, int), depth
        return depth

    def close(self) -> None:
        self._closed.set()
        with self._mutex:
            self._link.close()
        with self._waiting:
            self._listener.close()

    # -- one by one ----------------------------------------------------------------------------------------------------

    def _receive(self, limit: int) -> tuple[Delivery, ...]:
        rows = self._write("receive", self._owner, limit, self._visibility_s, self._now())
        killpoint("queue.after-receive")
        return tuple(self._delivery(*row) for row in rows)

    def _delivery(self, number: object, claimed_at: object, *columns: object) -> Delivery:
        job_id = columns[COLUMNS.index("job_id")]
        assert isinstance(number, int) and isinstance(claimed_at, float) and isinstance(job_id, str)
        return delivery_of(Receipt(self._owner, claimed_at, place_of(job_id, number)), columns)

    def _answer(self, receipt: Receipt, gone: object) -> Exception | None:
        """`gone` is None of a delivery that is no more: of one that we asked to be acknowledged, that was our doing."""
        if gone or (gone is None and receipt in self._doubtful):
            self._settled.add(receipt)
        return None if receipt in self._settled else StaleReceiptError(read_place(receipt.place)[0])

    def _for_each(self, name: str, receipts: Sequence[Receipt], seconds: float) -> tuple[Exception | None, ...]:
        if not receipts:
            self._refuse_when_closed()
            return ()
        done = {place for (place,) in self._write(name, *acknowledge_values(receipts), seconds, self._now())}
        return tuple(
            None if place in done else StaleReceiptError(read_place(receipt.place)[0])
            for place, receipt in enumerate(receipts, start=1)
        )

    def _next_change_s(self) -> float:
        seconds = self._read("next_change", self._now())
        return seconds if isinstance(seconds, float) else LOOK_S

    def work_off(self, put: int) -> None:
        """Told of how many were put, here or in somebody else's transaction. It does something after much that was put,
        so that no receiver finds a hundred thousand notes."""
        self._put += put
        if self._put >= WORK_OFF_AT:
            self._put = 0
            with contextlib.suppress(FleetUnavailableError):  # it was put, and the next will do it
                self._write("work_off", self._now())

    # -- the database --------------------------------------------------------------------------------------------------

    def _now(self) -> float | None:
        return None if self._clock is None else self._clock()

    def _wake(self) -> None:
        with self._mutex:
            self._link.hint(_WAKE)

    def _read(self, name: str, *values: Value) -> object:
        """The value of a statement that has one at most."""
        with self._mutex:
            self._refuse_when_closed()
            rows = self._link.read(statement(SQL[name], *values))
        return rows[0][0] if rows else None

    def _write(self, name: str, *values: Value | bytes, hint: Statement | None = None) -> list[tuple[object, ...]]:
        encoded = tuple(value if value is None or isinstance(value, bytes) else str(value).encode() for value in values)
        with self._mutex:
            self._refuse_when_closed()
            return self._link.write(Statement(SQL[name], encoded), hint)

    def _refuse_when_closed(self) -> None:
        if self._closed.is_set():
            raise FleetBrokenError("the transport was closed; open another")


def put_values(envelopes: Sequence[AgentTurnEnvelope], limit: int) -> tuple[bytes, ...]:
    """The parameters of the statement `put`: the bound of the depth, and an array for each column."""
    names = ("job_id", "session_id", "kind", "payload_ref", "tenant", "priority")
    columns = [array([getattr(envelope, name) for envelope in envelopes]) for name in names]
    deadlines = [math.inf if envelope.deadline is None else envelope.deadline for envelope in envelopes]
    attempts = [envelope.attempt for envelope in envelopes]
    times = [envelope.enqueued_at for envelope in envelopes]
    return str(limit).encode(), *columns, array(deadlines), array(attempts), array(times)


def acknowledge_values(receipts: Sequence[Receipt]) -> tuple[bytes, ...]:
    """The parameters of the statement `acknowledge`: an array each of ids, owners, times and numbers."""
    places = [read_place(receipt.place) for receipt in receipts]
    return (
        array([job_id for job_id, _ in places]),
        array([receipt.owner for receipt in receipts]),
        array([receipt.claimed_at for receipt in receipts]),
        array([number for _, number in places]),
    )
