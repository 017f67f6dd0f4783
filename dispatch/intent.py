"""What an operator wants, in a typed form."""

from __future__ import annotations

import datetime as dt
import enum
import functools

import attrs


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
