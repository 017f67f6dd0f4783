"""The session actor: drives one session at a time, from an assignment to its last report.

Everything that happens to a session comes as a message, and what follows is one line of `HANDLERS`. A message about a
session that has ended meanwhile, or one that its stage has no line for, changes nothing. Git runs in the actor's own
thread; agents are watched elsewhere, and their exits come back as messages.

    IDLE -Open-> READY -Start-> RUNNING -Exited-> QUEUED -Turn-> VERIFYING -Exited-> ... IDLE
                                                  QUEUED -Turn-> WAITING -LookAgain-> QUEUED ...
               READY -Open-> UNCLAIMED -AskOwner-> READY          QUEUED -Turn-> UNCLAIMED -AskOwner-> QUEUED ...
"""

from __future__ import annotations

import functools
import logging
import shlex
import time
from collections.abc import Callable
from typing import TypeAlias

import attrs
import pykka

from harness.local.attempt import IN_THE_WAY, AlreadyMergedError, Attempt, opening_ending
from harness.local.errors import (
    GitError,
    LocalHostError,
    NotOwnedError,
    RefusedCommitError,
    StrayedError,
    SupersededError,
)
from harness.local.merge import CheckoutInTheWayError
from harness.local.message import (
    AskOwner,
    Exited,
    LookAgain,
    Message,
    Open,
    Session,
    Stage,
    Start,
    Stop,
    Sweep,
    TryAgain,
    Turn,
)
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
    with_left_out,
)
from harness.local.passing import Passing, Tries, passing
from harness.local.process import Exit, OrphanError
from harness.local.record import Record
from harness.local.settle import sweep
from harness.local.site import Site
from harness.session import SessionPhase, SessionState

logger = logging.getLogger(__name__)

CLAIM_WAIT_S = 15.0  #: for a claim whose renewal is late; by then it has run out for everybody
CLAIM_LOOK_S = 0.1
LOOK_AGAIN_S = 1.0  #: the user's files tell nobody that they have changed


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
        self._waits_since: float | None = None
        self._step: Callable[[], None] | None = None
        self._stage_of_step = Stage.READY
        self._tries: Tries | None = None

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

    def _do(
        self, message: Open | Start | Stop | Exited | Turn | LookAgain | AskOwner | TryAgain, handler: Handler
    ) -> None:
        try:
            handler(self, message.session, message)
        except Exception as error:  # noqa: BLE001 - the actor's door
            again = self._step if isinstance(message, TryAgain) else None
            again = again or functools.partial(handler, self, message.session, message)
            if not self._wait_until_it_passes(message.session, error, again):
                self._end_with_error(message.session, error)
        else:
            if not isinstance(message, TryAgain):  # by which it may only have queued again
                self._tries = None

    def _sweep(self, records: tuple[Record, ...]) -> None:
        for record in records:
            try:
                sweep(self._site, record)
            except Exception as error:  # noqa: BLE001 - the actor's door; what stays unsettled is met again later
                logger.warning("what is left of %s could not be settled: %s", record.session, error)
        self._done(self, None)

    def _open(self, session: Session, message: Message) -> None:
        try:
            self._attempt = self._attempt or Attempt.open(self._site, session.assignment)
        except NotOwnedError:
            self._wait_for_claim(session, Open(session))
            return
        except AlreadyMergedError as error:
            ending = attrs.evolve(MERGED, detail="an earlier attempt had merged")
            self._end(session, attrs.evolve(ending, detail=with_left_out(ending, str(error))))
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
        self._attempt.check_taken()
        try:
            session.running = self._site.watcher.spawn(child, lambda exit_: self._tell(Exited(session, exit_)))
        except OSError as error:
            if self._passing(error) is not None:
                raise
            ending = spawn_ending(error, argv[0], what)
            self._attempt.log_line(ending.error or ending.detail)
            self._end(session, ending)
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
        session.stopping = True
        self._end(session, STOPPED)

    def _agent_ended(self, session: Session, message: Message) -> None:
        assert isinstance(message, Exited)
        assert self._attempt is not None
        session.running = None
        session.inbox.close()
        self._mind_survivors(message.exit)
        self._attempt.check_taken()  # else who took it over ended it
        recipe = session.assignment.recipe
        folder = self._attempt.folder
        url, review = folder.pull_request_url(), folder.asks_for_review()
        ending = self._failure or agent_ending(message.exit, recipe, url, review=review)
        if ending is None:
            self._attempt.finish_work()
            if session.stopping and recipe.verify:
                ending = STOPPED  # it was quicker than the signal; a verify would keep waiting who wants it gone
        if ending is not None:
            self._end(session, ending)
            return
        self._queue(session)

    def _queue(self, session: Session) -> None:
        session.stage = Stage.QUEUED
        self._turn = lambda: self._tell(Turn(session))
        self._site.merges.join(self._turn)

    def _give_turn_up(self) -> None:
        if self._turn is not None:
            self._site.merges.leave(self._turn)
            self._turn = None

    def _mind_survivors(self, exit_: Exit) -> None:
        """A worktree in which something still runs is not used again."""
        if exit_.survivors and self._attempt is not None:
            self._attempt.worktree.unsavable = f"processes that could not be ended: {exit_.survivors}"

    def _merge(self, session: Session, message: Message) -> None:
        assert self._attempt is not None
        try:
            outcome = self._attempt.merge_step()
        except CheckoutInTheWayError as error:
            self._wait_for_checkout(session, error)
            return
        except NotOwnedError:
            self._give_turn_up()
            self._wait_for_claim(session, Turn(session))
            return
        session.waits, self._waits_since = "", None
        if isinstance(outcome, Ending):
            self._end(session, outcome)
            return
        verify = session.assignment.recipe.verify
        self._attempt.log_line(f"verify: {shlex.join(verify)}")
        self._spawn(session, verify, Stage.VERIFYING, "verify command")

    def _wait_for_checkout(self, session: Session, error: CheckoutInTheWayError) -> None:
        """Lets others merge first, and looks again. Nobody but the user can end this, for as long as a quiet agent may
        take; an attempt that was given up would meet the same in the next one, its agent's work done twice."""
        self._give_turn_up()
        now = time.monotonic()
        if self._waits_since is None:
            self._waits_since = now
        limit_s = session.assignment.recipe.quiet_limit_s
        left_s = self._waits_since + limit_s - now if limit_s else LOOK_AGAIN_S
        if session.stopping or left_s <= 0:
            self._end(session, STOPPED if session.stopping else closed(str(error), resume=True))
            return
        session.stage = Stage.WAITING
        self._tell_what_it_waits_for(session, f"waits: {error.words}")
        self._site.watcher.later(min(LOOK_AGAIN_S, left_s), lambda: self._tell(LookAgain(session)))

    def _tell_what_it_waits_for(self, session: Session, words: str) -> None:
        if session.waits == words:
            return
        assert self._attempt is not None
        self._attempt.log_line(words)
        self._show_wait(session, words)

    def _show_wait(self, session: Session, words: str) -> None:
        session.waits = words
        self._report(
            SessionState(
                session.assignment.assignment_id,
                SessionPhase.RUNNING,
                session.inbox.turns,
                session.branch,
                detail=words,
            )
        )

    def _look_again(self, session: Session, message: Message) -> None:
        assert self._attempt is not None
        error = self._attempt.hindrance()
        if error is None:
            self._queue(session)
        else:
            self._wait_for_checkout(session, error)

    def _wait_for_claim(self, session: Session, then: Open | Turn, give_up_at: float | None = None) -> None:
        """Nothing is begun or merged for a graph that may be another's; a claim whose renewal is late comes back."""
        if give_up_at is None:
            give_up_at = time.monotonic() + CLAIM_WAIT_S
        session.stage = Stage.UNCLAIMED
        again = AskOwner(session, then, give_up_at)
        self._site.watcher.later(CLAIM_LOOK_S, lambda: self._tell(again))

    def _ask_owner(self, session: Session, message: Message) -> None:
        assert isinstance(message, AskOwner)
        if not self._site.claim.owned():
            if time.monotonic() >= message.give_up_at:
                self._end(session, closed(str(NotOwnedError()), resume=True))
            else:
                self._wait_for_claim(session, message.then, message.give_up_at)
        elif isinstance(message.then, Open):
            session.stage = Stage.READY
            self._open(session, message.then)
        else:
            self._queue(session)

    def _passing(self, error: Exception) -> Passing | None:
        return passing(error, self._site.repository.common)

    def _wait_until_it_passes(self, session: Session, error: Exception, again: Callable[[], None]) -> bool:
        """Whether the step is tried again later: the error passes, has not lasted too long, and nobody wants it gone.

        Nothing is written meanwhile, the log included: the disk may be full.
        """
        passes = self._passing(error)
        if passes is None or session.stopping or session.silent or session.running is not None:
            return False
        now = time.monotonic()
        tries = self._tries or Tries(now)
        pause_s = tries.pause_s(now, passes.limit_s)
        if pause_s <= 0:
            return False
        self._give_turn_up()
        self._tries = attrs.evolve(tries, count=tries.count + 1)
        self._stage_of_step = session.stage
        self._step = functools.partial(self._queue, session) if session.stage is Stage.QUEUED else again
        session.stage = Stage.WAITING
        if session.waits != passes.words:
            self._show_wait(session, passes.words)
        self._site.watcher.later(pause_s, lambda: self._tell(TryAgain(session)))
        return True

    def _try_again(self, session: Session, message: Message) -> None:
        assert self._step is not None
        session.stage = self._stage_of_step
        self._step()
        if session.stage is not Stage.WAITING:
            session.waits = ""

    def _verify_ended(self, session: Session, message: Message) -> None:
        assert isinstance(message, Exited)
        assert self._attempt is not None
        session.running = None
        self._mind_survivors(message.exit)
        self._attempt.check_taken()  # else who took it over ended it
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
            if self._wait_until_it_passes(session, second, lambda: self._end(session, ending)):
                return
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
        self._give_turn_up()
        session.inbox.close()
        session.stage = Stage.IDLE
        self._session = self._attempt = self._failure = self._waits_since = self._step = self._tries = None
        self._done(self, session)
        if not session.silent:
            self._report(state)

    def _report(self, state: SessionState) -> None:
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
    (Stage.WAITING, Stop): SessionActor._stopped,
    (Stage.WAITING, LookAgain): SessionActor._look_again,
    (Stage.WAITING, TryAgain): SessionActor._try_again,
    (Stage.UNCLAIMED, Stop): SessionActor._stopped,
    (Stage.UNCLAIMED, AskOwner): SessionActor._ask_owner,
    (Stage.VERIFYING, Stop): SessionActor._ask_to_stop,
    (Stage.VERIFYING, Exited): SessionActor._verify_ended,
}


def ending_of(error: Exception, *, opened: bool) -> Ending:
    """What an error means for the session it ends."""
    match error:
        case SupersededError():
            return closed(str(error), resume=True)
        case StrayedError() | RefusedCommitError():  # what was refused doesn't come to main by being resumed
            return closed(str(error))
        case CheckoutInTheWayError():
            return closed(str(error), resume=True)
        case GitError() if opened and not IN_THE_WAY.search(error.said):
            return closed(str(error), resume=True)
        case _:
            return opening_ending(error)
