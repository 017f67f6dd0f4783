"""`LocalSessionHost`: sessions as processes of this machine, in worktrees of a repository of this machine."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

import anyio.to_thread
import attrs
import pykka

from harness.local.binding import Bindings, bound_elsewhere
from harness.local.errors import LocalHostError, NoSessionError
from harness.local.merge import catch_up, recover
from harness.local.message import Message, Open, Session, Stage, Stop, Sweep
from harness.local.process import ProcessWatcher
from harness.local.record import Records
from harness.local.repository import Repository
from harness.local.session import SessionActor
from harness.local.settle import drop_kept_on_main
from harness.local.site import MergeQueue, Site, check, check_name
from harness.local.worktree import Pool
from harness.session import Assignment, HostClosedError, SessionPhase, SessionState

logger = logging.getLogger(__name__)

MERGED_RECORD_LIFE_S = 30 * 86400.0  #: far longer than any graph takes to hear that a slice of its has merged
SWEEPERS = 4  #: at once; each may have to wait for processes to heed SIGTERM


@attrs.frozen
class RunningSession:
    """A session under way, for a view of them. `stage` is in words, `started_at` in Unix seconds, `pid` 0 if none runs.

    `turn` counts from 1, and is 0 until the agent has been started.
    """

    assignment_id: str
    slice_id: str
    title: str
    branch: str
    stage: str
    turn: int
    started_at: float
    last_line: str
    log: Path
    pid: int


class LocalSessionHost:
    """Runs each session as a process group of this machine, in a git worktree of its own.

    `repository` is any folder in a git repository. `main` is the branch that finished work is merged into: by default
    the one checked out there. Logs go to `state_dir`, by default `<git common dir>/dispatch`; everything else of the
    host's always lies in the latter. Raises `RepositoryError`, one line that says the way out, for a repository that
    can't be worked with as it is.

    Every method may be called from any thread, the coroutines from any event loop.
    """

    def __init__(self, repository: Path | str, *, main: str | None = None, state_dir: Path | str | None = None) -> None:
        self._repository = Repository.open(Path(repository), main)
        recover(self._repository)
        catch_up(self._repository)
        self._repository.check_checkouts()
        self._main_named = main is not None
        self._report: Callable[[SessionState], None] | None = None
        self._watcher = ProcessWatcher()
        self._site = Site(
            self._repository,
            Pool(self._repository),
            Records(self._repository.root),
            Bindings(self._repository.root),
            self._watcher,
            MergeQueue(),
            Path(state_dir or self._repository.root).resolve(),
            self._pass_on,
        )
        self._mutex = threading.Lock()
        self._changed = threading.Condition(self._mutex)
        self._sessions: dict[str, tuple[Session, pykka.ActorRef[SessionActor]]] = {}
        self._waiting: dict[tuple[str, str], Session] = {}
        self._idle: list[pykka.ActorRef[SessionActor]] = []
        self._actors = 0
        self._started = self._closed = False
        self._sweeps = 0
        self._site.records.drop_unfinished()
        self._site.bindings.drop_unfinished()
        drop_kept_on_main(self._site)
        self._site.records.prune(time.time() - MERGED_RECORD_LIFE_S)

    @property
    def main(self) -> str:
        """The branch that finished work is merged into."""
        return self._repository.main

    def bind(self, graph_id: str) -> None:
        """Notes that the graph merges into this host's main, for good: on the disk when it returns. Again, no change.

        Raises `RepositoryError` if it was bound to another branch here, and `InvalidAssignmentError`. A graph that is
        bound here has its sessions refused by any host with another main; one that never was may be run by each.
        """
        check_name("graph_id", graph_id)
        bound = self._site.bindings.bind(graph_id, self.main)
        if bound != self.main:
            raise bound_elsewhere(graph_id, bound, self.main, named=self._main_named)

    def bound(self, graph_id: str) -> str | None:
        """The branch that the graph was bound to in this repository; None if it was never bound here.

        Raises `RepositoryError` if that can't be told, and `InvalidAssignmentError`.
        """
        check_name("graph_id", graph_id)
        return self._site.bindings.read(graph_id)

    def is_merged(self, branch_or_commit: str) -> bool:
        """Whether main has that commit; false if there is no such branch or commit.

        True of a branch without a commit of its own, too; false of one whose changes reached main as other commits (a
        squash, a rebase), and of one that is gone. Takes a few milliseconds; blocks.
        """
        return self._repository.on_main(branch_or_commit)

    def connect(self, report: Callable[[SessionState], None]) -> None:
        """Where states go from now on. `report` is called from any thread and must not block.

        What killed processes left here is ended and settled from now on, whether or not anything is submitted.
        """
        self._report = report
        with self._mutex:
            if not self._closed and self._site.records.unsettled():
                self._start()

    def fence(self, owned: Callable[[], bool]) -> None:
        """A claim on the graph whose sessions are submitted from now on: `owned` says if it is certainly still held.

        `owned` is called often, from any thread. Until it answers true, no session is begun and main is not moved; if
        it takes too long, a session is closed with its work kept. Called again, the graph is another claim's: what
        other processes run of it is ended anew. Without a fence every graph is taken to be this host's own.
        """
        self._site.claim.fence(owned)

    async def submit(self, assignment: Assignment) -> None:
        """Hands the attempt to an actor. Again, it does nothing while the session lives.

        No session begins before all that killed processes left here has been ended: until then it could run beside one
        that its scheduler believes gone. So has, at the first one of a graph, what living processes run of it: whoever
        submits owns the graph. A session of an earlier attempt at the same slice is asked to stop, and this
        one begins when it has. Raises `InvalidAssignmentError`, and `HostClosedError` after `close`.
        """
        check(assignment)
        with self._mutex:
            if self._closed:
                raise HostClosedError("the host was closed; open another LocalSessionHost")
            self._start()
            log = self.log_path(assignment.graph_id, assignment.slice_id, assignment.attempt)
            self._accept(Session.of(assignment, log))

    async def send(self, assignment_id: str, message: str) -> str:
        """Puts the message into the agent's inbox, on the disk; answers the id of the turn that takes it.

        Raises `NoSessionError` unless its agent runs.
        """
        with self._mutex:
            entry = self._sessions.get(assignment_id)
        if entry is None:
            raise NoSessionError(assignment_id)
        turns = await anyio.to_thread.run_sync(entry[0].inbox.append, message)
        self._pass_on(SessionState(assignment_id, SessionPhase.RUNNING, turns, entry[0].branch))
        return f"turn-{turns}"

    async def cancel(self, assignment_id: str) -> None:
        """Asks the session to stop at its next safepoint; a report follows. Without such a session, does nothing."""
        with self._mutex:
            waiting = next((s for s in self._waiting.values() if s.assignment.assignment_id == assignment_id), None)
            if waiting is not None:
                waiting.stopping = True
            elif (entry := self._sessions.get(assignment_id)) is not None:
                self._tell(entry[1], Stop(entry[0]))

    def running(self) -> tuple[RunningSession, ...]:
        """The sessions under way, in the order of their submission."""
        with self._mutex:
            sessions = [session for session, _ in self._sessions.values()]
        return tuple(map(shown, sessions))

    def groups(self) -> tuple[int, ...]:
        """The process groups of the sessions under way: what they use is no foreign load."""
        return tuple(session.pid for session in self.running() if session.pid)

    def log_path(self, graph_id: str, slice_id: str, attempt: int) -> Path:
        """Where the output of that attempt is, if there was one."""
        return self._site.log_of(graph_id, slice_id, attempt)

    def close(self, timeout: float = 30.0) -> bool:
        """Stops every session at a safepoint, keeping its work; whether all had ended within `timeout` seconds.

        What still runs then is killed. Ends by closing are not reported: the slices are still under way, and
        the next host goes on from the kept work. Again, it does nothing.
        """
        with self._mutex:
            self._closed = True
            self._waiting.clear()
            for session, actor in self._sessions.values():
                session.silent = True
                self._tell(actor, Stop(session))
            stopped = self._changed.wait_for(lambda: not self._actors_busy(), timeout)
            for session, actor in self._sessions.values():
                self._tell(actor, Stop(session, grace_s=0.0))
            ended = self._changed.wait_for(lambda: not self._actors_busy(), 10.0)
            idle, self._idle = self._idle, []
        for actor in idle:
            actor.stop(block=False)
        if self._started:
            self._watcher.stop(kill=True)
        self._site.pool.close()
        try:
            catch_up(self._repository)
        except (LocalHostError, OSError) as error:
            logger.warning("checkouts of %s may be behind: %s", self.main, error)
        return stopped and ended

    def _start(self) -> None:
        """On first use: the watcher, and the settling of what killed processes left."""
        if self._started:
            return
        self._started = True
        self._watcher.start()
        left = self._site.records.unsettled()
        for records in filter(None, (left[start::SWEEPERS] for start in range(SWEEPERS))):
            self._sweeps += 1
            self._tell(self._free_actor(), Sweep(tuple(records)))

    def _accept(self, session: Session) -> None:
        """Opens the session, now or when what must end before it has ended."""
        assignment = session.assignment
        if assignment.assignment_id in self._sessions:
            return
        if self._sweeps:
            self._waiting.setdefault(slice_of(session), session)
            return
        for other, actor in self._sessions.values():
            if slice_of(other) == slice_of(session):
                if other.assignment.attempt < assignment.attempt:
                    self._waiting[slice_of(session)] = session
                    self._tell(actor, Stop(other))
                return
        actor = self._free_actor()
        self._sessions[assignment.assignment_id] = session, actor
        self._tell(actor, Open(session))
        if session.stopping:
            self._tell(actor, Stop(session))

    def _free_actor(self) -> pykka.ActorRef[SessionActor]:
        while self._idle:
            actor = self._idle.pop()
            if actor.is_alive():
                self._actors += 1
                return actor
        self._actors += 1
        return SessionActor.start(self._site, self._ended)

    def _ended(self, actor: SessionActor, session: Session | None) -> None:
        """An actor is free again; called by it."""
        with self._mutex:
            self._actors -= 1
            self._idle.append(actor.actor_ref)
            if session is not None:
                del self._sessions[session.assignment.assignment_id]
                following = self._waiting.pop(slice_of(session), None)
                if following is not None:
                    self._accept(following)
            else:
                self._swept()
            self._changed.notify_all()

    def _swept(self) -> None:
        """One sweeper is through; after the last one the sessions that were held back begin."""
        self._sweeps -= 1
        if not self._sweeps:
            waiting, self._waiting = self._waiting, {}
            for session in waiting.values():
                self._accept(session)

    def _actors_busy(self) -> bool:
        return self._actors > 0

    def _tell(self, actor: pykka.ActorRef[SessionActor], message: Message) -> None:
        actor.tell(message)

    def _pass_on(self, state: SessionState) -> None:
        if self._report is not None:
            self._report(state)


def slice_of(session: Session) -> tuple[str, str]:
    return session.assignment.graph_id, session.assignment.slice_id


def shown(session: Session) -> RunningSession:
    running, assignment = session.running, session.assignment
    stage, waits = session.stage, session.waits  # read once: another thread writes them
    words = waits if waits and stage is Stage.WAITING else stage.value
    stopping = session.stopping and stage is not Stage.IDLE
    return RunningSession(
        assignment.assignment_id,
        assignment.slice_id,
        assignment.title or assignment.slice_id,
        session.branch,
        "stopping" if stopping else words,
        session.inbox.turns,
        session.started_at,
        running.last_line if running is not None else "",
        session.log,
        running.pid if running is not None else 0,
    )
