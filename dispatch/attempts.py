"""An attempt's two ends: the task a session is given, and what the report that ends it means for its slice."""

from __future__ import annotations

import attrs

from dispatch.graph import SliceNode
from dispatch.slice import Slice, SliceState
from harness import SessionPhase, SessionState
from harness.text import storable

CUT_OFF = "The attempt before this one ended with its harness; what it had committed may be on its branch."
ENDED = "The attempt before this one ended without a merge; what it had committed may be on its branch."


def task(wanted: Slice, checkpoint: str) -> str:
    """The task in words: title, prompt, and where the previous attempt got to."""
    text = f"{wanted.title}\n\n{wanted.recipe.prompt}" if wanted.recipe.prompt else wanted.title
    return f"{text}\n\nFrom the previous attempt:\n{checkpoint}" if checkpoint else text


def outcome_of(node: SliceNode, phase: SessionPhase) -> tuple[SliceState, bool]:
    """Where a session's end takes its slice, and whether it counts as a close."""
    match phase:
        case SessionPhase.MERGED:
            return SliceState.MERGED, False
        case SessionPhase.FAILED:
            return SliceState.FAILED, False
        case _ if node.canceling:
            return SliceState.CANCELED, False
        case SessionPhase.CANCELED:
            return (SliceState.QUEUED if node.state is SliceState.PREEMPTED else SliceState.CANCELED), False
        case _ if node.pull_request_url:
            return SliceState.IN_REVIEW, False
        case _:
            return SliceState.QUEUED, node.state is SliceState.RUNNING


def clean(report: SessionState) -> SessionState:
    """The report with texts that every store can hold: agents' output gets into errors and checkpoints."""
    if not (report.error or report.detail or report.checkpoint or report.branch or report.pull_request_url):
        return report
    return attrs.evolve(
        report,
        error=storable(report.error),
        detail=storable(report.detail),
        checkpoint=storable(report.checkpoint),
        branch=storable(report.branch),
        pull_request_url=storable(report.pull_request_url),
    )
