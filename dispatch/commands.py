"""What the owner can be asked, and what it asks of the shell: values only, one closed union each."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

import attrs
from attrs.validators import instance_of, optional

from dispatch.errors import InvalidTextError
from dispatch.intent import Intent
from dispatch.slice import Slice
from dispatch.text import check_text
from harness import Assignment, SessionPhase, SessionState

TURNS_LIMIT = 2**31


def _check_text(_: object, attribute: attrs.Attribute[str], value: object) -> None:
    if not isinstance(value, str):
        raise TypeError(f"{attribute.name} must be text, not {type(value).__name__}")
    try:
        check_text(value)
    except ValueError as problem:
        raise InvalidTextError(attribute.name, str(problem)) from None


def _text() -> Any:
    return attrs.field(default="", validator=_check_text)


_TEXTS = ("assignment_id", "branch", "pull_request_url", "error", "detail", "checkpoint")
_texts = attrgetter(*_TEXTS)


def check_report(_: object, __: object, report: Any) -> None:
    """Refuse, in its host's thread, a report that is none: with `TypeError` or `ValueError`, which name the field."""
    if not isinstance(report, SessionState):
        raise TypeError(f"a report must be a SessionState, not {type(report).__name__}")
    if not isinstance(report.phase, SessionPhase):
        raise TypeError(f"phase must be a SessionPhase, not {report.phase!r}")
    texts = _texts(report)
    if set(map(type, texts)) != {str}:  # one comparison instead of six: this is on the way of every report
        for name, text in zip(_TEXTS, texts, strict=True):
            if not isinstance(text, str):
                raise TypeError(f"{name} must be text, not {type(text).__name__}")
    if not isinstance(report.turns, int):
        raise TypeError(f"turns must be a whole number, not {report.turns!r}")
    if not 0 <= report.turns < TURNS_LIMIT:
        raise ValueError(f"turns must be a number from 0 to {TURNS_LIMIT - 1}, not {report.turns}")


# --- commands: each changes the graph or is refused, and is followed by a pass ------------------------------------


@attrs.frozen
class Enqueue:
    slices: tuple[Slice, ...]


@attrs.frozen
class MarkMerged:
    slice_id: str
    pull_request_url: str = _text()


@attrs.frozen
class Cancel:
    slice_id: str


@attrs.frozen
class Retry:
    slice_id: str


@attrs.frozen
class Revise:
    """Another title, recipe, touch-set and provenance for a slice that has no session; its edges stay."""

    slice: Slice


@attrs.frozen
class Hold:
    slice_id: str
    reason: str = _text()


@attrs.frozen
class Release:
    slice_id: str
    reason: str = _text()


@attrs.frozen
class Pause:
    reason: str = _text()


@attrs.frozen
class Resume:
    reason: str = _text()


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
    message: str = _text()
    new_slice: Slice | None = None
    proof: Proof | None = attrs.field(default=None, validator=optional(instance_of(Proof)))


@attrs.frozen
class Observe:
    """A session's report. Making one raises `TypeError` or `ValueError` for what is no report."""

    report: SessionState = attrs.field(validator=check_report)


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
    | Revise
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
