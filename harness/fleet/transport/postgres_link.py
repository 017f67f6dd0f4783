"""A queue's way to its PostgreSQL server: one connection, made when it is needed, and another to wait on."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Sequence

from harness.database.postgres import Connect, Location
from harness.database.postgres_schema import BEGIN, COMMIT, ROLLBACK, limit_session, limits
from harness.database.postgres_wire import NOT_FOLLOWED, BrokenError, RefusedError, Result, Statement, Wire
from harness.fleet.errors import FleetError
from harness.fleet.transport.postgres_schema import QUEUE, SQL

LOCK_TIMEOUT_S, STATEMENT_TIMEOUT_S = 5.0, 30.0
PATIENCE_S = STATEMENT_TIMEOUT_S + 5.0  #: how long is waited on a server that says nothing
TRIES = 5  #: of a transaction that others were in the way of
SLICE_S = 0.1  #: between two looks whether a receiver is to stop waiting; they ask the server nothing
AGAIN_S = 0.5  #: before another attempt to listen, and in place of waiting while there is no way to
_IN_THE_WAY = ("40001", "40P01")
_READ_ONLY = "25006"
_LIMITS = limits(LOCK_TIMEOUT_S, STATEMENT_TIMEOUT_S)


class Link:
    """Belongs to one thread at a time. Everything raises the fleet's errors, and then the next call connects anew if it
    must."""

    def __init__(self, location: Location, connect: Connect) -> None:
        self._location, self._connect = location, connect
        self._wire: Wire | None = None
        self._prepares = True

    def write(self, work: Statement, hint: Statement | None = None) -> list[tuple[object, ...]]:
        """The rows of `work`, which is committed; and after it the hint, in the same round trip. If that fails, `work`
        is done once more without it: only one that may be repeated has a hint."""
        for tries_left in reversed(range(TRIES)):
            wire = self._connected()
            begin = (BEGIN,) if wire.limited else (BEGIN, _LIMITS)
            try:
                results = self._run(wire, [*begin, work, COMMIT, *((hint,) if hint else ())])
            except RefusedError as refused:
                if hint is not None and not wire.in_transaction:
                    hint = None
                elif not self._may_try_again(wire, refused, tries_left):
                    raise QUEUE.meaning(refused, self._location.url) from refused
            else:
                return wire.rows(results[len(begin)])
        raise AssertionError("the last try raises or returns")

    def hint(self, work: Statement) -> None:
        """What may fail without harm, in a transaction of its own: a notification fails at its commit."""
        with contextlib.suppress(FleetError):
            wire = self._connected()
            with contextlib.suppress(RefusedError):
                self._run(wire, [work])

    def read(self, work: Statement) -> list[tuple[object, ...]]:
        """The rows of a statement that may be repeated."""
        for tries_left in reversed(range(TRIES)):
            wire = self._connected()
            try:
                return wire.rows(self._run(wire, [work])[0])
            except RefusedError as refused:
                if not self._may_try_again(wire, refused, tries_left):
                    raise QUEUE.meaning(refused, self._location.url) from refused
        raise AssertionError("the last try raises or returns")

    def close(self) -> None:
        wire, self._wire = self._wire, None
        if wire is not None:
            wire.close()

    def _run(self, wire: Wire, statements: Sequence[Statement]) -> list[Result]:
        try:
            return wire.run(statements, PATIENCE_S, often=True, binary=True)
        except BrokenError as broken:
            self.close()
            raise QUEUE.meaning(broken, self._location.url) from broken

    def _may_try_again(self, wire: Wire, refused: RefusedError, tries_left: int) -> bool:
        """Ends what is left of the transaction that was refused."""
        if wire.in_transaction:
            self._run(wire, [ROLLBACK])
        if refused.code in NOT_FOLLOWED:
            self._prepares = False
        if refused.code == _READ_ONLY:  # another server may have become the one to write to
            self.close()
        return tries_left > 0 and refused.code in (*_IN_THE_WAY, *NOT_FOLLOWED)

    def _connected(self) -> Wire:
        if self._wire is None:
            wire = QUEUE.wire_to(self._location, self._connect, prepares=self._prepares)
            try:
                QUEUE.make_ready(wire, self._location.url)
                limit_session(wire, _LIMITS, PATIENCE_S)
            except (BrokenError, RefusedError) as error:
                wire.close()
                raise QUEUE.meaning(error, self._location.url) from error
            except BaseException:
                wire.close()
                raise
            self._wire = wire
        return self._wire


class Listener:
    """Waits for the hint that something was put, which is not certain to come: through a pooler it may never.

    While it is `waiting`, those who put know that somebody waits.
    """

    def __init__(self, location: Location, connect: Connect) -> None:
        self._location, self._connect = location, connect
        self._wire: Wire | None = None
        self._waits = False

    def begin(self) -> None:
        """From now on a hint will come. What is there already is to be looked for after this."""
        try:
            if self._wire is None:
                self._wire = QUEUE.wire_to(self._location, self._connect, prepares=False)
                self._wire.run([Statement(SQL["listen"])], PATIENCE_S)
            if not self._waits:
                self._wire.run([Statement(SQL["wait"])], PATIENCE_S)
                self._waits = True
        except (BrokenError, RefusedError, FleetError):
            self.close()

    def wait(self, seconds: float, closed: threading.Event) -> None:
        """Until a hint comes, or for so long. If there is no way to listen, for a moment only."""
        end = time.monotonic() + (seconds if self._wire is not None else min(seconds, AGAIN_S))
        while (left := end - time.monotonic()) > 0 and not closed.is_set():
            if self._wire is None:
                closed.wait(left)
                return
            try:
                if self._wire.notified(min(left, SLICE_S), b""):
                    return
            except BrokenError:
                self.close()
                return

    def end(self) -> None:
        if self._wire is not None and self._waits:
            self._waits = False
            try:
                self._wire.post(Statement(SQL["wait_no_more"]))  # what came is not to wait for it
            except BrokenError:
                self.close()

    def close(self) -> None:
        wire, self._wire, self._waits = self._wire, None, False
        if wire is not None:
            wire.close()
