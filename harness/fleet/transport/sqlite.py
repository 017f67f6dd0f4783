"""A queue in a SQLite file, for the workers of one machine.

Who puts or acknowledges writes the queue's own table and nothing else; who receives keeps the order (`sqlite_order`).
Puts and acknowledgements are on the disk when they return. A claim that a power cut undoes is a delivery that comes
again, so it doesn't wait for the disk.

A receiver that waits looks at the file's change counter, which touches no disk, until somebody has committed something.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from harness.database.killpoint import killpoint
from harness.database.sqlite_file import identity
from harness.fleet.envelope import AgentTurnEnvelope
from harness.fleet.errors import FleetBrokenError, StaleReceiptError
from harness.fleet.ports import Delivery, Receipt
from harness.fleet.transport.row import delivery_of, values_of
from harness.fleet.transport.settled import VISIBILITY_S, Settled, place_of, read_place
from harness.fleet.transport.sqlite_file import QUEUE, TERMS
from harness.fleet.transport.sqlite_order import SQL, Claimed, Order

STEP_S = 0.005  #: between two looks at the counter, each of which costs some microseconds
FOREVER_S = 3600.0  #: before a receiver looks whatever the counter says
PATIENCE_S = 10.0  #: how long a call waits while others write


class SqliteTransport:
    """The queue in the file at `path`, which is made when it is first used.

    `clock` gives Unix seconds in place of the database's own. A receiver that says nothing for `visibility_s` is taken
    to be gone. May be used by several threads at once; one that waits in `receive` is in nobody's way.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        clock: Callable[[], float] | None = None,
        visibility_s: float = VISIBILITY_S,
        connect: Callable[[Path], sqlite3.Connection] = QUEUE.connect,
    ) -> None:
        self._path = Path(path).absolute()
        self._clock, self._visibility_s, self._connect = clock, visibility_s, connect
        self._owner = secrets.token_hex(8)
        self._mutex = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._file = (0, 0)
        self._durable = True
        self._settled = Settled()
        self._closed = threading.Event()

    # -- the port ------------------------------------------------------------------------------------------------------

    def put_many(self, envelopes: Sequence[AgentTurnEnvelope], limit: int) -> tuple[bool, ...]:
        with self._using() as connection:
            depth, known = _look(connection, envelopes)
            if depth < limit and any(envelope.job_id not in known for envelope in envelopes):
                with self._writing(connection, durable=True) as order:
                    depth, known = _look(connection, envelopes)
                    new = _admissible(envelopes, known, limit - depth)
                    connection.executemany(SQL["put"], list(map(values_of, new)))
                    order.fold_many(self._now(connection))
                    killpoint("queue.before-put-commit")
                killpoint("queue.after-put-commit")
                known |= {envelope.job_id for envelope in new}
        return tuple(envelope.job_id in known for envelope in envelopes)

    def receive(self, limit: int, wait_s: float) -> tuple[Delivery, ...]:
        end = time.monotonic() + wait_s
        received, change_s = self._receive(limit)
        if received or limit <= 0 or wait_s <= 0:
            return received
        with contextlib.closing(_Watch(self._path)) as watch:
            while True:
                watch.look()
                received, change_s = self._receive(limit)
                left = end - time.monotonic()
                if received or left <= 0:
                    return received
                watch.wait(min(left, max(STEP_S, change_s)), self._closed)

    def acknowledge(self, receipts: Sequence[Receipt]) -> tuple[Exception | None, ...]:
        with self._using() as connection:
            if not receipts:
                return ()
            with self._writing(connection, durable=True) as order:
                gone = [connection.execute(SQL["acknowledge"], _claim_of(each)).rowcount > 0 for each in receipts]
                order.fold_many(self._now(connection))
                killpoint("queue.before-acknowledge-commit")
            killpoint("queue.after-acknowledge-commit")
        for receipt, done in zip(receipts, gone, strict=True):
            if done:
                self._settled.add(receipt)
        return tuple(None if receipt in self._settled else _stale(receipt) for receipt in receipts)

    def give_back(self, receipts: Sequence[Receipt], delay_s: float) -> tuple[Exception | None, ...]:
        with self._using() as connection, self._writing(connection, durable=False) as order:
            due = self._now(connection) + delay_s
            done = order.give_back(map(_claim_of, receipts), due)
        return tuple(None if was_ours else _stale(receipt) for receipt, was_ours in zip(receipts, done, strict=True))

    def extend(self, receipts: Sequence[Receipt]) -> tuple[Exception | None, ...]:
        with self._using() as connection, self._writing(connection, durable=False):
            until = {"until": self._now(connection) + self._visibility_s}
            done = [connection.execute(SQL["extend"], _claim_of(each) | until).rowcount > 0 for each in receipts]
        return tuple(None if was_ours else _stale(receipt) for receipt, was_ours in zip(receipts, done, strict=True))

    def depth(self) -> int:
        with self._using() as connection:
            return int(connection.execute(SQL["depth"]).fetchone()[0])

    def close(self) -> None:
        self._closed.set()
        with self._mutex:
            self._drop()

    # -- receiving -----------------------------------------------------------------------------------------------------

    def _receive(self, limit: int) -> tuple[tuple[Delivery, ...], float]:
        """What there is, and in how many seconds more is due by time alone, as far as is known."""
        with self._using() as connection:
            now = self._now(connection)
            if limit <= 0 or not connection.execute(SQL["is_due"], {"now": now}).fetchone()[0]:
                (due,) = connection.execute(SQL["next_change"]).fetchone()
                return (), FOREVER_S if due is None else due - now
            with self._writing(connection, durable=False) as order:
                claimed = order.claim(self._owner, limit, now, now + self._visibility_s)
                received = tuple(self._delivery(connection, each, now) for each in claimed)
                killpoint("queue.before-receive-commit")
            killpoint("queue.after-receive-commit")
            return received, 0.0

    def _delivery(self, connection: sqlite3.Connection, claimed: Claimed, now: float) -> Delivery:
        columns = connection.execute(SQL["delivery"], (claimed.place,)).fetchone()
        key = f"{claimed.place}:{columns[0]}"
        return delivery_of(Receipt(self._owner, now, place_of(key, claimed.number)), columns)

    # -- the connection ------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _using(self) -> Iterator[sqlite3.Connection]:
        """The connection, for one thread at a time."""
        with self._mutex:
            if self._closed.is_set():
                raise FleetBrokenError("the transport was closed; open another")
            try:
                yield self._connected()
            except sqlite3.Error as error:
                raise QUEUE.meaning(error, self._path) from error

    def _connected(self) -> sqlite3.Connection:
        QUEUE.refuse_after_fork(self._path)
        if self._connection is not None and identity(self._path) != self._file:
            self._drop()
            raise TERMS.unavailable(f"{self._path} was removed or replaced; it is opened anew at the next call")
        if self._connection is None:
            connection = self._connect(self._path)
            QUEUE.insist(connection, self._path, "busy_timeout", round(PATIENCE_S * 1000))
            connection.text_factory = lambda raw: raw.decode("utf-8", "surrogateescape")
            self._connection, self._file, self._durable = connection, identity(self._path), True
        return self._connection

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    @contextlib.contextmanager
    def _writing(self, connection: sqlite3.Connection, *, durable: bool) -> Iterator[Order]:
        """A transaction. Of one that is not durable a power cut may take the last moments, but never a part."""
        if durable is not self._durable:
            connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            self._durable = durable
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield Order(connection)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    def _now(self, connection: sqlite3.Connection) -> float:
        now = None if self._clock is None else self._clock()
        return float(connection.execute(SQL["now"], {"now": now}).fetchone()[0])


class _Watch:
    """Sees that somebody has committed something, on a connection of its own."""

    def __init__(self, path: Path) -> None:
        self._path, self._seen = path, 0
        self._connection: sqlite3.Connection | None = None

    def look(self) -> None:
        """What was committed before is seen by whoever reads after this."""
        self._seen = self._counter()

    def wait(self, seconds: float, closed: threading.Event) -> None:
        """Until then, or until something is committed."""
        end = time.monotonic() + seconds
        try:
            while self._counter() == self._seen and (left := end - time.monotonic()) > 0:
                if closed.wait(min(STEP_S, left)):
                    return
        except sqlite3.Error as error:
            raise QUEUE.meaning(error, self._path) from error

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def _counter(self) -> int:
        if self._connection is None:
            self._connection = QUEUE.connect_to_read(self._path)
        (count,) = self._connection.execute("PRAGMA data_version").fetchone()
        return int(count)


def _look(connection: sqlite3.Connection, envelopes: Sequence[AgentTurnEnvelope]) -> tuple[int, set[str]]:
    """The depth, and which of these are there."""
    ids = json.dumps([envelope.job_id for envelope in envelopes])
    known = {job_id for (job_id,) in connection.execute(SQL["known"], (ids,))}
    return int(connection.execute(SQL["depth"]).fetchone()[0]), known


def _admissible(envelopes: Sequence[AgentTurnEnvelope], known: set[str], room: int) -> list[AgentTurnEnvelope]:
    """The first ones that are new, as many as there is room for."""
    new = {envelope.job_id: envelope for envelope in reversed(envelopes) if envelope.job_id not in known}
    in_order = dict.fromkeys(envelope.job_id for envelope in envelopes if envelope.job_id in new)
    return [new[job_id] for job_id in in_order][: max(0, room)]


def _claim_of(receipt: Receipt) -> dict[str, Any]:
    key, number = read_place(receipt.place)
    place, colon, _ = key.partition(":")
    if not (colon and place.isascii() and place.isdigit()):
        raise FleetBrokenError("the receipt is none of a SQLite queue; acknowledge with the transport it came from")
    return {"place": int(place), "number": number, "owner": receipt.owner, "claimed_at": receipt.claimed_at}


def _stale(receipt: Receipt) -> StaleReceiptError:
    return StaleReceiptError(read_place(receipt.place)[0].partition(":")[2])
