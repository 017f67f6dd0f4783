"""One connection to a PostgreSQL server, used so that nobody ever waits on it for longer than a moment.

Statements travel in libpq's pipeline mode: all of a transaction in one go, with one wait for all of its results. Every
wait has an end. When nothing moves on the connection for the caller's patience, it is closed, and what became of the
transaction is unknown. psycopg's own cursors wait without an end and cost more than the statement they send.

Statements that come again and again are prepared on the server (a change costs a third of what it would otherwise). A
pooler that hands each transaction to another server connection may not follow that: see `Wire.run`.
"""

from __future__ import annotations

import os
import secrets
import select
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import attrs
import psycopg
from psycopg import pq
from psycopg.adapt import Transformer

from harness.database.killpoint import killpoint

Value = str | int | float | None
Result = pq.abc.PGresult

_FINE = (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK)
NOT_FOLLOWED = ("26000", "42P05")  #: a prepared statement that isn't there, or is there already


@attrs.frozen
class Statement:
    """SQL and its parameters, already in PostgreSQL's text form."""

    sql: str
    values: tuple[bytes | None, ...] = ()


def statement(sql: str, *values: Value) -> Statement:
    """A statement with plain values: text, numbers, None."""
    return Statement(sql, tuple(None if value is None else str(value).encode() for value in values))


class RefusedError(Exception):
    """The server refused a statement; `code` is the SQLSTATE. The connection lives, its transaction has failed."""

    def __init__(self, result: Result) -> None:
        field = result.error_field
        self.code = (field(pq.DiagnosticField.SQLSTATE) or b"").decode()
        super().__init__((field(pq.DiagnosticField.MESSAGE_PRIMARY) or b"no message").decode("utf-8", "replace"))


class BrokenError(Exception):
    """The connection is no more. Whether a commit that was on its way took place is unknown. The text says why."""


class Wire:
    """Wraps a connected psycopg connection, which it owns from now on. Belongs to one thread at a time.

    `prepares` is whether statements are prepared; it turns false when the server side turns out not to follow.
    `limited` is whether every transaction has its time limits from the session, which see to it that it ends.
    `refused` makes what is raised when it is used after a fork.
    """

    def __init__(
        self, connection: psycopg.Connection[Any], refused: Callable[[str], Exception], *, prepares: bool = True
    ) -> None:
        self.prepares, self.limited = prepares, False
        self._refused = refused
        self._connection, self._pid = connection, os.getpid()
        self._pg = connection.pgconn
        self._poll = select.poll()
        self._poll.register(self._pg.socket, select.POLLIN)
        self._prefix = f"dispatch_{secrets.token_hex(4)}_"  # no other client of a pooler has the same
        self._names: dict[str, bytes] = {}
        self._posted = 0  # whose answers wait

    @property
    def server_pid(self) -> int:
        """The process at the other end, as it was told when the connection was made. A pooler makes the number up."""
        return self._pg.backend_pid

    @property
    def in_transaction(self) -> bool:
        """Whether one was begun and has not ended, well or badly. A connection that is no more has none."""
        return self._pg.transaction_status in (pq.TransactionStatus.INTRANS, pq.TransactionStatus.INERROR)

    def run(
        self, statements: Iterable[Statement], patience_s: float, *, often: bool = False, binary: bool = False
    ) -> list[Result]:
        """One result for each statement; all are sent before the first answer is waited for.

        `often`: they come again and again, and are worth preparing. `binary`: so are the results, for `rows`.
        Raises `RefusedError` for the first that failed: those after it were not executed. Raises `BrokenError`.
        If a pooler did not follow a prepared statement, that is the failure (`prepares` is false then), and the
        same may be sent again in a new transaction. What was posted before is answered for first.
        """
        self._refuse_after_fork()
        format_ = pq.Format.BINARY if binary else pq.Format.TEXT
        try:
            self._pg.enter_pipeline_mode()
            sent = [self._send(item, format_, often and self.prepares) for item in statements]
            self._pg.pipeline_sync()
            posted, self._posted = self._posted, 0
            before = [result for _ in range(posted) for result in self._receive(patience_s)]
            results = self._receive(patience_s)
            self._pg.exit_pipeline_mode()
        except psycopg.Error as error:
            raise self._broken(error) from error
        except BaseException:  # what was sent by half would answer for what comes next
            self.close()
            raise
        answers = self._answers(sent, results)
        self._refuse_if_any_failed(before)
        return answers

    def post(self, item: Statement) -> None:
        """Send it, in a transaction of its own, and wait for nothing: the next `run` takes its answer. Until then no
        notification is seen. Raises `BrokenError`."""
        self._refuse_after_fork()
        try:
            self._pg.enter_pipeline_mode()
            self._send(item, pq.Format.TEXT, False)
            self._pg.pipeline_sync()
            self._pg.flush()
        except psycopg.Error as error:
            raise self._broken(error) from error
        self._posted += 1

    def copy(self, sql: str, pieces: Iterable[bytes], patience_s: float) -> None:
        """`COPY … FROM STDIN`, with `pieces` in its text form. Raises like `run`."""
        self._refuse_after_fork()
        try:
            self._pg.send_query(sql.encode())
            self._flush(patience_s)
            if self._next(patience_s).status == pq.ExecStatus.COPY_IN:
                for piece in pieces:
                    self._put(piece, patience_s)
                while self._pg.put_copy_end() == 0:
                    self._await(patience_s, writing=True)
                self._flush(patience_s)
            failed = self._drain(patience_s)
        except psycopg.Error as error:
            raise self._broken(error) from error
        except BaseException:
            self.close()
            raise
        if failed is not None:
            raise self._refusal(failed)

    def rows(self, result: Result) -> list[tuple[Any, ...]]:
        """The rows of a binary result as Python values."""
        transformer = Transformer(self._connection)
        transformer.set_pgresult(result)
        return transformer.load_rows(0, result.ntuples, tuple)

    def notified(self, seconds: float, payload: bytes) -> bool:
        """Whether such a notification came, on a channel that was listened to, within so many seconds."""
        self._refuse_after_fork()
        end = time.monotonic() + seconds
        try:
            while True:
                while (note := self._pg.notifies()) is not None:
                    if note.extra == payload:
                        return True
                left = end - time.monotonic()
                self._poll.modify(self._pg.socket, select.POLLIN)
                if left <= 0 or not self._poll.poll(left * 1000):
                    return False
                self._pg.consume_input()
        except psycopg.Error as error:
            raise self._broken(error) from error

    def close(self) -> None:
        """In the child of a fork this leaves the parent's session alone."""
        if os.getpid() == self._pid:
            self._connection.close()

    # -- sending -----------------------------------------------------------------------------------------------

    def _send(self, item: Statement, format_: pq.Format, prepared: bool) -> str:
        """The SQL, if it had to be prepared first, which has a result of its own; else nothing."""
        sql = item.sql.encode()
        if not prepared:
            self._pg.send_query_params(sql, item.values, result_format=format_)
            return ""
        new = item.sql not in self._names
        if new:
            self._names[item.sql] = f"{self._prefix}{len(self._names)}".encode()
            self._pg.send_prepare(self._names[item.sql], sql)
        self._pg.send_query_prepared(self._names[item.sql], item.values, result_format=format_)
        return item.sql if new else ""

    def _answers(self, sent: Sequence[str], results: Sequence[Result]) -> list[Result]:
        answers, rest = [], iter(results)
        for new in sent:
            if new and next(rest).status not in _FINE:
                del self._names[new]
            answers.append(next(rest))
        self._refuse_if_any_failed(results)
        return answers

    def _refuse_if_any_failed(self, results: Sequence[Result]) -> None:
        failed = next((result for result in results if result.status not in _FINE), None)
        if failed is not None:
            raise self._refusal(failed)

    def _refusal(self, failed: Result) -> RefusedError | BrokenError:
        refused = RefusedError(failed)
        if refused.code in NOT_FOLLOWED:  # then settings aren't either
            self.prepares = self.limited = False
        if self._pg.status == pq.ConnStatus.BAD or refused.code.startswith(("57P0", "25P03")):
            self.close()
            return BrokenError(str(refused))
        return refused

    # -- waiting -----------------------------------------------------------------------------------------------

    def _receive(self, patience_s: float) -> list[Result]:
        """All results up to the pipeline's end. What is still to be sent is sent meanwhile: it may be more than the
        connection holds, and the server doesn't read on while nobody takes its answers."""
        results: list[Result] = []
        unsent = self._pg.flush() != 0
        killpoint("postgres.after-send")
        while True:
            while self._pg.is_busy():
                self._await(patience_s, writing=unsent)
                unsent = unsent and self._pg.flush() != 0
            result = self._pg.get_result()
            if result is not None and result.status == pq.ExecStatus.PIPELINE_SYNC:
                return results
            if result is not None:
                results.append(result)
            if self._pg.status == pq.ConnStatus.BAD:  # no more will come; perhaps the server said why
                raise self._hung_up(results)

    def _next(self, patience_s: float) -> Result:
        while self._pg.is_busy():
            self._await(patience_s)
        result = self._pg.get_result()
        assert result is not None, "a query has a result"
        return result

    def _drain(self, patience_s: float) -> Result | None:
        """Take what is left of a query's results; the one that failed, if any did."""
        failed = None
        while True:
            while self._pg.is_busy():
                self._await(patience_s)
            result = self._pg.get_result()
            if result is None:
                return failed
            if result.status not in _FINE and failed is None:
                failed = result

    def _put(self, piece: bytes, patience_s: float) -> None:
        while self._pg.put_copy_data(piece) == 0:
            self._await(patience_s, writing=True)
        self._flush(patience_s)

    def _flush(self, patience_s: float) -> None:
        while self._pg.flush() != 0:
            self._await(patience_s, writing=True)

    def _await(self, patience_s: float, *, writing: bool = False) -> None:
        """Until something moves. Raises `BrokenError` if nothing does for so long."""
        self._poll.modify(self._pg.socket, select.POLLIN | (select.POLLOUT if writing else 0))
        events = self._poll.poll(patience_s * 1000)
        if not events:
            self.close()
            raise BrokenError(f"the server has not answered for {patience_s:.1f} s")
        if events[0][1] & ~select.POLLOUT:
            self._pg.consume_input()

    def _hung_up(self, results: Sequence[Result]) -> BrokenError:
        self.close()
        return BrokenError(
            next((str(RefusedError(item)) for item in results if item.status not in _FINE), "the server hung up")
        )

    def _broken(self, error: psycopg.Error) -> BrokenError:
        self.close()
        return BrokenError(" ".join(str(error).split()) or "the connection was lost")

    def _refuse_after_fork(self) -> None:
        if os.getpid() != self._pid:
            raise self._refused(
                "the database was open when this process was forked; use it from the parent, or open it anew"
            )


def array(values: Sequence[Value]) -> bytes:
    """An array in PostgreSQL's text form. The values are all text or all numbers, and text holds no NUL.

    All texts are quoted at once, with a NUL in the place of each comma between them.
    """
    if values and isinstance(values[0], str):
        joined = "\0".join(values)  # type: ignore[arg-type]
        return ('{"' + joined.replace("\\", r"\\").replace('"', r"\"").replace("\0", '","') + '"}').encode()
    return ("{" + ",".join(map(str, values)) + "}").encode()


def copy_row(*values: Value) -> str:
    """A row, or a part of one, for `copy_text`; parts are put together with a NUL between them."""
    return "\0".join(map(str, values))


def copy_text(rows: Iterable[str]) -> bytes:
    """Rows in the text form of COPY. Texts hold neither NUL nor lone surrogates: these separate, until all is escaped.

    Source: postgresql.org/docs/current/sql-copy.html, text format.
    """
    text = "\ud800".join((*rows, ""))
    text = text.replace("\\", r"\\").replace("\t", r"\t").replace("\n", r"\n").replace("\r", r"\r")
    return text.replace("\0", "\t").replace("\ud800", "\n").encode()
