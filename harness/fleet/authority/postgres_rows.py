"""A PostgreSQL authority's rows in one transaction, in as few exchanges with the server as can be.

Rows are read without a lock first, outside of a transaction if they can be, so that a process which is suspended in the
middle holds nobody up. Every change names the version of the row that it is based on, and the transaction fails, to be
repeated, if there is another by now; then rows are locked before they are read. What a decision rests on without
changing it is locked always: the sessions of claims, and items that depend on others or are depended on.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import attrs

from harness.database.killpoint import killpoint
from harness.database.postgres_schema import COMMIT
from harness.database.postgres_wire import Result, Statement, Value, array, statement
from harness.fleet.authority.codec import TEXTS, item_of, knowable, outcome_columns, subjects
from harness.fleet.authority.postgres_client import SQL, OvertakenError, PostgresClient
from harness.fleet.commands import Claim, Command, subject
from harness.fleet.ledger import Session
from harness.fleet.work_item import ENDED, HELD, Outcome, WorkItem


@attrs.frozen
class Record:
    """An item as it was read. `version` is the transaction that wrote it, None for the present one."""

    item: WorkItem
    version: int | None
    is_awaited: bool


class PostgresRows:
    """`ledger.Rows` for one try at `commands`, which ends with `commit`. Raises `RefusedError` and `BrokenError`.

    `now` is Unix seconds, None for the database's own; with `locks` every row that is read is locked.
    """

    def __init__(self, client: PostgresClient, now: float | None, *, locks: bool) -> None:
        self._client, self._given_now, self._locks = client, now, locks
        self.records: dict[str, Record] = {}
        self.changed: list[Record] = []  # as they were before
        self.gone: list[Record] = []
        self.outcomes: list[Outcome] = []
        self.claimed: list[WorkItem] = []
        self.is_committing = False
        self._looked, self._locked = set[str](), set[str]()
        self._now, self._tokens = 0.0, list[int]()
        self._counts_from_beginning = False
        self._holders: dict[Session, str] = {}
        self._new: set[str] = set()
        self._unsent: list[Statement] = []
        self._has_begun = False
        self._written = 0

    def look(self, commands: Sequence[Command], beside: Sequence[Statement] = ()) -> list[Result]:
        """Read, in one exchange, what most commands need. Tokens come last: see `sql/postgres.sql`.

        After them comes what is to be asked `beside`, with these answers.
        """
        ids = array(subjects(commands))
        claims = [command for command in commands if isinstance(command, Claim)]
        claimed = array(subjects(claims))
        read = Statement(SQL["lock_items" if self._locks else "find_items"], (ids,))
        clock = statement(SQL["next_tokens"], self._given_now, len(claims))
        if claims:
            sessions = Statement(SQL["lock_sessions"], (claimed,))
            _, found, holders, told, *more = self._exchange(
                [sessions, read, Statement(SQL["find_holders"], (claimed,)), clock, *beside]
            )
            self._holders = {(tenant, session_id): name for tenant, session_id, name in self.read(holders)}
        else:
            ask = self._exchange if self._locks else self._client.run
            found, told, *more = ask([read, clock, *beside])
        ((self._now, tokens),) = self.read(told)
        self._tokens = tokens or []
        self._note(found)
        self._looked = {subject(command)[1] for command in commands}
        self._locked = set(self._looked) if self._locks else set()
        return more

    def presume_new(self, commands: Sequence[Command]) -> None:
        """Look at nothing: whether one of these items is there is for the database to find out. Unless the time was
        given, it is 0 now, and will be counted from when the transaction begins."""
        self._looked = {subject(command)[1] for command in commands}
        self._now, self._counts_from_beginning = self._given_now or 0.0, self._given_now is None

    def undelivered(self, limit: int, handed_before_s: float) -> dict[str, WorkItem]:
        """The oldest first, and locked."""
        due = statement(SQL["lock_undelivered"], self._given_now, handed_before_s, limit)
        found, told = self._exchange([due, statement(SQL["now"], self._given_now)])
        ((self._now,),) = self.read(told)
        return self._note(found)

    def commit(self, beside: Sequence[Statement] = (), after: Sequence[Statement] = ()) -> list[Result]:
        """With what else belongs to the transaction, which is answered, and what is to follow it: a hint to those who
        watch, if there is something to see, and `after`."""
        if not self._has_begun and not self._unsent and not beside:
            if after:
                self._client.run(after)
            return []
        begin = () if self._has_begun else self._client.beginning()
        before = [*begin, *self._unsent]
        hint = [Statement(SQL["hint"])] if any(outcome.ended in ENDED for outcome in self.outcomes) else []
        self.is_committing = bool(self._unsent or self._written or beside)
        killpoint("postgres.before-perform-commit")
        results = self._client.run([*before, *beside, COMMIT, *hint, *after], self._written)
        killpoint("postgres.after-perform-commit")
        return results[len(before) : len(before) + len(beside)]

    def is_new(self, name: str) -> bool:
        """Whether the item was made in this transaction."""
        return name in self._new

    # -- ledger.Rows ---------------------------------------------------------------------------------------------------

    def now(self) -> float:
        return self._now

    def tokens(self, count: int) -> Sequence[int]:
        assert count == len(self._tokens)
        return self._tokens

    def lock(self, ids: Sequence[str]) -> dict[str, WorkItem]:
        if self._looked.issuperset(ids):
            self._looked.clear()
            return {name: self.records[name].item for name in ids if name in self.records}
        known = knowable(ids)
        if not known:
            return {}
        (found,) = self._exchange([Statement(SQL["lock_items"], (array(known),))])
        self._locked.update(known)
        return self._note(found)

    def held_in(self, sessions: Sequence[Session]) -> dict[Session, str]:
        return {session: self._holders[session] for session in sessions if session in self._holders}

    def waiting_for(self, ids: Sequence[str]) -> dict[str, tuple[str, ...]]:
        awaited = [name for name in ids if name in self._new or self.records[name].is_awaited]
        waiting: defaultdict[str, tuple[str, ...]] = defaultdict(tuple)
        if awaited:
            (found,) = self._exchange([Statement(SQL["find_waiting"], (array(awaited),))])
            for name, waiter in self.read(found):
                waiting[name] += (waiter,)
        return dict(waiting)

    def unmet(self, ids: Sequence[str]) -> dict[str, int]:
        if not self._locked.issuperset(ids):  # two that end at once would each leave it to the other to release it
            raise OvertakenError
        (found,) = self._exchange([Statement(SQL["count_unmet"], (array(ids),))])
        return dict(self.read(found))

    def save(
        self, new: Sequence[WorkItem], changed: Sequence[WorkItem], gone: Sequence[str], outcomes: Sequence[Outcome]
    ) -> None:
        self.gone += [self.records[name] for name in gone]
        if gone:
            versions = [self.records[name].version for name in gone]
            self._unsent.append(Statement(SQL["remove_items"], (array(gone), _numbers(versions))))
        if new:
            self._unsent.append(self._adding(new))
            self._new.update(item.id for item in new)
        if changed:
            self._change(sorted(changed, key=lambda item: item.id))
        self._hold([*new, *changed])
        if outcomes:
            lines = zip(*map(outcome_columns, outcomes), strict=True)
            self._unsent.append(Statement(SQL["add_outcomes"], tuple(map(_array, lines))))
            self.outcomes += outcomes
        self._note_waits([item for item in new if item.depends_on])
        for item in (*new, *changed):
            before = self.records.get(item.id)
            self.records[item.id] = Record(item, None, before is not None and before.is_awaited)
        self._written += len(new) + len(changed)

    def _adding(self, new: Sequence[WorkItem]) -> Statement:
        if len(new) == 1:
            return statement(SQL["add_item"], *_addition(new[0]), self._counts_from_beginning)
        columns = map(_array, zip(*map(_addition, new), strict=True))
        return Statement(SQL["add_items"], (*columns, str(self._counts_from_beginning).encode()))

    def _change(self, changed: Sequence[WorkItem]) -> None:
        before = [self.records[item.id] for item in changed]
        columns = zip(*map(_change, before, changed), strict=True)
        self._unsent.append(Statement(SQL["change_items"], tuple(map(_array, columns))))
        self.changed += before

    def _hold(self, items: Sequence[WorkItem]) -> None:
        """The sessions of what is held now, and no more of what was. Those that let go come first."""
        held = {item.id for item in items if item.state in HELD}
        were = {item.id for item in items if item.id in self.records and self.records[item.id].item.state in HELD}
        if were - held:
            self._unsent.append(Statement(SQL["let_go_sessions"], (array(sorted(were - held)),)))
        if held - were:
            self._unsent.append(Statement(SQL["hold_sessions"], (array(sorted(held - were)),)))
        self.claimed += [item for item in items if item.id in held and self._has_new_lease(item)]

    def _has_new_lease(self, item: WorkItem) -> bool:
        return item.id not in self.records or self.records[item.id].item.token != item.token

    def _note_waits(self, waiting: Sequence[WorkItem]) -> None:
        if waiting:
            self._unsent.append(Statement(SQL["add_waits"], (array([item.id for item in waiting]),)))
        for name in {name for item in waiting for name in item.depends_on}:
            record = self.records.get(name)
            if record is not None and not record.is_awaited:
                self.records[name] = Record(record.item, None, True)

    # -- the exchange --------------------------------------------------------------------------------------------------

    def _exchange(self, statements: Sequence[Statement]) -> list[Result]:
        """In the transaction, after what was saved."""
        begin = () if self._has_begun else self._client.beginning()
        before = [*begin, *self._unsent]
        self._unsent = []
        results = self._client.run([*before, *statements], self._written)
        self._has_begun = True
        return results[len(before) :]

    def read(self, result: Result) -> list[tuple[Any, ...]]:
        return self._client.wire.rows(result)

    def _note(self, found: Result) -> dict[str, WorkItem]:
        records = [Record(item_of(row[2:]), row[0], row[1]) for row in self.read(found)]
        self.records |= {record.item.id: record for record in records}
        return {record.item.id: record.item for record in records}


def _addition(item: WorkItem) -> tuple[Value, ...]:
    return (
        item.id, item.tenant, item.session_id, item.kind, item.payload_ref, item.priority, item.deadline,
        json.dumps(item.depends_on), item.max_attempts, item.submitted_at, item.state.value, item.attempt,
        item.failures, item.owner, item.epoch, item.token, item.expires_at, item.not_before, item.delivered,
        item.handed_at, item.changed_at, item.started_at, item.cancel_cause, item.checkpoint, item.cause, item.result,
    )  # fmt: skip


def _change(before: Record, item: WorkItem) -> tuple[Value, ...]:
    old = before.item
    texts = (None if getattr(item, name) == getattr(old, name) else getattr(item, name) for name in TEXTS)
    return (
        item.id, before.version, old.epoch, item.state.value, item.attempt, item.failures, item.owner, item.epoch,
        item.token, item.expires_at, item.not_before, item.delivered, item.handed_at, item.changed_at, item.started_at,
        *texts,
    )  # fmt: skip


def _array(values: Sequence[Value]) -> bytes:
    """Like `array`, for a column in which some may be NULL."""
    if None not in values:
        return array(values)
    if any(isinstance(value, str) for value in values):
        return ("{" + ",".join("NULL" if value is None else _quoted(value) for value in values) + "}").encode()
    return _numbers(values)


def _quoted(value: Value) -> str:
    return '"' + str(value).replace("\\", r"\\").replace('"', r"\"") + '"'


def _numbers(values: Iterable[Value]) -> bytes:
    return ("{" + ",".join("NULL" if value is None else str(value) for value in values) + "}").encode()
