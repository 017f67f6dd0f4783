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
from harness.fleet.admitting import Admitting, NotThisWayError, deliveries
from harness.fleet.authority.beside import Beside
from harness.fleet.authority.postgres import PostgresWorkItems
from harness.fleet.authority.postgres_rows import PostgresRows
from harness.fleet.authority.postgres_sessions import PostgresSessionLocks
from harness.fleet.ports import Ending, Opening, Result, Settlement
from harness.fleet.settling import Settling
from harness.fleet.transport.postgres import PostgresTransport, acknowledge_values, put_values
from harness.fleet.transport.postgres_schema import SQL
from harness.fleet.work_item import Submission, WorkItem

logger = logging.getLogger(__name__)


class PostgresJoint:
    """See `ports.Joint`. Both stay the caller's to close. May be used from any thread."""

    def __init__(self, authority: PostgresWorkItems, transport: PostgresTransport) -> None:
        self._authority, self._transport = authority, transport
        self._has_tables = False

    def admit(self, submissions: Sequence[Submission], limit: int) -> tuple[WorkItem, ...] | None:
        admitting = Admitting(submissions)
        if not admitting.is_possible:
            return None
        self._see_to_tables()
        beside = _BesideAdmission(admitting, limit)
        try:
            self._authority.perform_with(beside, admitting.commands)
        except NotThisWayError:
            return None
        self._transport.work_off(len(submissions))
        return beside.items

    def settle(self, endings: Sequence[Ending], openings: Sequence[Opening]) -> Settlement:
        self._see_to_tables()
        settling = Settling(endings, openings)
        beside = _BesideSettlement(settling, self._authority.session_locks)
        results = self._authority.perform_with(beside, settling.commands)
        if beside.answers is not None:
            for problem in self._transport.acknowledged(settling.acknowledged(results), beside.answers):
                if problem is not None:
                    logger.info("a delivery was not acknowledged: %s", problem)
        return settling.settlement(results, beside.locked)

    def _see_to_tables(self) -> None:
        """Those of the queue are its own to make."""
        if not self._has_tables:
            self._transport.depth()
            self._has_tables = True


class _BesideAdmission(Beside):
    """The deliveries of what is submitted. It is tried once: whatever is in its way, the other way knows what to do
    about it."""

    def __init__(self, admitting: Admitting, limit: int) -> None:
        self._admitting, self._limit = admitting, limit
        self.presumes_new = admitting.presumes_new
        self._is_tried = False
        self.items: tuple[WorkItem, ...] = ()

    def ask(self) -> Sequence[Statement]:
        if self._is_tried:
            raise NotThisWayError
        self._is_tried = True
        return ()

    def add(self, rows: PostgresRows, results: Sequence[Result]) -> Sequence[Statement]:
        self.items = self._admitting.items(results, rows.is_new)
        envelopes = deliveries(self.items)
        if not envelopes:
            return ()
        *values, _ = put_values(envelopes, self._limit)
        now = str(rows.now()).encode() if rows.now() else None
        return [Statement(SQL["put_all"], (*values, str(len(envelopes)).encode(), now))]

    def follow(self, results: Sequence[Result]) -> Sequence[Statement]:
        return [Statement(SQL["wake"])]

    def told(self, rows: PostgresRows, answers: Sequence[Reply]) -> None:
        for answer in answers:
            ((now,),) = rows.read(answer)
            if self.presumes_new:
                self.items = tuple(item.but(submitted_at=now, changed_at=now, handed_at=now) for item in self.items)


class _BesideSettlement(Beside):
    """The acknowledgements of what ends, and the locks on the sessions."""

    def __init__(self, settling: Settling, locks: PostgresSessionLocks) -> None:
        self._settling, self._locks = settling, locks
        self._sessions = settling.sessions
        self.locked = [False] * len(self._sessions)
        self.answers: list[tuple[object, ...]] | None = None  # to the acknowledgements; None: nobody heard them
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
        receipts = self._settling.acknowledged(results)
        return [Statement(SQL["acknowledge"], acknowledge_values(receipts))] if receipts else ()

    def follow(self, results: Sequence[Result]) -> Sequence[Statement]:
        freeing = self._locks.freeing(self._settling.done_with(results, self.locked))
        return () if freeing is None else [freeing]

    def told(self, rows: PostgresRows, answers: Sequence[Reply]) -> None:
        self.answers = [row for answer in answers for row in rows.read(answer)]

    def end(self, results: Sequence[Result]) -> None:
        """Where it was found out to be done, nobody freed the locks, and they may have been taken again meanwhile."""
        self._locks.forget(self._settling.done_with(results, self.locked))
        if self.answers is None:
            self._locks.lose()

    def fail(self) -> None:
        """What was locked meanwhile is free again; what was before is locked anew when it is needed."""
        self._locks.forget(session for session, is_ours in zip(self._sessions, self.locked, strict=True) if is_ours)
        self._locks.lose()
