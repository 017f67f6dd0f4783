"""An authority and a queue in one SQLite file, used in one transaction where both are concerned.

Of a turn that is admitted, the item and its delivery are there together or not at all; of one that has ended, the end
is written down, the delivery gone and the session free. Each waits for the disk once.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Sequence

from harness.database.killpoint import killpoint
from harness.fleet import ledger
from harness.fleet.admitting import Admitting, NotThisWayError, deliveries
from harness.fleet.authority.sqlite import SqliteWorkItems
from harness.fleet.ports import Ending, Opening, Settlement
from harness.fleet.settling import Settling
from harness.fleet.transport import sqlite as queue
from harness.fleet.transport.sqlite import SqliteTransport
from harness.fleet.work_item import Submission, WorkItem

logger = logging.getLogger(__name__)


class SqliteJoint:
    """See `ports.Joint`. Both stay the caller's to close. May be used from any thread."""

    def __init__(self, authority: SqliteWorkItems, transport: SqliteTransport) -> None:
        assert authority.path == transport.path
        self._authority, self._transport = authority, transport

    def admit(self, submissions: Sequence[Submission], limit: int) -> tuple[WorkItem, ...] | None:
        admitting = Admitting(submissions)
        if not admitting.is_possible:
            return None
        with self._authority.using() as connection:
            if queue.depth(connection) >= limit:  # a refusal waits for nobody
                return None
        try:
            with self._authority.writing() as connection:
                try:
                    items = self._admitted(connection, admitting, limit)
                except sqlite3.IntegrityError as there:
                    raise NotThisWayError from there
                killpoint("sqlite-joint.before-admit-commit")
            killpoint("sqlite-joint.after-admit-commit")
        except NotThisWayError:
            return None
        return items

    def _admitted(self, connection: sqlite3.Connection, admitting: Admitting, limit: int) -> tuple[WorkItem, ...]:
        rows = self._authority.rows(connection, presumes_new=admitting.presumes_new)
        items = admitting.items(ledger.perform(rows, admitting.commands), rows.is_new)
        envelopes = deliveries(items)
        if queue.depth(connection) + len(envelopes) > limit:
            raise NotThisWayError
        queue.put(connection, envelopes, self._transport.now)
        return items

    def settle(self, endings: Sequence[Ending], openings: Sequence[Opening]) -> Settlement:
        locks, settling = self._authority.session_locks, Settling(endings, openings)
        self._authority.join()
        with self._authority.writing() as connection:
            locked = locks.lock(connection, settling.sessions)
            results = ledger.perform(self._authority.rows(connection), settling.commands)
            locks.unlock(connection, settling.done_with(results, locked))
            receipts = settling.acknowledged(results)
            gone = queue.acknowledge(connection, receipts, self._transport.now)
            killpoint("sqlite-joint.before-settle-commit")
        killpoint("sqlite-joint.after-settle-commit")
        for problem in self._transport.acknowledged(receipts, gone):
            if problem is not None:
                logger.info("a delivery was not acknowledged: %s", problem)
        return settling.settlement(results, locked)
