"""Work items in a PostgreSQL database: one connection, one transaction for all commands of a call.

A transaction that others are in the way of is repeated; see `postgres_rows`. When the connection breaks before a commit
was sent, all of it is done again; when it breaks while the answer to a commit is waited for, it is found out whether
that took place (`doubt`), at once or, if the server is away, when the same is asked again.

Behind a pooler that hands out connections by transaction nothing depends on the session, save for the locks on sessions
and the hints to those who watch, which have connections of their own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from harness.database.postgres import Connect, connect, locate
from harness.database.postgres_schema import COMMIT
from harness.database.postgres_wire import BrokenError, Statement, array, statement
from harness.fleet import ledger
from harness.fleet.authority.beside import Beside
from harness.fleet.authority.codec import item_of, outcome_of
from harness.fleet.authority.doubt import KEPT, Doubt, is_final
from harness.fleet.authority.postgres_client import PATIENCE_S, SCHEMA, SQL, PostgresClient
from harness.fleet.authority.postgres_rows import PostgresRows
from harness.fleet.authority.postgres_sessions import PostgresSessionLocks, PostgresWatch
from harness.fleet.authority.stored import Asked, Row, StoredAuthority, Value, handed
from harness.fleet.authority.terms import TERMS
from harness.fleet.commands import Command, Submit
from harness.fleet.ledger import Session
from harness.fleet.ports import Result
from harness.fleet.work_item import WorkItem

_PRUNED = 100  #: items in one transaction of a pruning, so that nobody waits long for it


class PostgresWorkItems(StoredAuthority):
    """An authority in the database that `conninfo` names: a URL, or libpq's `key=value` form.

    `clock` gives Unix seconds in place of the database's own; `connect` makes a connection from a connection string;
    `patience_s` is how long a server may say nothing.
    """

    schema = len(SCHEMA.migrations)
    _lead = 2

    def __init__(
        self,
        conninfo: str,
        *,
        clock: Callable[[], float] | None = None,
        connect: Connect = connect,
        patience_s: float = PATIENCE_S,
    ) -> None:
        super().__init__(clock)
        self._client = PostgresClient(locate(conninfo, TERMS), connect, patience_s)
        self.session_locks = PostgresSessionLocks(self._client)
        self._mutex = threading.Lock()
        self._doubts: dict[tuple[Command, ...], Doubt] = {}

    def __repr__(self) -> str:
        return f"PostgresWorkItems({self.url!r})"

    @property
    def url(self) -> str:
        return self._client.location.url

    def perform(self, commands: Sequence[Command]) -> tuple[Result, ...]:
        return self.perform_with(Beside(), commands)

    def perform_with(self, beside: Beside, commands: Sequence[Command]) -> tuple[Result, ...]:
        """Where the commands are found to be done already, nothing is beside them."""
        asked = tuple(commands)
        with self._mutex:
            try:
                doubt = self._doubts.get(asked)
                is_done = doubt is not None and self._is_done(asked, doubt)
                results = doubt.results if doubt is not None and is_done else self._performed(asked, beside)
            except BaseException:
                beside.fail()
                raise
            beside.end(results)
            return results

    def undelivered(self, limit: int, handed_before_s: float) -> tuple[WorkItem, ...]:
        def step() -> list[WorkItem]:
            rows = PostgresRows(self._client, self._now, locks=True)
            taken = handed(rows.undelivered(limit, handed_before_s), rows.now())
            if taken:
                rows.save([], taken, [], [])
            rows.commit()
            return taken

        with self._mutex:
            return tuple(self._client.lasting(step))

    def prune(self, before: float) -> int:
        count = last = 0
        while True:
            (((found, latest),),) = self._tell(("prune_items", (before, last, _PRUNED)))
            if found == 0:
                break
            count, last = count + found, latest
        while self._tell(("prune_contents", (before, _PRUNED)))[0]:
            pass
        return count

    def lock_sessions(self, sessions: Sequence[Session]) -> tuple[bool, ...]:
        with self._mutex:
            return self.session_locks.lock(sessions)

    def seize_sessions(self, sessions: Sequence[Session]) -> tuple[bool, ...]:
        with self._mutex:
            return self.session_locks.seize(sessions)

    def unlock_sessions(self, sessions: Sequence[Session]) -> None:
        with self._mutex:
            self.session_locks.unlock(sessions)

    def watch(self) -> PostgresWatch:
        return PostgresWatch(self._client)

    def close(self) -> None:
        with self._mutex:
            self.session_locks.close()
            self._client.close()

    # -- one transaction -----------------------------------------------------------------------------------------------

    def _performed(self, commands: tuple[Command, ...], beside: Beside) -> tuple[Result, ...]:
        tries, waits = 0, any(isinstance(each, Submit) and each.submission.depends_on for each in commands)

        def step() -> tuple[Result, ...]:
            nonlocal tries
            tries += 1
            rows = PostgresRows(self._client, self._now, locks=tries > 1 or waits)
            asked = beside.ask()
            if beside.presumes_new:
                rows.presume_new(commands)
            else:
                beside.hear(rows, rows.look(commands, asked))
            results = ledger.perform(rows, commands)
            try:
                beside.told(rows, rows.commit(beside.add(rows, results), beside.follow(results)))
            except BrokenError:
                if not rows.is_committing:
                    raise
                doubt = _doubt(rows, commands, results)
                self._remember(commands, doubt)
                if self._is_done(commands, doubt):
                    return results
                raise
            return results

        return self._client.lasting(step)

    def _remember(self, commands: tuple[Command, ...], doubt: Doubt) -> None:
        self._doubts[commands] = doubt
        if len(self._doubts) > KEPT:
            del self._doubts[next(iter(self._doubts))]

    def _is_done(self, commands: tuple[Command, ...], doubt: Doubt) -> bool:
        """If not, it never will be. Raises if that can't be found out for now, and remembers the question."""
        answer = self._client.lasting(lambda: self._find_out(doubt))
        del self._doubts[commands]
        return answer

    def _find_out(self, doubt: Doubt) -> bool:
        """Whoever is still at it has locked the row: this waits for him."""
        if doubt.row is not None:
            (touched,) = self._client.run([statement(SQL["touch_item"], *doubt.row)])
            if touched.ntuples:
                return False
        found, outcomes = self._client.run(
            [Statement(SQL["find_items"], (array([doubt.about]),)), statement(SQL["find_outcomes"], doubt.about)]
        )
        items = [item_of(row[self._lead :]) for row in self._client.wire.rows(found)]
        return doubt.is_dispelled(items[0] if items else None, list(map(outcome_of, self._client.wire.rows(outcomes))))

    # -- other statements ----------------------------------------------------------------------------------------------

    def _ask(self, *asked: Asked) -> list[list[Row]]:
        statements = [_statement(*each) for each in asked]
        with self._mutex:
            return self._client.lasting(lambda: [self._client.wire.rows(each) for each in self._client.run(statements)])

    def _tell(self, *asked: Asked) -> list[list[Row]]:
        statements = [_statement(*each) for each in asked]

        def step() -> list[list[Row]]:
            begin = self._client.beginning()
            results = self._client.run([*begin, *statements, COMMIT])[len(begin) : -1]
            return [self._client.wire.rows(each) for each in results]

        with self._mutex:
            return self._client.lasting(step)


def _statement(block: str, values: Sequence[Value]) -> Statement:
    return Statement(SQL[block], tuple(map(_bound, values)))


def _bound(value: Value) -> bytes | None:
    match value:
        case None:
            return None
        case bytes():
            return b"\\x" + value.hex().encode()
        case list():
            return array(value)
        case _:
            return str(value).encode()


def _doubt(rows: PostgresRows, commands: Sequence[Command], results: tuple[Result, ...]) -> Doubt:
    based_on = [record for record in (*rows.changed, *rows.gone) if record.version is not None]
    row = (based_on[0].item.id, based_on[0].version) if based_on else None
    return Doubt(
        results,
        None if row is None or row[1] is None else (row[0], row[1]),
        rows.outcomes[0] if rows.outcomes else None,
        rows.claimed[0] if rows.claimed else None,
        is_final(commands, rows.gone),
    )
