"""A SQLite authority's rows, in a transaction that has the file for itself."""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Sequence

from harness.database.queries import named_blocks
from harness.fleet.authority.codec import TEXTS, item_of, knowable, outcome_columns
from harness.fleet.errors import FleetBrokenError
from harness.fleet.ledger import Session
from harness.fleet.work_item import Outcome, WorkItem

SQL = named_blocks("harness.fleet.authority", "sqlite.sql")


def now_of(connection: sqlite3.Connection, clock: Callable[[], float] | None) -> float:
    """Unix seconds by `clock`, or by the database's own."""
    given = None if clock is None else clock()
    return float(connection.execute(SQL["now"], (given,)).fetchone()[0])


class SqliteRows:
    """`ledger.Rows`, from BEGIN IMMEDIATE to COMMIT, both of which are the caller's.

    With `presumes_new` nothing is looked up: the commands are about items that are not there yet, or saving them raises
    `sqlite3.IntegrityError`.
    """

    def __init__(
        self, connection: sqlite3.Connection, clock: Callable[[], float] | None, *, presumes_new: bool = False
    ) -> None:
        self._presumes_new = presumes_new
        self._do, self._many = connection.execute, connection.executemany
        self._now = now_of(connection, clock)
        self._read: dict[str, WorkItem] = {}
        self._new: set[str] = set()

    def now(self) -> float:
        return self._now

    def is_new(self, name: str) -> bool:
        """Whether the item came in this transaction."""
        return name in self._new

    def tokens(self, count: int) -> Sequence[int]:
        ((last,),) = self._do(SQL["next_tokens"], (count,)).fetchall()
        return range(last - count + 1, last + 1)

    def lock(self, ids: Sequence[str]) -> dict[str, WorkItem]:
        return {} if self._presumes_new else self._items("find_items", json.dumps(knowable(ids)))

    def undelivered(self, limit: int, handed_before_s: float) -> dict[str, WorkItem]:
        """The oldest first."""
        return self._items("lock_undelivered", self._now, handed_before_s, limit)

    def held_in(self, sessions: Sequence[Session]) -> dict[Session, str]:
        rows = ((session, self._do(SQL["find_holder"], session).fetchone()) for session in sessions)
        return {session: row[0] for session, row in rows if row is not None}

    def waiting_for(self, ids: Sequence[str]) -> dict[str, tuple[str, ...]]:
        waiting: defaultdict[str, tuple[str, ...]] = defaultdict(tuple)
        for awaited, name in self._do(SQL["find_waiting"], (json.dumps(ids),)):
            waiting[awaited] += (name,)
        return dict(waiting)

    def unmet(self, ids: Sequence[str]) -> dict[str, int]:
        return dict(self._do(SQL["count_unmet"], (json.dumps(ids),)).fetchall())

    def save(
        self, new: Sequence[WorkItem], changed: Sequence[WorkItem], gone: Sequence[str], outcomes: Sequence[Outcome]
    ) -> None:
        if gone:
            self._many(SQL["remove_items"], ((name,) for name in gone))
        changes = [self._change(item) for item in changed]
        # Those that let a session go first: one of the same session may be held by what follows.
        changes.sort(key=lambda values: values[2] in ("leased", "running"))
        for values in changes:
            if self._do(SQL["change_items"], values).rowcount != 1:
                raise FleetBrokenError(f"work item {values[0]!r} was changed under its lock; look who else writes here")
        if new:
            self._many(SQL["add_items"], map(_addition, new))
            self._new |= {item.id for item in new}
        waiting = [(item.id,) for item in new if item.depends_on]
        if waiting:
            self._many(SQL["add_waits"], waiting)
        if outcomes:
            self._many(SQL["add_outcomes"], map(outcome_columns, outcomes))
        self._read |= {item.id: item for item in (*new, *changed)}

    def _items(self, block: str, *values: str | float) -> dict[str, WorkItem]:
        found = {item.id: item for item in map(item_of, self._do(SQL[block], values))}
        self._read |= found
        return found

    def _change(self, item: WorkItem) -> tuple[object, ...]:
        """The parameters of `change_items`."""
        before = self._read[item.id]
        texts = (None if getattr(item, name) == getattr(before, name) else getattr(item, name) for name in TEXTS)
        return (
            item.id, before.epoch, item.state.value, item.attempt, item.failures, item.owner, item.epoch, item.token,
            item.expires_at, item.not_before, item.delivered, item.handed_at, item.changed_at, item.started_at, *texts,
        )  # fmt: skip


def _addition(item: WorkItem) -> tuple[object, ...]:
    return (
        item.id, item.tenant, item.session_id, item.kind, item.payload_ref, item.priority, item.deadline,
        json.dumps(item.depends_on), item.max_attempts, item.submitted_at, item.state.value, item.attempt,
        item.failures, item.owner, item.epoch, item.token, item.expires_at, item.not_before, item.delivered,
        item.handed_at, item.changed_at, item.started_at, item.cancel_cause, item.checkpoint, item.cause, item.result,
    )  # fmt: skip
