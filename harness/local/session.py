"""The session actor: drives one session at a time, from an assignment to its last report.

Everything that happens to a session comes as a message, and what follows is one line of `HANDLERS`. A message about a
session that has ended meanwhile, or one that its stage has no line for, changes nothing. Git runs in the actor's own
thread; agents are watched elsewhere, and their exits come back as messages.

    IDLE -Open-> READY -Start-> RUNNING -Exited-> QUEUED -Turn-> VERIFYING -Exited-> ... IDLE
"""

from __future__ import annotations

import enum
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import attrs
import pykka

from harness.local.attempt import IN_THE_WAY, AlreadyMergedError, Attempt, opening_ending
from harness.local.errors import GitError, LocalHostError, StrayedError, SupersededError
from harness.local.folder import Inbox
from harness.local.merge import CheckoutInTheWayError
from harness.local.outcome import (
    MERGED,
    STOPPED,
    Ending,
    agent_ending,
    checkpoint_of,
    closed,
    failed,
    spawn_ending,
    verify_ending,
)
from harness.local.process import Exit, OrphanError, Running
from harness.local.record import Record
from harness.local.settle import sweep
from harness.local.site import Site
from harness.session import Assignment, SessionState

logger = logging.getLogger(__name__)


class Stage(enum.Enum):
    """Where a session stands; the value is what people are told."""

    IDLE = "ended"
    READY = "preparing"
    RUNNING = "running"
    QUEUED = "waiting to merge"
    VERIFYING = "verifying"


@attrs.define(eq=False)
class Session:
    """One session, as the host sees it. The actor alone writes to it; any thread may read.

    `silent`: its end is not to be reported, because the host is being closed.
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
class Sweep:
    """Settle what a killed process left of these attempts. Sent to actors that have no session."""

    records: tuple[Record, ...]


Message: TypeAlias = Open | Start | Stop | Exited | Turn | Sweep


class SessionActor(pykka.ThreadingActor):
    """Works through one session after another. `done` is called when it is free again, with the session it had."""

    use_daemon_thread = True

    def __init__(self, site: Site, done: Callable[[SessionActor, Session | None], None]) -> None:
        super().__init__()
        self._site, self._done = site, done
        self._session: Session | None = None
        self._attempt: Attempt | None = None
        self._turn: Callable[[], None] | None = None
        self._failure: Ending | None = None

    def on_receive(self, message: Message) -> None:
        """The door: an error ends the session, never the actor."""
        if isinstance(message, Sweep):
            self._sweep(message.records)
        elif isinstance(message, Open):
            self._session = message.session
            self._do(message, SessionActor._open)
        elif message.session is self._session:
            handler = HANDLERS.get((message.session.stage, type(message)))
            if handler is not None:
                self._do(message, handler)

    def _do(self, message: Open | Start | Stop | Exited | Turn, handler: Handler) -> None:
        try:
            handler(self, message.session, message)
        except Exception as error:  # noqa: BLE001 - the actor's door
            self._end_with_error(message.session, error)

    def _sweep(self, records: tuple[Record, ...]) -> None:
        for record in records:
            try:
                sweep(self._site, record)
            except Exception as error:  # noqa: BLE001 - the actor's door; what stays unsettled is met again later
                logger.warning("what is left of %s could not be settled: %s", record.session, error)
        self._done(self, None)

    def _open(self, session: Session, message: Message) -> None:
        try:
            self._attempt = Attempt.open(self._site, session.assignment)
        except AlreadyMergedError:
            self._end(session, attrs.evolve(MERGED, detail="an earlier attempt had merged"))
            return
        self._attempt.check_out()
        session.branch = self._attempt.record.branch
        self.actor_ref.tell(Start(session))  # by the inbox, so that a stop that came meanwhile is seen first

    def _start(self, session: Session, message: Message) -> None:
        recipe = session.assignment.recipe
        if not recipe.command:
            self._end(session, failed("the recipe has no command; give the slice one"))
        else:
            assert self._attempt is not None
            session.inbox.open(self._attempt.folder.path / "inbox")
            self._spawn(session, recipe.command, Stage.RUNNING, "command")

    def _spawn(self, session: Session, argv: tuple[str, ...], stage: Stage, what: str) -> None:
        """Starts a command of the recipe and goes on to `stage`; the session has ended if that can't be done."""
        assert self._attempt is not None
        child = self._attempt.child(argv)
        try:
            session.running = self._site.watcher.spawn(child, lambda exit_: self._tell(Exited(session, exit_)))
        except OSError as error:
            self._end(session, spawn_ending(error, argv[0], what))
            return
        session.stage = stage
        self._attempt.note_process(session.running.mark)

    def _tell(self, message: Message) -> None:
        try:
            self.actor_ref.tell(message)
        except pykka.ActorDeadError:
            logger.warning("nobody takes %s: the actors of this process were stopped", type(message).__name__)

    def _ask_to_stop(self, session: Session, message: Message) -> None:
        assert isinstance(message, Stop)
        grace_s = session.assignment.recipe.grace_s if message.grace_s is None else message.grace_s
        session.stopping = True
        if session.running is not None:
            session.running.stop(grace_s)

    def _stopped(self, session: Session, message: Message) -> None:
        """It was asked to stop where nothing of it runs."""
        self._end(session, STOPPED)

    def _agent_ended(self, session: Session, message: Message) -> None:
        assert isinstance(message, Exited)
        assert self._attempt is not None
        session.running = None
        session.inbox.close()
        self._mind_survivors(message.exit)
        recipe = session.assignment.recipe
        ending = self._failure or agent_ending(message.exit, recipe, self._attempt.folder.pull_request_url())
        if ending is None:
            self._attempt.finish_work()
            if session.stopping and recipe.verify:
                ending = STOPPED  # it was quicker than the signal; a verify would keep waiting who wants it gone
        if ending is not None:
            self._end(session, ending)
            return
        session.stage = Stage.QUEUED
        self._turn = lambda: self._tell(Turn(session))
        self._site.merges.join(self._turn)

    def _mind_survivors(self, exit_: Exit) -> None:
        """A worktree in which something still runs is not used again."""
        if exit_.survivors and self._attempt is not None:
            self._attempt.worktree.unsavable = f"processes that could not be ended: {exit_.survivors}"

    def _merge(self, session: Session, message: Message) -> None:
        assert self._attempt is not None
        outcome = self._attempt.merge_step()
        if isinstance(outcome, Ending):
            self._end(session, outcome)
            return
        verify = session.assignment.recipe.verify
        self._attempt.log_line(f"verify: {' '.join(verify)}")
        self._spawn(session, verify, Stage.VERIFYING, "verify command")

    def _verify_ended(self, session: Session, message: Message) -> None:
        assert isinstance(message, Exited)
        assert self._attempt is not None
        session.running = None
        self._mind_survivors(message.exit)
        ending = self._failure or verify_ending(message.exit, session.assignment.recipe)
        if ending is not None:
            self._end(session, ending)
            return
        self._attempt.verify_passed()
        session.stage = Stage.QUEUED
        self._merge(session, message)

    def _end_with_error(self, session: Session, error: Exception) -> None:
        """What the error means for the session. If even closing it fails, what it left is settled another time."""
        if not isinstance(error, (LocalHostError, OrphanError, OSError)):
            logger.error("session %s met a fault", session.assignment.assignment_id, exc_info=error)
        ending = ending_of(error, opened=self._attempt is not None)
        if self._attempt is not None and self._attempt.merged is not None:
            ending = self._attempt.merged
        if session.running is not None:
            self._failure = ending  # for when it has exited: until then its worktree is in use
            session.running.kill()
            return
        try:
            self._end(session, ending)
        except Exception as second:
            logger.exception("session %s could not be closed", session.assignment.assignment_id)
            self._abandon(session, second)

    def _end(self, session: Session, ending: Ending) -> None:
        """The session's last step: its work is made safe, its end reported, and the actor is free."""
        attempt, turns = self._attempt, session.inbox.turns
        if attempt is None:
            state = SessionState(
                session.assignment.assignment_id,
                ending.phase,
                branch=session.branch,
                error=ending.error,
                detail=ending.detail,
                checkpoint=checkpoint_of(ending, "", ""),
            )
        else:
            state = attempt.close(ending, turns)
        self._leave(session, state)

    def _abandon(self, session: Session, error: Exception) -> None:
        """Ends the session without touching what it left: the worktree's note says that it is to be settled."""
        ending = closed(f"what it left could not be made safe yet: {error}")
        if self._attempt is not None:
            self._site.pool.leave(self._attempt.worktree)
            ending = self._attempt.merged or ending
        state = SessionState(session.assignment.assignment_id, ending.phase, detail=ending.detail)
        self._leave(session, state)

    def _leave(self, session: Session, state: SessionState) -> None:
        if self._turn is not None:
            self._site.merges.leave(self._turn)
        session.inbox.close()
        session.stage = Stage.IDLE
        self._session = self._attempt = self._turn = self._failure = None
        self._done(self, session)
        if session.silent:
            return
        try:
            self._site.report(state)
        except Exception as error:  # noqa: BLE001 - whose scheduler has ended, its sessions are being ended too
            logger.warning("nobody took the report that %s is %s: %s", state.assignment_id, state.phase.value, error)


Handler: TypeAlias = Callable[[SessionActor, Session, Message], None]

HANDLERS: dict[tuple[Stage, type], Handler] = {
    (Stage.READY, Start): SessionActor._start,
    (Stage.READY, Stop): SessionActor._stopped,
    (Stage.RUNNING, Stop): SessionActor._ask_to_stop,
    (Stage.RUNNING, Exited): SessionActor._agent_ended,
    (Stage.QUEUED, Stop): SessionActor._stopped,
    (Stage.QUEUED, Turn): SessionActor._merge,
    (Stage.VERIFYING, Stop): SessionActor._ask_to_stop,
    (Stage.VERIFYING, Exited): SessionActor._verify_ended,
}


def ending_of(error: Exception, *, opened: bool) -> Ending:
    """What an error means for the session it ends."""
    match error:
        case SupersededError():
            return closed(str(error), resume=True)
        case StrayedError():
            return closed(str(error))
        case CheckoutInTheWayError():
            return closed(str(error), resume=True)
        case GitError() if opened and not IN_THE_WAY.search(error.said):
            return closed(str(error), resume=True)
        case _:
            return opening_ending(error)
