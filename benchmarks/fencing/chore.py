"""What the campaign's turns do: effects, each through the guard, each written down in a ledger that only grows.

A worker loads `run` by `--executor chore=benchmarks.fencing.chore:run`. The ledger is the file that FENCING_LEDGER
names.
"""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import attrs

from benchmarks.fencing import deliveries, sabotage
from benchmarks.fencing.notes import Ledger, Note
from harness.fleet import opening
from harness.fleet.executors import TryAgainError
from harness.fleet.lease import WorkItemLeaseGuard

KIND = "chore"
LEDGER = "FENCING_LEDGER"
SESSION = "FENCING_SESSION_S"  #: if it is set, so short may the session of a worker's Kafka consumer be


@attrs.frozen
class Chore:
    """So many effects, each after a pause; in the first `stumbles` attempts it fails after half of them. In the first
    `deaths` it takes its whole worker along, before any."""

    effects: int
    pause_s: float
    stumbles: int = 0
    deaths: int = 0


sabotage.apply()
deliveries.count()
opening.SHORTEST_SESSION_S = float(os.environ.get(SESSION) or opening.SHORTEST_SESSION_S)


def run(payload: bytes, guard: WorkItemLeaseGuard) -> str:
    chore = Chore(**json.loads(payload))
    ledger, item = Ledger(Path(os.environ[LEDGER])), guard.item

    def note(what: str, number: int, asked_at: float) -> None:
        now = time.monotonic()
        who = (item.id, item.session_id, guard.lease.epoch, guard.lease.token, item.attempt, os.getpid())
        ledger.add(Note(*who, what, number, asked_at, now))

    guard.side_effect(note, "start", 0, time.monotonic())
    if item.attempt <= chore.deaths:
        os.kill(os.getpid(), signal.SIGKILL)
    for number in range(chore.effects):
        guard.wait(chore.pause_s)
        guard.safepoint()
        guard.side_effect(note, "effect", number, time.monotonic())
        if item.attempt <= chore.stumbles and 2 * number >= chore.effects:
            raise TryAgainError("it stumbled, as it was meant to")
    guard.side_effect(note, "done", chore.effects, time.monotonic())
    return f"{chore.effects} effects"
