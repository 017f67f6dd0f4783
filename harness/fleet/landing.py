"""What becomes of a report: an assignment for the host of this machine, which ends as the attempt on the worker did.

So there is one place where work is merged, verified, kept and remembered, wherever the agent ran. Pure.
"""

from __future__ import annotations

import attrs

from harness.fleet.agent_turn import AgentReport
from harness.fleet.sent import bare_end
from harness.fleet.work_item import WorkItem, WorkItemState
from harness.local.outcome import STOPPED, TRY_LATER
from harness.session import Assignment, SessionPhase, SessionState

#: $1 the commit, $2 the exit status, $3 the note, $4 a pull request's address, $5 what the log says.
SCRIPT = """
printf '%s\\n' "$5"
[ -z "$1" ] || git reset --quiet --hard "$1" || exit 70
[ -z "$3" ] || printf '%s\\n' "$3" >"$DISPATCH_CHECKPOINT"
[ -z "$4" ] || printf '%s\\n' "$4" >"$DISPATCH_DIR/pull_request"
exit "$2"
"""
EXITED = "exit "  #: how the detail of a session begins whose command ended so


def landing(assignment: Assignment, report: AgentReport) -> Assignment:
    """The assignment that brings the reported work here, and ends in the same way."""
    words = (report.commit, str(_status(report)), report.note, report.pull_request_url)
    said = f"{report.phase.value} on the fleet{': ' if report.detail else ''}{report.detail}"
    command = ("sh", "-c", SCRIPT, "sh", *words, said)
    return attrs.evolve(assignment, recipe=attrs.evolve(assignment.recipe, command=command, prompt=""))


def _status(report: AgentReport) -> int:
    if report.phase is SessionPhase.MERGED or report.pull_request_url:
        return 0
    return TRY_LATER if report.resume or report.phase is SessionPhase.CANCELED else 1


def landed(state: SessionState, report: AgentReport, item: WorkItem) -> SessionState:
    """How the attempt ended as a whole: `state` is the end of its landing, which has the words of a script where the
    worker has the agent's. What failed has failed, though its work is kept now."""
    state = attrs.evolve(state, turns=report.turns or state.turns)
    if item.state not in (WorkItemState.SUCCEEDED, WorkItemState.CANCELLED):
        phase, error = bare_end(item)
        return attrs.evolve(state, phase=phase, error=error, detail="")
    if state.phase is not SessionPhase.CLOSED or report.phase is SessionPhase.MERGED:
        return state
    if not state.detail.startswith(EXITED):
        return state
    stopped = report.phase is SessionPhase.CANCELED
    detail = report.detail or (STOPPED.detail if stopped else state.detail)
    return attrs.evolve(
        state,
        phase=SessionPhase.CANCELED if stopped else SessionPhase.CLOSED,
        detail=detail,
        checkpoint=state.checkpoint.replace(state.detail, detail, 1),
    )
