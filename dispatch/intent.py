"""What an operator wants, in a typed form."""

from __future__ import annotations

import datetime as dt
import enum
import functools

import attrs

from dispatch.errors import InvalidIntentError
from dispatch.text import check_text

_LONGEST_ID = 256


@functools.total_ordering
class Urgency(enum.Enum):
    """How urgent an intent is. URGENT makes room for its slices by preemption."""

    LOW = 1
    NORMAL = 2
    HIGH = 3
    URGENT = 4

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, Urgency):
            return NotImplemented
        return bool(self.value < other.value)


@attrs.frozen
class Intent:
    """A statement with the slices it is about: `scope` names one, or `terms` find them by what they touch.

    `deadline` is an aware datetime; `supersedes` the id of an intent that this one replaces.
    """

    id: str
    statement: str
    scope: str = ""
    urgency: Urgency = Urgency.NORMAL
    deadline: dt.datetime | None = None
    supersedes: str = ""
    terms: tuple[str, ...] = ()


def check_intent(intent: Intent) -> None:
    """Refuse, with `InvalidIntentError` naming the field, an intent outside the grammar."""
    if not isinstance(intent, Intent):
        raise InvalidIntentError("intent", f"must be an Intent, not {type(intent).__name__}")
    for field in ("id", "statement", "scope", "supersedes"):
        _check_text(field, getattr(intent, field), printable=field != "statement")
    if not 0 < len(intent.id) <= _LONGEST_ID:
        raise InvalidIntentError("id", f"must have 1 to {_LONGEST_ID} characters")
    if not isinstance(intent.urgency, Urgency):
        raise InvalidIntentError("urgency", f"must be an Urgency, not {intent.urgency!r}")
    if intent.deadline is not None:
        _check_deadline(intent.deadline)
    if not isinstance(intent.terms, tuple | list):
        raise InvalidIntentError("terms", f"must be a tuple of texts, not {type(intent.terms).__name__}")
    for term in intent.terms:
        _check_text("terms", term)


def canonical(intent: Intent) -> Intent:
    """A checked intent with a tuple for a list of terms: nobody can change it any more."""
    return intent if type(intent.terms) is tuple else attrs.evolve(intent, terms=tuple(intent.terms))


def _check_deadline(deadline: object) -> None:
    if not isinstance(deadline, dt.datetime) or deadline.utcoffset() is None:
        raise InvalidIntentError("deadline", f"must be a datetime with a time zone, not {deadline!r}")
    try:
        deadline.astimezone(dt.UTC)
    except OverflowError:
        raise InvalidIntentError("deadline", f"lies outside the years 1 to 9999 in UTC: {deadline!r}") from None


def _check_text(field: str, text: object, *, printable: bool = False) -> None:
    try:
        check_text(text, printable=printable)
    except ValueError as problem:
        raise InvalidIntentError(field, str(problem)) from None
