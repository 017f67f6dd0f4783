"""What the owner can be asked, and what it asks of the shell: values only, one closed union each."""

from __future__ import annotations

import attrs

from dispatch.intent import Intent
from dispatch.slice import Slice
from harness import Assignment, SessionState

# --- commands: each changes the graph or is refused, and is followed by a pass ------------------------------------


@attrs.frozen
class Enqueue:
    slices: tuple[Slice, ...]


@attrs.frozen
class MarkMerged:
    slice_id: str
    pull_request_url: str = ""


@attrs.frozen
class Cancel:
    slice_id: str


@attrs.frozen
class Retry:
    slice_id: str


@attrs.frozen
class Hold:
    slice_id: str
    reason: str = ""


@attrs.frozen
class Release:
    slice_id: str
    reason: str = ""


@attrs.frozen
class Pause:
    reason: str = ""


@attrs.frozen
class Resume:
    reason: str = ""


@attrs.frozen
class DeclareIntent:
    """`known`: refuse an id that isn't registered (that is `reprioritize`)."""

    intent: Intent
    known: bool = False


@attrs.frozen
class Proof:
    """What checks outside the graph found out about an intent: `reference` names the proof that nothing is to do."""

    reference: str = ""
    findings: tuple[str, ...] = ()


@attrs.frozen
class Route:
    """`proof` is None while no check has been made; the reply then may be `UNPROVEN`."""

    intent: Intent
    message: str = ""
    new_slice: Slice | None = None
    proof: Proof | None = None


@attrs.frozen
class Observe:
    """A session's report."""

    report: SessionState


@attrs.frozen
class Remeasure:
    """The host was measured anew: run a pass."""


@attrs.frozen
class RequestFailed:
    """A session could not be asked to stop; recorded with its slice."""

    assignment_id: str
    problem: str


# --- questions: answered from the graph, changing nothing ---------------------------------------------------------


@attrs.frozen
class Get:
    slice_id: str


@attrs.frozen
class ListSlices:
    pass


@attrs.frozen
class Frontier:
    pass


@attrs.frozen
class Explain:
    slice_id: str


@attrs.frozen
class TakeSnapshot:
    pass


@attrs.frozen
class Check:
    """Assert that all derived state agrees with a recomputation."""


Command = (
    Enqueue
    | MarkMerged
    | Cancel
    | Retry
    | Hold
    | Release
    | Pause
    | Resume
    | DeclareIntent
    | Route
    | Observe
    | Remeasure
    | RequestFailed
)
Question = Get | ListSlices | Frontier | Explain | TakeSnapshot | Check

# --- effects: what the shell must do once the change is durable ---------------------------------------------------


@attrs.frozen
class Launch:
    """Submit the assignment to the host; if that fails, the slice fails."""

    assignment: Assignment

    @property
    def assignment_id(self) -> str:
        return self.assignment.assignment_id


@attrs.frozen
class AskToStop:
    """Ask the session to stop at its next safepoint."""

    assignment_id: str


@attrs.frozen
class Send:
    """Send a message into the session; the reply to the command that caused it waits for the turn's id."""

    assignment_id: str
    message: str


Effect = Launch | AskToStop | Send
