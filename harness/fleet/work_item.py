"""The WorkItem: the one authority on whether a turn runs. What may become of it is told in `lifecycle`."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Any

import attrs

from harness.fleet.envelope import (
    LEAST_URGENT,
    MOST_URGENT,
    AgentTurnEnvelope,
    check_moment,
    check_payload_ref,
    check_reference,
    check_whole,
)
from harness.fleet.errors import InvalidTurnError


class WorkItemState(enum.Enum):
    """Where a WorkItem stands. `SUBMITTED` waits for others, `READY` for a worker; the last four are the ends."""

    SUBMITTED = "submitted"
    READY = "ready"
    LEASED = "leased"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    DEAD_LETTER = "dead_letter"


State = WorkItemState
HELD = frozenset({State.LEASED, State.RUNNING})
ENDED = frozenset({State.SUCCEEDED, State.FAILED, State.CANCELLED, State.DEAD_LETTER})

#: Which state may follow which. A dead letter is an end that an operator can take back.
TRANSITIONS: dict[WorkItemState, frozenset[WorkItemState]] = {
    State.SUBMITTED: frozenset({State.READY, State.CANCELLED}),
    State.READY: frozenset({State.LEASED, State.CANCELLED}),
    State.LEASED: frozenset({State.RUNNING, State.READY, State.CANCELLED}),
    State.RUNNING: frozenset({State.READY, State.SUCCEEDED, State.FAILED, State.CANCELLED, State.DEAD_LETTER}),
    State.SUCCEEDED: frozenset(),
    State.FAILED: frozenset(),
    State.CANCELLED: frozenset(),
    State.DEAD_LETTER: frozenset({State.READY}),
}


@attrs.frozen
class Lease:
    """The right to work on an item. `expires_at` is by the database's clock, like every time here, in Unix seconds."""

    item_id: str
    tenant: str
    owner: str
    epoch: int
    token: int
    expires_at: float


@attrs.frozen(slots=False)
class WorkItem:
    """One unit of work and where it stands.

    `payload_ref` says where its contents are. `not_before`: when the next attempt may begin. `delivered`: a delivery of
    it was admitted, for the attempt it is ready for; until then, the pump is to see to it. `handed_at`: when a pump
    last took that on. `checkpoint` is what the attempts so far left for the next one. `cause` says why it ended, or why
    its last attempt did; `result` is what a success brought.
    """

    id: str
    tenant: str
    session_id: str
    kind: str
    payload_ref: str = ""
    priority: int = 2
    deadline: float | None = None
    depends_on: tuple[str, ...] = ()
    max_attempts: int = 3
    state: WorkItemState = WorkItemState.READY
    attempt: int = 0
    failures: int = 0
    owner: str = ""
    epoch: int = 0
    token: int = 0
    expires_at: float = 0.0
    not_before: float = 0.0
    delivered: bool = False
    handed_at: float = 0.0
    cancel_cause: str = ""
    checkpoint: str = ""
    cause: str = ""
    result: str = ""
    submitted_at: float = 0.0
    changed_at: float = 0.0
    started_at: float = 0.0

    def but(self, **changes: Any) -> WorkItem:
        """The same but for these fields. A tenth of the time of `attrs.evolve`, which would be half of a command's."""
        assert self.__dict__.keys() >= changes.keys()
        item = object.__new__(WorkItem)
        item.__dict__.update(self.__dict__)
        item.__dict__.update(changes)
        return item

    @property
    def lease(self) -> Lease:
        """The one that holds it. There is none unless it is leased or running."""
        assert self.state in HELD, self.state
        return Lease(self.id, self.tenant, self.owner, self.epoch, self.token, self.expires_at)

    def envelope(self, now: float) -> AgentTurnEnvelope:
        """What is queued of it."""
        return AgentTurnEnvelope(
            self.id, self.session_id, self.kind, self.payload_ref, self.tenant, self.priority, self.deadline,
            self.attempt, now,
        )  # fmt: skip


def _ids(given: object) -> tuple[str, ...]:
    """Several ids, however they come; a text would be taken for as many as it has characters."""
    if isinstance(given, tuple):
        return given
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise InvalidTurnError("depends_on", f"must be several ids, not {type(given).__name__}: write [{given!r}]")
    return tuple(given)


@attrs.frozen
class Submission:
    """What is asked for: a turn of kind `kind` in a session. Raises `InvalidTurnError`.

    Its `id` is the caller's, and tells a repeated submission from another one. It becomes ready when all it depends on
    has succeeded.
    """

    id: str
    tenant: str
    session_id: str
    kind: str
    payload_ref: str = ""
    priority: int = 2
    deadline: float | None = None
    depends_on: tuple[str, ...] = attrs.field(default=(), converter=_ids)
    max_attempts: int = 3
    not_before: float = 0.0

    def __attrs_post_init__(self) -> None:
        for field in ("id", "tenant", "session_id", "kind"):
            check_reference(field, getattr(self, field))
        check_payload_ref(self.payload_ref)
        check_whole("priority", self.priority, MOST_URGENT, LEAST_URGENT)
        check_whole("max_attempts", self.max_attempts, 1, 1000)
        check_moment("not_before", self.not_before)
        if self.deadline is not None:
            check_moment("deadline", self.deadline)
        for name in self.depends_on:
            check_reference("depends_on", name)
        if self.id in self.depends_on:
            raise InvalidTurnError("depends_on", f"{self.id!r} depends on itself")


DECLARED = tuple(field.name for field in attrs.fields(Submission))


@attrs.frozen
class Outcome:
    """How an attempt ended, or an item that nobody held: a line of its provenance, never changed.

    `ended` is the state it was left in; `owner` and `started_at` are empty and 0 where no attempt had begun. `expired`:
    it ended because its lease ran out, by whoever put that in order.
    """

    item_id: str
    tenant: str
    epoch: int
    token: int
    attempt: int
    owner: str
    started_at: float
    ended_at: float
    ended: WorkItemState
    text: str
    expired: bool = False
