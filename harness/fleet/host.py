"""`FleetSessionHost`: sessions as turns of a fleet, whose work the host of this machine merges.

An attempt is a work item. What a worker reports of it is *landed*: the local host takes the reported commit through its
merge queue, verify and keep refs as if its own agent had made it (`landing`). Whether a turn runs is for the authority
to say, so a scheduler that restarts asks it, and goes on from there (`adopt`); so does the thread here that follows the
work items. Its look-out is a hint, and a slow look makes up for what it misses.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import anyio
import anyio.to_thread
import attrs

from harness.fleet.agent_turn import (
    KIND,
    AgentReport,
    decode_assignment,
    decode_report,
    encode_assignment,
    item_id,
    work_branch,
)
from harness.fleet.chores import Chore, Chores
from harness.fleet.commands import Cancel
from harness.fleet.errors import FleetError, FleetUnavailableError, InvalidTurnError, QueueFullError, WrongStateError
from harness.fleet.follower import Follower
from harness.fleet.landing import landed, landing
from harness.fleet.ports import Authority
from harness.fleet.queue import TurnQueue
from harness.fleet.remote import Remote
from harness.fleet.sent import SentSession, Stage, bare_end
from harness.fleet.work_item import ENDED, Submission, WorkItem, WorkItemState
from harness.local import LocalSessionHost, RunningSession
from harness.local.errors import (
    InvalidAssignmentError,
    LocalHostError,
    NoSessionError,
    NotOwnedError,
)
from harness.local.outcome import LINE_LIMIT, STOPPED
from harness.local.repository import Repository
from harness.local.session import CLAIM_LOOK_S, CLAIM_WAIT_S
from harness.local.site import always, check
from harness.session import Assignment, HostClosedError, SessionPhase, SessionState
from harness.text import sanitize

logger = logging.getLogger(__name__)

AGAIN_S = 2.0  #: before the authority, the queue or the remote is tried again when it was out of reach, or full
REMOTE_LIMIT_S = 600.0  #: for a remote that is out of reach
CHORES = 8  #: at once: each talks to the remote, or to the authority


class FleetSessionHost:
    """Runs each session as a turn of kind "agent", on whatever worker takes it; merges into main here.

    `local` merges, in the repository that `folder` is in. `remote` is what git knows the repository by through which
    commits pass, an address or a name; workers have it as `AGENT_DISPATCH_REMOTE`. `queue` and `authority` stay the
    caller's to close, after this.

    A restarted scheduler finds its turns again if `bind` has told which graph is meant before `adopt` is called. To
    close the host ends no turn: they go on, and wait to be adopted.
    """

    def __init__(
        self, local: LocalSessionHost, folder: Path | str, remote: str, queue: TurnQueue, authority: Authority
    ) -> None:
        self._local, self._queue, self._authority = local, queue, authority
        self._remote = Remote(Repository.open(Path(folder), local.main), remote)
        self._report: Callable[[SessionState], None] | None = None
        self._owned: Callable[[], bool] = always
        self._graph_id = ""
        self._mutex = threading.Lock()
        self._sessions: dict[str, SentSession] = {}
        self._chores = Chores("fleet-chore", CHORES)
        self._closing = threading.Event()
        self._follower = Follower(authority.watch, self._look)

    # -- what the local host does --------------------------------------------------------------------------------------

    @property
    def main(self) -> str:
        """The branch that finished work is merged into."""
        return self._local.main

    def bind(self, graph_id: str) -> None:
        """As `LocalSessionHost.bind`; and turns of this graph are the ones to `adopt`."""
        self._local.bind(graph_id)
        self._graph_id = graph_id

    def bound(self, graph_id: str) -> str | None:
        """As `LocalSessionHost.bound`."""
        return self._local.bound(graph_id)

    def is_merged(self, branch_or_commit: str) -> bool:
        """As `LocalSessionHost.is_merged`."""
        return self._local.is_merged(branch_or_commit)

    def log_path(self, graph_id: str, slice_id: str, attempt: int) -> Path:
        """Where the log of an attempt's landing is; what its agent said is in its worker's clone."""
        return self._local.log_path(graph_id, slice_id, attempt)

    # -- the port ------------------------------------------------------------------------------------------------------

    def connect(self, report: Callable[[SessionState], None]) -> None:
        """Where states go from now on. `report` is called from any thread and must not block."""
        self._report = report
        self._local.connect(self._local_says)
        self._chores.start()
        self._follower.start()

    def fence(self, owned: Callable[[], bool]) -> None:
        """As `LocalSessionHost.fence`: until `owned` answers true no turn is submitted, and main is not moved."""
        self._owned = owned
        self._local.fence(owned)

    async def submit(self, assignment: Assignment) -> None:
        """Takes the attempt on. Again, it does nothing while the session lives.

        It is submitted to the fleet as soon as authority, queue and remote can be reached. Turns of earlier attempts at
        the slice are cancelled, and no worker begins with this one before they have ended. Raises
        `InvalidAssignmentError`, and `HostClosedError` after `close`.
        """
        check(assignment)
        with self._mutex:
            if self._closing.is_set():
                raise HostClosedError("the host was closed; open another FleetSessionHost")
            if assignment.assignment_id in self._sessions:
                return
            session = self._sessions[assignment.assignment_id] = SentSession(assignment)
        self._do(session, lambda: self._send(session))

    async def send(self, assignment_id: str, message: str) -> str:
        """Leaves the message with the authority, for whoever runs the turn; answers the id of the turn that takes it.

        Raises `NoSessionError` unless its turn is out there.
        """
        with self._mutex:
            session = self._sessions.get(assignment_id)
        if session is None or session.stage is not Stage.OUT:
            raise NoSessionError(assignment_id)
        number = await anyio.to_thread.run_sync(self._authority.say, session.item_id, message)
        session.turns = number + 1  # the task is the first
        self._tell(session, SessionPhase.RUNNING)
        return f"turn-{session.turns}"

    async def cancel(self, assignment_id: str) -> None:
        """Asks the session to stop at its next safepoint; a report follows. Without such a session, does nothing."""
        with self._mutex:
            session = self._sessions.get(assignment_id)
            if session is None:
                return
            session.stopping = True
            stage = session.stage
        if stage is Stage.OUT:
            self._do(session, lambda: self._send(session))
        elif stage is Stage.LANDING:
            await self._local.cancel(assignment_id)

    async def adopt(self, assignment_ids: Iterable[str]) -> Iterable[str]:
        """Those with a work item, which is followed, or landed, from now on. Without `bind`, none."""
        return await anyio.to_thread.run_sync(self._adopt, tuple(assignment_ids))

    def running(self) -> tuple[RunningSession, ...]:
        """The sessions under way, in the order of their submission."""
        here = {session.assignment_id: session for session in self._local.running()}
        with self._mutex:
            sessions = list(self._sessions.values())
        return tuple(here.get(session.assignment.assignment_id) or self._shown(session) for session in sessions)

    def close(self, timeout: float = 30.0) -> bool:
        """Lands nothing more, and leaves what is out there alone; whether all was at rest within `timeout` seconds.

        What was landing goes on when the sessions are adopted. Again, it does nothing.
        """
        begun_at = time.monotonic()
        with self._mutex:
            self._closing.set()
        self._follower.close()
        at_rest = self._chores.close(timeout)
        closed = self._local.close(max(0.0, timeout - (time.monotonic() - begun_at)))
        return at_rest and closed

    # -- on the way out ------------------------------------------------------------------------------------------------

    def _send(self, session: SentSession) -> float | None:
        """Submits it, or asks it to stop; in how many seconds to try again, if something is out of reach."""
        if session.stage is Stage.SENDING:
            if session.stopping:
                self._end(session, SessionPhase.CANCELED, STOPPED.detail)
                return None
            if not self._owned():
                return self._wait_for_claim(session)
        try:
            if session.stage is Stage.SENDING:
                self._submit(session)
            if session.stopping:
                self._cancel(session)
        except (FleetUnavailableError, QueueFullError, LocalHostError, OSError) as problem:
            return self._wait(session, problem)
        except FleetError as problem:
            self._end(session, SessionPhase.FAILED, f"can't be submitted to the fleet: {problem}")
        return None

    def _wait_for_claim(self, session: SentSession) -> float | None:
        if time.monotonic() - session.since <= CLAIM_WAIT_S:
            return CLAIM_LOOK_S
        self._end(session, SessionPhase.CLOSED, str(NotOwnedError()))
        return None

    def _submit(self, session: SentSession) -> None:
        assignment = session.assignment
        graph_id, before = assignment.graph_id, f"{assignment.slice_id}@{assignment.attempt - 1}"
        self._authority.perform([Cancel(item_id(graph_id, before), graph_id, "a later attempt takes its place")])
        self._remote.publish_main(graph_id)
        self._remote.publish_kept(assignment)
        payload_ref = self._authority.keep(encode_assignment(assignment))
        submission = Submission(session.item_id, graph_id, assignment.slice_id, KIND, payload_ref)
        item = self._queue.submit(submission)
        with self._mutex:
            session.stage = Stage.OUT
        self._note(session, self._authority.find([item.id]).get(item.id, item))  # it may have ended before it was OUT

    def _wait(self, session: SentSession, problem: Exception) -> float | None:
        """Authority and queue are waited for; a remote, or a repository, that is in the way for too long ends it."""
        words = sanitize(str(problem), LINE_LIMIT)
        if isinstance(problem, FleetError):
            session.since = time.monotonic()
        elif time.monotonic() - session.since > REMOTE_LIMIT_S:
            self._end(session, SessionPhase.FAILED, f"given up after {REMOTE_LIMIT_S / 60:.0f} minutes: {words}")
            return None
        if session.problem != words:
            session.problem = words
            self._tell(session, SessionPhase.RUNNING, f"waits: {words}")
        return AGAIN_S

    def _cancel(self, session: SentSession) -> None:
        cause = "its scheduler asked it to stop"
        (result,) = self._authority.perform([Cancel(session.item_id, session.assignment.graph_id, cause)])
        if isinstance(result, WorkItem):
            self._note(session, result)
        elif not isinstance(result, WrongStateError):  # else it has ended, which is about to be noticed
            logger.warning("%s can't be cancelled: %s", session.item_id, result)

    def _adopt(self, assignment_ids: tuple[str, ...]) -> tuple[str, ...]:
        items = self._authority.find([item_id(self._graph_id, name) for name in assignment_ids])
        adopted = []
        for name in assignment_ids:
            item = items.get(item_id(self._graph_id, name))
            assignment = self._assignment_of(item) if item is not None else None
            if item is None or assignment is None or assignment.assignment_id != name:
                continue
            session = SentSession(assignment, Stage.OUT, stopping=bool(item.cancel_cause))
            with self._mutex:
                self._sessions[name] = session
            self._note(session, item)
            adopted.append(name)
        return tuple(adopted)

    def _assignment_of(self, item: WorkItem) -> Assignment | None:
        raw = self._authority.contents(item.payload_ref)
        try:
            return decode_assignment(raw) if raw is not None else None
        except (InvalidTurnError, InvalidAssignmentError) as problem:
            logger.warning("the turn %s can't be gone on with: %s", item.id, problem)
            return None

    # -- following -----------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """At all that is out there."""
        self._queue.flush()
        with self._mutex:
            out = [session for session in self._sessions.values() if session.stage is Stage.OUT]
        if not out:
            return
        items = self._authority.find([session.item_id for session in out])
        for session in out:
            item = items.get(session.item_id)
            if item is not None:
                self._note(session, item)
            else:
                self._end(session, SessionPhase.FAILED, f"its work item {session.item_id!r} is gone")

    def _note(self, session: SentSession, item: WorkItem) -> None:
        """How its item stands. The first to see that it has ended sees to the landing."""
        with self._mutex:
            if session.stage is not Stage.OUT:
                return
            is_news = session.saw(item)
            if item.state in ENDED:
                session.stage, session.since = Stage.LANDING, time.monotonic()
        if item.state in ENDED:
            self._do(session, lambda: self._land(session, item))
        elif is_news:
            self._tell(session, SessionPhase.RUNNING)

    # -- landing -------------------------------------------------------------------------------------------------------

    def _land(self, session: SentSession, item: WorkItem) -> float | None:
        """What became of the item; in how many seconds to try again, if its work can't be fetched now."""
        try:
            report = self._report_of(session, item)
            if report is not None:
                self._remote.fetch(session.assignment, report)
            if report is None:
                self._end(session, *bare_end(item))
            elif not self._closing.is_set():
                self._begin_landing(session, report)
        except InvalidTurnError as problem:
            self._end(session, SessionPhase.FAILED, f"the report of its worker can't be used: {problem}")
        except (LocalHostError, OSError) as problem:
            return self._wait(session, problem)
        return None

    def _begin_landing(self, session: SentSession, report: AgentReport) -> None:
        session.report, session.problem = report, ""
        anyio.run(self._local.submit, landing(session.assignment, report))
        if session.stopping and report.phase is SessionPhase.MERGED:  # perhaps asked before there was a landing
            anyio.run(self._local.cancel, session.assignment.assignment_id)

    def _report_of(self, session: SentSession, item: WorkItem) -> AgentReport | None:
        """What its worker reported; None of a turn that ended without there being anything to land. Of one that did not
        succeed, the work is only to be kept."""
        branch = work_branch(session.assignment)
        if item.state is WorkItemState.SUCCEEDED:
            return decode_report(item.result, branch)
        if not item.checkpoint:
            return None
        return attrs.evolve(decode_report(item.checkpoint, branch), phase=SessionPhase.CANCELED)

    def _local_says(self, state: SessionState) -> None:
        """The local host reports on a landing."""
        with self._mutex:
            session = self._sessions.get(state.assignment_id)
        if session is None or session.report is None or session.item is None:
            return
        if state.phase is SessionPhase.RUNNING:
            self._tell(session, SessionPhase.RUNNING, state.detail)
            return
        commit = session.report.commit
        self._forget(session, landed(state, session.report, session.item))
        self._chores.do(lambda: self._tidy(session.assignment, commit))

    def _tidy(self, assignment: Assignment, commit: str) -> None:
        """The remote keeps no branch of work that is safe here. One that can't be removed is in nobody's way."""
        try:
            if not commit or self._remote.is_safe(assignment, commit):
                self._remote.drop(assignment)
        except (LocalHostError, OSError) as problem:
            logger.warning("%s is left on the remote: %s", work_branch(assignment), problem)

    def _do(self, session: SentSession, chore: Chore) -> None:
        """Soon, in a thread. An error that nobody has thought of ends the session, never the chores."""

        def guarded() -> float | None:
            try:
                return chore()
            except Exception as error:
                logger.exception("%s met a fault", session.item_id)
                self._end(session, SessionPhase.FAILED, f"met a fault: {error!r}")
                return None

        self._chores.do(guarded)

    # -- telling -------------------------------------------------------------------------------------------------------

    def _end(self, session: SentSession, phase: SessionPhase, words: str) -> None:
        """Without a landing."""
        assignment, line = session.assignment, sanitize(words, LINE_LIMIT)
        error, detail = (line, "") if phase is SessionPhase.FAILED else ("", line)
        self._forget(session, SessionState(assignment.assignment_id, phase, session.turns, "", "", error, detail))

    def _forget(self, session: SentSession, state: SessionState) -> None:
        with self._mutex:
            if self._sessions.get(state.assignment_id) is not session:
                return
            del self._sessions[state.assignment_id]
        self._pass_on(state)

    def _tell(self, session: SentSession, phase: SessionPhase, detail: str = "") -> None:
        name, branch = session.assignment.assignment_id, session.assignment.branch
        self._pass_on(SessionState(name, phase, session.turns, branch, detail=detail))

    def _pass_on(self, state: SessionState) -> None:
        try:
            if self._report is not None:
                self._report(state)
        except Exception as error:  # noqa: BLE001 - whose scheduler has ended, its sessions are adopted by the next one
            logger.warning("nobody took the report that %s is %s: %s", state.assignment_id, state.phase.value, error)

    def _shown(self, session: SentSession) -> RunningSession:
        assignment = session.assignment
        return session.shown(self.log_path(assignment.graph_id, assignment.slice_id, assignment.attempt))
