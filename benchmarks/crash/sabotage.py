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
import harness.local.attempt
import harness.local.session
import harness.local.settle
import harness.local.work
from dispatch.cli import main
from dispatch.store import Changes, SqliteStore
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


SABOTAGES: dict[str, Callable[[], None]] = {
    each.__name__.replace("_", "-"): each
    for each in (orphans, cap, rivals, acknowledgements, verify, merge_record, work)
}


def replace(owner: Any, name: str, value: Any) -> None:
    """Only what is there: a sabotage that sabotages nothing would prove nothing."""
    assert hasattr(owner, name), name
    setattr(owner, name, value)


if __name__ == "__main__":
    SABOTAGES[os.environ["CRASH_SABOTAGE"]]()
    main(sys.argv[2:])
