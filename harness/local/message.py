"""A session as the host sees it, and what its actor is told about it."""

from __future__ import annotations

import enum
import time
from pathlib import Path
from typing import TypeAlias

import attrs

from harness.local.folder import Inbox
from harness.local.process import Exit, Running
from harness.local.record import Record
from harness.session import Assignment


class Stage(enum.Enum):
    """Where a session stands; the value is what people are told."""

    IDLE = "ended"
    READY = "preparing"
    RUNNING = "running"
    QUEUED = "waiting to merge"
    VERIFYING = "verifying"
    WAITING = "waiting"
    UNCLAIMED = "waiting to know who owns the graph"


@attrs.define(eq=False)
class Session:
    """One session, as the host sees it. The actor alone writes to it; any thread may read.

    `silent`: its end is not to be reported, because the host is being closed. `waits`: what it waits for in that stage,
    such as a change in the user's checkout that is in the way of its merge; empty once it waits no more.
    """

    assignment: Assignment
    log: Path
    inbox: Inbox
    started_at: float
    stage: Stage = Stage.READY
    branch: str = ""
    running: Running | None = None
    stopping: bool = False
    silent: bool = False
    waits: str = ""

    @classmethod
    def of(cls, assignment: Assignment, log: Path) -> Session:
        return cls(assignment, log, Inbox(assignment.assignment_id), time.time(), branch=assignment.branch)


@attrs.frozen
class Open:
    """Make the session ready."""

    session: Session


@attrs.frozen
class Start:
    """It is ready: start the agent, unless it was asked to stop meanwhile."""

    session: Session


@attrs.frozen
class Stop:
    """Stop at the next safepoint. `grace_s` replaces the recipe's if it is given."""

    session: Session
    grace_s: float | None = None


@attrs.frozen
class Exited:
    """The agent, or the verify command, has ended, and nothing of it runs any more."""

    session: Session
    exit: Exit


@attrs.frozen
class Turn:
    """It is its turn to merge."""

    session: Session


@attrs.frozen
class LookAgain:
    """Look whether the user's checkout of main can take its merge by now."""

    session: Session


@attrs.frozen
class AskOwner:
    """Ask again whether the graph is certainly this process's, and if so go on with `then`, what was kept waiting."""

    session: Session
    then: Open | Turn
    give_up_at: float


@attrs.frozen
class TryAgain:
    """Try the step again that met something which passes."""

    session: Session


@attrs.frozen
class Sweep:
    """Settle what a killed process left of these attempts. Sent to actors that have no session."""

    records: tuple[Record, ...]


Message: TypeAlias = Open | Start | Stop | Exited | Turn | LookAgain | AskOwner | TryAgain | Sweep
