"""A queue in a SQLite file, for the workers of one machine.

Who puts or acknowledges writes the queue's own table and nothing else; who receives keeps the order (`sqlite_order`).
Puts and acknowledgements are on the disk when they return. A claim that a power cut undoes is a delivery that comes
again, so it doesn't wait for the disk.

A receiver that waits looks at the file's change counter, which touches no disk, until somebody has committed something.
"""

from __future__ import annotations

import contextlib
import json
import operator
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from harness.database.killpoint import killpoint
from harness.database.sqlite_file import FileKind, identity
from harness.fleet.envelope import AgentTurnEnvelope
from harness.fleet.errors import FleetBrokenError, FleetError, StaleReceiptError
from harness.fleet.ports import Delivery, Receipt
from harness.fleet.sqlite_writing import Writing
from harness.fleet.transport.row import COLUMNS, delivery_of
from harness.fleet.transport.settled import VISIBILITY_S, Settled, place_of, read_place
from harness.fleet.transport.sqlite_file import QUEUE, TERMS
from harness.fleet.transport.sqlite_order import SQL, Claimed, Order, of_strangers

STEP_S = 0.005  #: at most between two looks at the counter, each of which costs some microseconds,
SHORTEST_STEP_S = 0.0005  #: and at least
PROMPTNESS = 0.05  #: of the time that a receiver has waited, how much more may pass before it sees what has come
FOREVER_S = 3600.0  #: before a receiver looks whatever the counter says
PATIENCE_S = 10.0  #: how long a call waits while others write
_values_of = operator.attrgetter(*COLUMNS)  # a tenth of the time of `attrs.astuple`


class SqliteTransport:
    """The queue in the file at `path`, which is made when it is first used.

    `kind` is what the file is if it is not the queue's alone, with the queue's tables in it; `connect` opens it for
    writing. `clock` gives Unix seconds in place of the database's own. A receiver that says nothing for `visibility_s`
    is taken to be gone. May be used by several threads at once; one that waits in `receive` is in nobody's way.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        kind: FileKind[FleetError] = QUEUE,
        clock: Callable[[], float] | None = None,
        visibility_s: float = VISIBILITY_S,
        connect: Callable[[Path], sqlite3.Connection] | None = None,
    ) -> None:
        self.path = Path(path).absolute()
        self._kind, self._clock, self._visibility_s = kind, clock, visibility_s
        self._connect = kind.connect if connect is None else connect
        self._owner = secrets.token_hex(8)
        self._mutex = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._file = (0, 0)
        self._transactions = Writing(self.path, PATIENCE_S)
        self._settled = Settled()
        self._closed = threading.Event()

    # -- the port ------------------------------------------------------------------------------------------------------

    def put_many(self, envelopes: Sequence[AgentTurnEnvelope], limit: int) -> tuple[bool, ...]:
        with self._using() as connection:
            ids = [envelope.job_id for envelope in envelopes]
            length, known = _look(connection, ids)
            if (length < limit and any(name not in known for name in ids)) or any(known.values()):
                with self._writing(connection, durable=True):
                    length, known = _look(connection, ids)
                    out = [(one.job_id, one.tenant) for one in envelopes if known.get(one.job_id)]
                    connection.executemany(SQL["put_again"], out)
                    new = _admissible(envelopes, known, limit - length)
                    put(connection, new, self.now)
                    killpoint("queue.before-put-commit")
                killpoint("queue.after-put-commit")
                known |= {envelope.job_id: False for envelope in new}
        return tuple(name in known for name in ids)

    def receive(self, limit: int, wait_s: float) -> tuple[Delivery, ...]:
        end = time.monotonic() + wait_s
        received, change_s = self._receive(limit)
        if received or limit <= 0 or wait_s <= 0:
            return received
        with contextlib.closing(_Watch(self.path, self._kind)) as watch:
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
            with self._writing(connection, durable=True):
                gone = acknowledge(connection, receipts, self.now)
                killpoint("queue.before-acknowledge-commit")
            killpoint("queue.after-acknowledge-commit")
        return self.acknowledged(receipts, gone)

    def acknowledged(self, receipts: Sequence[Receipt], gone: Sequence[bool]) -> tuple[Exception | None, ...]:
        """What there is to say to whoever asked that, once it is committed which deliveries went."""
        for receipt, done in zip(receipts, gone, strict=True):
            if done:
                self._settled.add(receipt)
        return tuple(None if receipt in self._settled else _stale(receipt) for receipt in receipts)

    def give_back(self, receipts: Sequence[Receipt], delay_s: float) -> tuple[Exception | None, ...]:
        with self._using() as connection, self._writing(connection, durable=False) as order:
            due = self.now(connection) + delay_s
            done = order.give_back(map(_claim_of, receipts), due)
        return tuple(None if was_ours else _stale(receipt) for receipt, was_ours in zip(receipts, done, strict=True))

    def extend(self, receipts: Sequence[Receipt]) -> tuple[Exception | None, ...]:
        with self._using() as connection, self._writing(connection, durable=False):
            until = {"until": self.now(connection) + self._visibility_s}
            done = [connection.execute(SQL["extend"], _claim_of(each) | until).rowcount > 0 for each in receipts]
        return tuple(None if was_ours else _stale(receipt) for receipt, was_ours in zip(receipts, done, strict=True))

    def depth(self) -> int:
        with self._using() as connection:
            return depth(connection)

    def close(self) -> None:
        self._closed.set()
        with self._mutex:
            self._drop()

    # -- receiving -----------------------------------------------------------------------------------------------------

    def _receive(self, limit: int) -> tuple[tuple[Delivery, ...], float]:
        """What there is, and in how many seconds more is due by time alone, as far as is known."""
        with self._using() as connection:
            now = self.now(connection)
            if limit <= 0 or not connection.execute(SQL["is_due"], {"now": now}).fetchone()[0]:
                (due,) = connection.execute(SQL["next_change"]).fetchone()
                return (), FOREVER_S if due is None else due - now
            with self._writing(connection, durable=False) as order:
                claimed = order.claim(self._owner, limit, now, now + self._visibility_s)
                received = self._deliveries(connection, claimed, now)
                killpoint("queue.before-receive-commit")
            killpoint("queue.after-receive-commit")
            return received, 0.0

    def _deliveries(
        self, connection: sqlite3.Connection, claimed: Sequence[Claimed], now: float
    ) -> tuple[Delivery, ...]:
        found = of_strangers(connection, SQL["deliveries"], json.dumps([each.place for each in claimed]))
        columns = {place: rest for place, *rest in found}
        receipts = [
            Receipt(self._owner, now, place_of(f"{each.place}:{columns[each.place][0]}", each.number))
            for each in claimed
        ]
        return tuple(delivery_of(one, columns[each.place]) for one, each in zip(receipts, claimed, strict=True))

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
                raise self._kind.meaning(error, self.path) from error

    def _connected(self) -> sqlite3.Connection:
        self._kind.refuse_after_fork(self.path)
        if self._connection is not None and identity(self.path) != self._file:
            self._drop()
            raise TERMS.unavailable(f"{self.path} was removed or replaced; it is opened anew at the next call")
        if self._connection is None:
            connection = self._connect(self.path)
            self._kind.insist(connection, self.path, "busy_timeout", round(PATIENCE_S * 1000))
            self._connection, self._file = connection, identity(self.path)
        return self._connection

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    @contextlib.contextmanager
    def _writing(self, connection: sqlite3.Connection, *, durable: bool) -> Iterator[Order]:
        with self._transactions.transaction(connection, durable=durable):
            yield Order(connection)

    def now(self, connection: sqlite3.Connection) -> float:
        """Unix seconds."""
        now = None if self._clock is None else self._clock()
        return float(connection.execute(SQL["now"], {"now": now}).fetchone()[0])


class _Watch:
    """Sees that somebody has committed something, on a connection of its own."""

    def __init__(self, path: Path, kind: FileKind[FleetError]) -> None:
        self._path, self._kind, self._seen = path, kind, 0
        self._connection: sqlite3.Connection | None = None

    def look(self) -> None:
        """What was committed before is seen by whoever reads after this."""
        self._seen = self._counter()

    def wait(self, seconds: float, closed: threading.Event) -> None:
        """Until then, or until something is committed. The longer nothing is, the less often it looks."""
        began = now = time.monotonic()
        try:
            while self._counter() == self._seen and (left := began + seconds - now) > 0:
                step_s = min(STEP_S, max(SHORTEST_STEP_S, (now - began) * PROMPTNESS))
                if closed.wait(min(step_s, left)):
                    return
                now = time.monotonic()
        except sqlite3.Error as error:
            raise self._kind.meaning(error, self._path) from error

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def _counter(self) -> int:
        if self._connection is None:
            self._connection = self._kind.connect_to_read(self._path)
        (count,) = self._connection.execute("PRAGMA data_version").fetchone()
        return int(count)


# -- in a transaction of the caller's, on a file that has the tables of a queue ----------------------------------------


def put(
    connection: sqlite3.Connection,
    envelopes: Sequence[AgentTurnEnvelope],
    now: Callable[[sqlite3.Connection], float],
) -> None:
    """There is room for them. Raises `sqlite3.IntegrityError` unless they are new."""
    connection.executemany(SQL["put"], map(_values_of, envelopes))
    Order(connection).fold_many(now)


def acknowledge(
    connection: sqlite3.Connection, receipts: Sequence[Receipt], now: Callable[[sqlite3.Connection], float]
) -> list[bool]:
    """Of each, whether it was out, and isn't with this."""
    gone = [_let_go(connection, _claim_of(each)) for each in receipts]
    Order(connection).fold_many(now)
    return gone


def _let_go(connection: sqlite3.Connection, claim: dict[str, Any]) -> bool:
    comes_again = connection.execute(SQL["let_come_again"], claim).rowcount > 0
    return comes_again or connection.execute(SQL["acknowledge"], claim).rowcount > 0


def depth(connection: sqlite3.Connection) -> int:
    return int(connection.execute(SQL["depth"]).fetchone()[0])


def _look(connection: sqlite3.Connection, ids: Sequence[str]) -> tuple[int, dict[str, bool]]:
    """The depth, and which of these jobs are there, with whether they are out for the last time."""
    known = {job_id: bool(is_out) for job_id, is_out in connection.execute(SQL["known"], (json.dumps(ids),))}
    return depth(connection), known


def _admissible(envelopes: Sequence[AgentTurnEnvelope], known: Collection[str], room: int) -> list[AgentTurnEnvelope]:
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
