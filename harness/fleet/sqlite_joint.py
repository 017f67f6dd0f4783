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
from harness.fleet.authority.sqlite import SqliteWorkItems
from harness.fleet.commands import Deliver, Submit
from harness.fleet.ports import Ending, Opening, Settled
from harness.fleet.transport import sqlite as queue
from harness.fleet.transport.sqlite import SqliteTransport
from harness.fleet.work_item import Submission, WorkItem, WorkItemState

logger = logging.getLogger(__name__)


class _NotThisWayError(Exception):
    """Not all could be admitted in one transaction."""


class SqliteJoint:
    """See `ports.Joint`. Both stay the caller's to close. May be used from any thread."""

    def __init__(self, authority: SqliteWorkItems, transport: SqliteTransport) -> None:
        assert authority.path == transport.path
        self._authority, self._transport = authority, transport

    def admit(self, submissions: Sequence[Submission], limit: int) -> tuple[WorkItem, ...] | None:
        if any(submission.not_before > 0 for submission in submissions):  # its time may not have come
            return None
        with self._authority.using() as connection:
            if queue.depth(connection) >= limit:  # a refusal waits for nobody
                return None
        try:
            with self._authority.writing() as connection:
                try:
                    items = self._admitted(connection, submissions, limit)
                except sqlite3.IntegrityError as there:
                    raise _NotThisWayError from there
                killpoint("sqlite-joint.before-admit-commit")
            killpoint("sqlite-joint.after-admit-commit")
        except _NotThisWayError:
            return None
        return items

    def _admitted(
        self, connection: sqlite3.Connection, submissions: Sequence[Submission], limit: int
    ) -> tuple[WorkItem, ...]:
        presumes_new = not any(submission.depends_on for submission in submissions)
        rows = self._authority.rows(connection, presumes_new=presumes_new)
        submits = [Submit(submission) for submission in submissions]
        delivers = [Deliver(submission.id, submission.tenant) for submission in submissions]
        results = ledger.perform(rows, [*submits, *delivers])[len(submissions) :]
        items = tuple(each for each in results if isinstance(each, WorkItem))
        if len(items) < len(submissions) or not all(rows.is_new(item.id) for item in items):
            raise _NotThisWayError
        ready = {item.id: item.envelope(item.changed_at) for item in items if item.state is WorkItemState.READY}
        if queue.depth(connection) + len(ready) > limit:
            raise _NotThisWayError
        queue.put(connection, list(ready.values()), self._transport.now)
        return items

    def settle(self, endings: Sequence[Ending], openings: Sequence[Opening]) -> Settled:
        locks, sessions = self._authority.session_locks, [each.session for each in openings]
        commands = [*(each.command for each in endings), *(each.claim for each in openings)]
        self._authority.join()
        with self._authority.writing() as connection:
            locked = locks.lock(connection, sessions)
            results = ledger.perform(self._authority.rows(connection), commands)
            ended, opened = results[: len(endings)], results[len(endings) :]
            tried = zip(sessions, locked, opened, strict=True)
            refused = [each for each, is_ours, result in tried if is_ours and not isinstance(result, WorkItem)]
            locks.unlock(connection, [*(each.session for each in endings), *refused])
            pairs = zip(endings, ended, strict=True)
            receipts = [each.receipt for each, result in pairs if isinstance(result, WorkItem)]
            gone = queue.acknowledge(connection, receipts, self._transport.now)
            killpoint("sqlite-joint.before-settle-commit")
        killpoint("sqlite-joint.after-settle-commit")
        for problem in self._transport.acknowledged(receipts, gone):
            if problem is not None:
                logger.info("a delivery was not acknowledged: %s", problem)
        return Settled(ended, opened, locked)
