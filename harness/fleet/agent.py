"""The executor of kind "agent": one attempt at a slice, run in a worker's clone as a `LocalSessionHost` runs it.

The attempt is merged into a branch of the clone that nobody else uses; what is pushed is the work, and merging it into
main is for the graph's scheduler alone. Nothing reaches the remote but by `guard.last_effect`, which asks the authority
right before. How the attempt ended is left as its work item's checkpoint as soon as its work is pushed: a worker that
is lost after that leaves nothing to be done again, and one that is stopped tells the next one where to go on.
"""

from __future__ import annotations

import functools
import logging
import os
import threading
import time
from collections.abc import Callable
from typing import TypeVar

import anyio
import attrs

from harness.fleet.agent_turn import AgentReport, decode_assignment, decode_report, encode_report, work_branch
from harness.fleet.clone import REMOTE, Clone, NoMainError, Start
from harness.fleet.errors import (
    FleetUnavailableError,
    InvalidSettingError,
    InvalidTurnError,
    LeaseLostError,
    StopRequestedError,
)
from harness.fleet.executors import NotNowError, TryAgainError, TurnFailedError
from harness.fleet.lease import WorkItemLeaseGuard
from harness.fleet.privacy import Redactor
from harness.local import LocalSessionHost
from harness.local.errors import GitError, InvalidAssignmentError, LocalHostError, NoSessionError
from harness.local.outcome import note_in
from harness.local.record import Record, Records
from harness.session import Assignment, SessionPhase, SessionState

logger = logging.getLogger(__name__)
Answer = TypeVar("Answer")

LOOK_S = 0.2  #: between two looks whether the turn is to stop: at flags of this process
ASK_S = 1.0  #: between two looks at the authority, for messages and whether the turn is to stop
REACH_S = 1.0  #: before the authority or the remote is tried again when it was out of reach
PUSH_LIMIT_S = 120.0  #: for a remote that is out of reach; then another attempt pushes what is kept here
HIDDEN = (
    "STATE_DB_URI",
    "TASK_QUEUE_URI",
)  #: variables that may hold a password, and are none of an agent's
ELSEWHERE_S = 30.0  #: before a turn comes again that this worker is not set up for, or whose remote it can't reach


def run(payload: bytes, guard: WorkItemLeaseGuard) -> str:
    """The executor, in the clone that the environment names."""
    try:
        clone = Clone.of(os.environ)
    except InvalidSettingError as problem:
        raise NotNowError(f"a worker is not set up for it: {problem}", ELSEWHERE_S) from problem
    except LocalHostError as problem:
        raise NotNowError(_private(f"a worker's clone can't be used: {problem}"), ELSEWHERE_S) from problem
    return AgentExecutor(clone)(payload, guard)


class AgentExecutor:
    """Runs attempts in one clone. May be called from many threads."""

    def __init__(self, clone: Clone) -> None:
        self._clone = clone

    def __call__(self, payload: bytes, guard: WorkItemLeaseGuard) -> str:
        """The report of an attempt that has ended, as JSON."""
        try:
            assignment = decode_assignment(payload)
        except (InvalidTurnError, InvalidAssignmentError) as problem:
            raise TurnFailedError(f"its payload is no agent turn: {problem}") from problem
        return _Attempt(self._clone, assignment, guard).run()


class _Attempt:
    """One attempt, in the thread of its slot."""

    def __init__(self, clone: Clone, assignment: Assignment, guard: WorkItemLeaseGuard) -> None:
        self._clone, self._assignment, self._guard = clone, assignment, guard
        self._branch = work_branch(assignment)
        self._name = clone.own_name(assignment)
        self._records = Records(clone.folder / "dispatch")

    def run(self) -> str:
        before = self._before()
        if before is not None and before.phase is not SessionPhase.CANCELED:
            return self._guard.checkpoint  # its worker was lost when all but saying so was done
        start = self._begin()
        state, stop = self._attended(self._own_assignment(start, before))
        if state.phase is SessionPhase.FAILED:
            self._clone.forget(self._assignment, "")
            raise TurnFailedError(_private(state.error or state.detail))
        record = self._record_of(state)
        report = self._report(record, start)
        if report.commit:
            self._push(report.commit, start.begun)
        self._persistently(functools.partial(self._guard.leave, encode_report(report)))
        self._clone.forget(self._assignment, record.kept)
        if report.phase is not SessionPhase.CANCELED:
            return encode_report(report)
        raise stop or TryAgainError("its session was stopped by somebody else")

    def _before(self) -> AgentReport | None:
        """What an earlier attempt at the same work item left."""
        try:
            return decode_report(self._guard.checkpoint, self._branch) if self._guard.checkpoint else None
        except InvalidTurnError as problem:
            logger.warning("what an earlier attempt at %s left can't be used: %s", self._guard.item.id, problem)
            return None

    def _begin(self) -> Start:
        try:
            return self._clone.begin(self._assignment)
        except NoMainError as problem:
            raise NotNowError(
                f"a worker's {REMOTE} has no branch of this graph; name the repository that its scheduler pushes to",
                ELSEWHERE_S,
            ) from problem
        except GitError as problem:
            raise NotNowError(_private(f"a worker can't fetch from its remote: {problem}"), ELSEWHERE_S) from problem

    # -- the session ---------------------------------------------------------------------------------------------------

    def _own_assignment(self, start: Start, before: AgentReport | None) -> Assignment:
        """The assignment as the clone's host gets it: of a graph of its own, not verified, which comes after the merge
        into main, and without the way to the fleet's databases."""
        told = [self._assignment.task]
        if before is not None and before.note:
            told.append(f"An earlier attempt was stopped, and left this note:\n{before.note}")
        if start.conflict:
            ref = self._clone.work_ref(self._assignment)
            told.append(f"Earlier work and main conflict, so this begins from main; see: git diff {start.main}...{ref}")
        recipe = self._assignment.recipe
        recipe = attrs.evolve(recipe, verify=(), env=(*((name, "") for name in HIDDEN), *recipe.env))
        return attrs.evolve(self._assignment, graph_id=self._name, recipe=recipe, task="\n\n".join(told))

    def _attended(self, assignment: Assignment) -> tuple[SessionState, StopRequestedError | None]:
        """How the session ended, and whether the turn was to stop. Nothing of it runs any more then, however this is
        left."""
        try:
            host = LocalSessionHost(self._clone.folder, main=self._clone.own_branch(self._assignment))
        except LocalHostError as problem:
            raise NotNowError(_private(f"a worker's clone can't be used: {problem}"), ELSEWHERE_S) from problem
        session = _Session(host, assignment, self._guard)
        try:
            return session.attended(), session.stop
        finally:
            host.close(0.0)

    def _record_of(self, state: SessionState) -> Record:
        """What is known of it. If an earlier attempt here had finished when its worker was lost, it is that one's, and
        no agent was started again."""
        record = self._records.read(self._name, self._assignment.slice_id)
        if record is None or record.phase is None:
            raise TryAgainError(_private(f"its session could not be opened: {state.detail or state.error}"))
        return record

    # -- its end -------------------------------------------------------------------------------------------------------

    def _report(self, record: Record, start: Start) -> AgentReport:
        assert record.phase is not None
        if record.phase is SessionPhase.MERGED:
            commit = record.work
        else:
            commit = (self._clone.tip(record.kept) if record.kept else "") or start.commit
        return AgentReport(
            record.phase,
            "" if self._clone.contains(commit, start.main) else commit,
            self._branch,
            record.turns,
            _private(record.detail),
            note_in(record.checkpoint).replace(str(self._clone.folder), "…"),
            record.resume,
            record.pull_request_url,
        )

    def _push(self, commit: str, expected: str) -> None:
        """Raises `LeaseLostError` with nothing pushed. Who pushes late, its lease lost since it asked, expects what was
        there when it began, and is outdone by the holder."""
        give_up_at = time.monotonic() + PUSH_LIMIT_S
        push = functools.partial(self._clone.push, self._assignment, commit)
        while True:
            try:
                there = self._persistently(functools.partial(self._guard.last_effect, push, expected))
            except GitError as problem:
                if time.monotonic() >= give_up_at:
                    raise NotNowError(_private(f"its work can't be pushed: {problem}"), ELSEWHERE_S) from problem
                logger.warning("the work of %s can't be pushed: %s", self._guard.item.id, problem)
                time.sleep(REACH_S)
                continue
            if not there:
                return
            expected = there

    def _persistently(self, call: Callable[[], Answer]) -> Answer:
        """Its answer, however long the authority is out of reach, unless the lease is lost meanwhile."""
        while True:
            try:
                return call()
            except FleetUnavailableError as problem:
                logger.warning("%s", problem)
                if self._guard.is_lost:
                    raise LeaseLostError(self._guard.item.id, self._guard.lease.epoch) from problem
                time.sleep(REACH_S)


class _Session:
    """A session under way in the clone, and what is sent to it from outside."""

    def __init__(self, host: LocalSessionHost, assignment: Assignment, guard: WorkItemLeaseGuard) -> None:
        self._host, self._assignment, self._guard = host, assignment, guard
        self._ended = threading.Event()
        self._end: SessionState | None = None
        self._messages: list[str] = []
        self.stop: StopRequestedError | None = None

    def attended(self) -> SessionState:
        """Its end. Raises `LeaseLostError` as soon as that is known; the session may run then."""
        self._host.connect(self._heard)
        anyio.run(self._host.submit, self._assignment)
        ask_at = 0.0
        while not self._ended.wait(LOOK_S):
            try:
                self._guard.safepoint()
            except StopRequestedError as asked:
                self._ask_to_stop(asked)
            if time.monotonic() >= ask_at:
                self._ask()
                ask_at = time.monotonic() + ASK_S
        assert self._end is not None
        return self._end

    def _heard(self, state: SessionState) -> None:
        if state.phase is not SessionPhase.RUNNING:
            self._end = state
            self._ended.set()

    def _ask_to_stop(self, asked: StopRequestedError) -> None:
        if self.stop is None:
            anyio.run(self._host.cancel, self._assignment.assignment_id)
        self.stop = asked

    def _ask(self) -> None:
        """Renewals are too far apart for who waits to see a turn stop. Messages go on to the agent once it can take
        them."""
        try:
            self._guard.look()
            self._messages += self._guard.messages()
            while self._messages:
                anyio.run(self._host.send, self._assignment.assignment_id, self._messages[0])
                del self._messages[0]
        except NoSessionError:
            return  # it has not begun yet, or has just ended
        except FleetUnavailableError as problem:
            logger.warning("no word of the turn for now: %s", problem)


def _private(text: str) -> str:
    """Without the names of this machine, its user and its folders: what is reported can be read anywhere."""
    return Redactor.of(os.environ).redacted(text)
