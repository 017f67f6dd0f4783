"""A session whose agent runs on a worker, as its scheduler's host knows it."""

from __future__ import annotations

import enum
import time
from pathlib import Path

import attrs

from harness.fleet.agent_turn import AgentReport, item_id
from harness.fleet.work_item import HELD, WorkItem, WorkItemState
from harness.local import RunningSession
from harness.session import Assignment, SessionPhase


class Stage(enum.Enum):
    """Where it stands; the value is what people are told."""

    SENDING = "on its way to the fleet"
    OUT = "waits for a worker"
    LANDING = "landing"


@attrs.define(eq=False)
class SentSession:
    """Its host alone writes to it, the stage under a lock; any thread may read.

    `since`: when the stage began, by the monotonic clock. `item` is its work item as it was last seen, `report` what is
    being landed. `problem` is what it waits for in its stage, in words.
    """

    assignment: Assignment
    stage: Stage = Stage.SENDING
    started_at: float = attrs.field(factory=time.time)
    since: float = attrs.field(factory=time.monotonic)
    item: WorkItem | None = None
    report: AgentReport | None = None
    stopping: bool = False
    turns: int = 0
    problem: str = ""

    @property
    def item_id(self) -> str:
        return item_id(self.assignment.graph_id, self.assignment.assignment_id)

    def saw(self, item: WorkItem) -> bool:
        """Notes how its item stands; whether that is news to its scheduler: its agent has begun."""
        before, self.item, self.problem = self.item, item, ""
        began = item.state is WorkItemState.RUNNING and (before is None or before.state is not WorkItemState.RUNNING)
        if began:
            self.turns = max(self.turns, 1)
        return began

    def shown(self, log: Path) -> RunningSession:
        """For a view of them."""
        assignment = self.assignment
        return RunningSession(
            assignment.assignment_id,
            assignment.slice_id,
            assignment.title or assignment.slice_id,
            assignment.branch,
            self._words(),
            self.turns,
            self.started_at,
            "",
            log,
            0,
        )

    def _words(self) -> str:
        item = self.item  # read once: another thread writes it
        if self.problem:
            return f"waits: {self.problem}"
        if self.stage is not Stage.OUT or item is None:
            return self.stage.value
        if item.state in HELD:
            return "stopping" if self.stopping else "running on the fleet"
        return f"waits for a worker: {item.cause}" if item.cause else self.stage.value


def bare_end(item: WorkItem) -> tuple[SessionPhase, str]:
    """What the end of an item means by itself: the phase, and why."""
    match item.state:
        case WorkItemState.CANCELLED:
            return SessionPhase.CANCELED, item.cause
        case WorkItemState.DEAD_LETTER:
            return SessionPhase.FAILED, f"given up after {item.attempt} attempts on the fleet: {item.cause}"
        case _:
            return SessionPhase.FAILED, item.cause
