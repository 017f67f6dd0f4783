"""The product with one promise broken, to show that the campaign sees it: `CRASH_SABOTAGE=<name>`, then as `dispatch`.

Each takes out one line of defence, at run time and in this process alone.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import attrs

import dispatch.capping
import dispatch.contention
import dispatch.store.postgres
import dispatch.store.sqlite
import harness.local.attempt
import harness.local.session
import harness.local.settle
import harness.local.work
from dispatch.cli import main
from dispatch.store import Changes, SqliteStore
from dispatch.store.postgres import PostgresStore
from dispatch.store.postgres_schema import SQL
from harness.database.postgres_wire import Wire
from harness.local.work import worktree_commit


def orphans() -> None:
    """What a killed run left running is not looked for."""
    replace(harness.local.settle, "end_processes", lambda record: None)


def cap() -> None:
    """One more than the cap."""
    real = dispatch.capping.FixedCap
    replace(dispatch.capping, "FixedCap", lambda places: real(places + 1))


def rivals() -> None:
    """Nothing that runs is known to exclude anything."""
    replace(dispatch.contention.Contention, "claim", lambda self, node: None)
    replace(dispatch.contention.Contention, "unclaim", lambda self, node: None)


def acknowledgements() -> None:
    """A hold is acknowledged and not written."""
    real = SqliteStore.write

    def write(self: SqliteStore, changes: Changes) -> None:
        rows = tuple(attrs.evolve(row, hold="") for row in changes.slices)
        real(self, attrs.evolve(changes, slices=rows))

    replace(SqliteStore, "write", write)


def verify() -> None:
    """A verify command that fails is taken for one that passed."""
    replace(harness.local.session, "verify_ending", lambda exit_, recipe: None)


def merge_record() -> None:
    """Which merge is about to become main is not written down, so that a restart can't know whether it did."""
    replace(harness.local.attempt.Attempt, "_intend", lambda self, commit: None)


def work() -> None:
    """What an agent left uncommitted is not kept."""
    replace(harness.local.work, "snapshot", lambda worktree, message: worktree_commit(worktree))


def expiry() -> None:
    """A claim is nobody's business, whether it has run out or not."""
    for store in (dispatch.store.sqlite, dispatch.store.postgres):
        replace(store, "hindrance", lambda held, now, presence, outlasted=None: None)


def epoch() -> None:
    """A write does not say who it is by."""
    proofs = {
        "count_batch": "UPDATE dispatch.claims SET written = $5::bigint WHERE graph = $1::integer",
        "move_claim": "UPDATE dispatch.claims SET expires_at = coalesce($5::double precision,"
        " extract(epoch FROM clock_timestamp())) + $6::double precision WHERE graph = $1::integer",
    }
    for name, proof in proofs.items():
        assert name in SQL, name
        SQL[name] = f"{proof} AND ($2::bigint, $3::text, $4::bigint) IS NOT NULL"


def unknown_failed() -> None:
    """A batch whose outcome is unknown is taken for one that failed, and is written again."""
    real = PostgresStore._connected

    def connected(self: PostgresStore, wait_s: float = 0.0) -> Wire:
        wire = real(self, wait_s)
        if self._doubt is not None:
            self._written = self._doubt.number - 1
        return wire

    replace(PostgresStore, "_connected", connected)
    assert SQL["count_batch"].count("written = $5::bigint - 1") == 1
    SQL["count_batch"] = SQL["count_batch"].replace("written = $5::bigint - 1", "written >= $5::bigint - 1")


def unknown_done() -> None:
    """A batch whose outcome is unknown is taken for one that is there."""
    real = PostgresStore._write

    def write(self: PostgresStore, wire: Wire, changes: Changes) -> None:
        if self._doubt is None or self._doubt.changes != changes:
            real(self, wire, changes)
        self._doubt = None

    replace(PostgresStore, "_write", write)


def early_word() -> None:
    """What a write is to make durable is acknowledged before it is: it is written along with the next."""
    real = PostgresStore.write
    waiting: list[Changes] = []

    def write(self: PostgresStore, changes: Changes) -> None:
        waiting.append(changes)
        while len(waiting) > 1 or (waiting and not changes.slices):
            real(self, waiting.pop(0))

    replace(PostgresStore, "write", write)


SABOTAGES: dict[str, Callable[[], None]] = {
    each.__name__.replace("_", "-"): each
    for each in (
        orphans, cap, rivals, acknowledgements, verify, merge_record, work,
        expiry, epoch, unknown_failed, unknown_done, early_word,
    )
}  # fmt: skip


def replace(owner: Any, name: str, value: Any) -> None:
    """Only what is there: a sabotage that sabotages nothing would prove nothing."""
    assert hasattr(owner, name), name
    setattr(owner, name, value)


if __name__ == "__main__":
    SABOTAGES[os.environ["CRASH_SABOTAGE"]]()
    main(sys.argv[2:])
