"""What the campaign's turns do: note that they began and ended, and what with.

A worker loads `run` for each of `KINDS`. The ledger is the file that ENVELOPES_LEDGER names; a sleeper ends once the
file that ENVELOPES_MORNING names is there.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from benchmarks.envelopes import sabotage
from benchmarks.envelopes.ledger import Ledger, Note
from harness.fleet.executors import TryAgainError
from harness.fleet.lease import WorkItemLeaseGuard

NOTE, DOOMED, SLEEPER = "note", "doomed", "sleeper"
KINDS = (NOTE, DOOMED, SLEEPER)
LEDGER, MORNING = "ENVELOPES_LEDGER", "ENVELOPES_MORNING"
LOOK_S = 0.05

sabotage.apply()


def run(payload: bytes, guard: WorkItemLeaseGuard) -> str:
    item = guard.item

    def note(what: str) -> None:
        text = payload.decode("utf-8", "replace")
        with contextlib.closing(Ledger(Path(os.environ[LEDGER]))) as ledger:
            ledger.add(
                Note(item.id, item.tenant, item.session_id, item.kind, text, os.getpid(), what, time.monotonic())
            )

    guard.side_effect(note, "began")
    while item.kind == SLEEPER and not Path(os.environ[MORNING]).exists():
        guard.safepoint()
        guard.wait(LOOK_S)
    guard.side_effect(note, "ended")
    if item.kind == DOOMED:
        raise TryAgainError("it fails, as it was meant to")
    return "noted"
