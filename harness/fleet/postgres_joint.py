"""An authority and a queue in one PostgreSQL database, used in one transaction where both are concerned.

Of a turn that is admitted, the item and its delivery are there together or not at all; of one that has ended, the end
is written down and the delivery gone. What is asked of the queue travels with what is asked of the authority, on the
authority's connection, and so do the locks on sessions: a turn costs half of what it would otherwise.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from harness.database.postgres_wire import Result as Reply
from harness.database.postgres_wire import Statement
from harness.fleet.authority.beside import Beside
from harness.fleet.authority.postgres import PostgresWorkItems
from harness.fleet.authority.postgres_rows import PostgresRows
from harness.fleet.authority.postgres_sessions import PostgresSessionLocks
from harness.fleet.commands import Deliver, Submit
from harness.fleet.ports import Ending, Opening, Receipt, Result, Settled
from harness.fleet.transport.postgres import PostgresTransport, acknowledge_values, put_values
from harness.fleet.transport.postgres_schema import SQL
from harness.fleet.work_item import Submission, WorkItem, WorkItemState

logger = logging.getLogger(__name__)


class _NotThisWayError(Exception):
    """Not all could be admitted in one transaction."""


class PostgresJoint:
    """See `ports.Joint`. Both stay the caller's to close. May be used from any thread."""

    def __init__(self, authority: PostgresWorkItems, transport: PostgresTransport) -> None:
        self._authority, self._transport = authority, transport
        self._has_tables = False

    def admit(self, submissions: Sequence[Submission], limit: int) -> tuple[WorkItem, ...] | None:
        if any(submission.not_before > 0 for submission in submissions):  # its time may not have come
            return None
        self._see_to_tables()
        admission = _Admission(submissions, limit)
        submits = [Submit(submission) for submission in submissions]
        delivers = [Deliver(submission.id, submission.tenant) for submission in submissions]
        try:
            self._authority.perform_with(admission, [*submits, *delivers])
        except _NotThisWayError:
            return None
        self._transport.work_off(len(submissions))
        return admission.items

    def settle(self, endings: Sequence[Ending], openings: Sequence[Opening]) -> Settled:
        self._see_to_tables()
        settlement = _Settlement(self._authority.session_locks, endings, openings)
        commands = [*(each.command for each in endings), *(each.claim for each in openings)]
        results = self._authority.perform_with(settlement, commands)
        if settlement.answers is not None:
            for problem in self._transport.acknowledged(settlement.acknowledged, settlement.answers):
                if problem is not None:
                    logger.info("a delivery was not acknowledged: %s", problem)
        return Settled(results[: len(endings)], results[len(endings) :], tuple(settlement.locked))

    def _see_to_tables(self) -> None:
        """Those of the queue are its own to make."""
        if not self._has_tables:
            self._transport.depth()
            self._has_tables = True


class _Admission(Beside):
    """Of so many submissions, whose `Submit` commands come first and their `Deliver` commands after these. It is tried
    once: whatever is in its way, the other way knows what to do about it."""

    def __init__(self, submissions: Sequence[Submission], limit: int) -> None:
        self._count, self._limit = len(submissions), limit
        self.presumes_new = not any(submission.depends_on for submission in submissions)
        self._is_tried = False
        self.items: tuple[WorkItem, ...] = ()

    def ask(self) -> Sequence[Statement]:
        if self._is_tried:
            raise _NotThisWayError
        self._is_tried = True
        return ()

    def add(self, rows: PostgresRows, results: Sequence[Result]) -> Sequence[Statement]:
        self.items = tuple(each for each in results[self._count :] if isinstance(each, WorkItem))
        if len(self.items) < self._count or not all(rows.is_new(item.id) for item in self.items):
            raise _NotThisWayError
        ready = {item.id: item.envelope(item.changed_at) for item in self.items if item.state is WorkItemState.READY}
        if not ready:
            return ()
        *values, _ = put_values(list(ready.values()), self._limit)
        now = str(rows.now()).encode() if rows.now() else None
        return [Statement(SQL["put_all"], (*values, str(len(ready)).encode(), now))]

    def follow(self, results: Sequence[Result]) -> Sequence[Statement]:
        return [Statement(SQL["wake"])]

    def told(self, rows: PostgresRows, answers: Sequence[Reply]) -> None:
        for answer in answers:
            ((now,),) = rows.read(answer)
            if self.presumes_new:
                self.items = tuple(item.but(submitted_at=now, changed_at=now, handed_at=now) for item in self.items)


class _Settlement(Beside):
    """Of turns that end and turns that begin, whose commands are in that order."""

    def __init__(self, locks: PostgresSessionLocks, endings: Sequence[Ending], openings: Sequence[Opening]) -> None:
        self._locks, self._endings, self._openings = locks, endings, openings
        self._sessions = [each.session for each in openings]
        self.locked = [False] * len(openings)
        self.acknowledged: list[Receipt] = []
        self.answers: list[tuple[object, ...]] | None = None  # None: nobody heard them
        self._is_unsure = False  # whether what was asked for is locked

    def ask(self) -> Sequence[Statement]:
        if self._is_unsure:
            self._locks.lose()
        self._locks.keep_up()
        asking = self._locks.asking(self._sessions)
        self._is_unsure = asking is not None
        return () if asking is None else [asking]

    def hear(self, rows: PostgresRows, answers: Sequence[Reply]) -> None:
        self._is_unsure = False
        taken = self._locks.noted(self._sessions, answers[0] if answers else None)
        self.locked = [before or now for before, now in zip(self.locked, taken, strict=True)]

    def add(self, rows: PostgresRows, results: Sequence[Result]) -> Sequence[Statement]:
        pairs = zip(self._endings, results[: len(self._endings)], strict=True)
        self.acknowledged = [each.receipt for each, result in pairs if isinstance(result, WorkItem)]
        return [Statement(SQL["acknowledge"], acknowledge_values(self.acknowledged))] if self.acknowledged else ()

    def follow(self, results: Sequence[Result]) -> Sequence[Statement]:
        freeing = self._locks.freeing(self._done_with(results))
        return () if freeing is None else [freeing]

    def told(self, rows: PostgresRows, answers: Sequence[Reply]) -> None:
        self.answers = [row for answer in answers for row in rows.read(answer)]

    def end(self, results: Sequence[Result]) -> None:
        """If the connection has gone with the answer, so have the locks."""
        self._locks.forget(self._done_with(results))

    def fail(self) -> None:
        """What was locked meanwhile is free again; what was before is locked anew when it is needed."""
        self._locks.forget(session for session, is_ours in zip(self._sessions, self.locked, strict=True) if is_ours)
        self._locks.lose()

    def _done_with(self, results: Sequence[Result]) -> list[tuple[str, str]]:
        opened = zip(self._openings, self.locked, results[len(self._endings) :], strict=True)
        refused = [each.session for each, is_ours, result in opened if is_ours and not isinstance(result, WorkItem)]
        return [*(each.session for each in self._endings), *refused]
