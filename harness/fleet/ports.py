"""The two ports of the fleet: who decides, and who carries.

A **WorkItems** is the authority: rows in a database, changed by commands alone. A **Transport** carries envelopes from
those who submit to those who work; it decides nothing. What it delivers twice, late or to the wrong one does no harm,
since whoever receives it has to claim the WorkItem.

Each is defined by its conformance suite. Both may be used from several threads at once, and a `receive` that waits
keeps nobody else waiting; a second instance on the same place is another client. Every method may raise
`FleetUnavailableError` (for now) and `FleetBrokenError`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

import attrs

from harness.fleet.commands import Claim, Command, Holding
from harness.fleet.envelope import AgentTurnEnvelope
from harness.fleet.work_item import Outcome, Submission, WorkItem, WorkItemState

Result = (
    WorkItem | Exception | None
)  #: of a command: the item as it stands, what it was refused with, None if withdrawn


@attrs.frozen
class Query:
    """Which items: all that is given must hold. In order of submission, at most `limit`, those after `after`."""

    tenant: str | None = None
    states: frozenset[WorkItemState] = frozenset()
    session_id: str | None = None
    kind: str | None = None
    after: str = ""
    limit: int = 100


@attrs.frozen
class Buried:
    """A delivery that is no item's: by the digest of its bytes, and why. Of a digest that is known, the count rises."""

    digest: str
    cause: str
    job_id: str = ""
    tenant: str = ""
    count: int = 1
    first_at: float = 0.0
    last_at: float = 0.0


@attrs.frozen
class WorkerPresence:
    """A worker as it last told of itself. `token` is the random name of its incarnation (`Worker.owner`), `kinds` are
    those it has executors of, `busy` of its `slots` run a turn. It tells so every `every_s` seconds. `queue`: the token
    of the one that it takes turns from (`queue_token`); empty if it didn't say.

    `started_at` and `seen_at` are the registry's to fill in, by its clock.
    """

    token: str
    kinds: tuple[str, ...]
    slots: int
    busy: int
    every_s: float
    started_at: float = 0.0
    seen_at: float = 0.0
    queue: str = ""

    def is_alive(self, now: float) -> bool:
        """Whether it was heard of in time: one beat may be lost, and one be late."""
        return now - self.seen_at <= 3 * self.every_s


@attrs.frozen
class Tally:
    """What an authority holds, counted in one look. `at`: when, by its clock.

    `items` by state. `outcomes`, by the state they left, and `expired`, those of them whose lease ran out, only rise.
    `overdue` leases ran out and were not put in order yet, the oldest of them `overdue_s` seconds ago. `due`: ready
    items whose time has come, by kind.
    """

    at: float
    schema: int
    items: Mapping[WorkItemState, int]
    outcomes: Mapping[WorkItemState, int]
    expired: int = 0
    overdue: int = 0
    overdue_s: float = 0.0
    due: Mapping[str, int] = attrs.field(factory=dict)


class WorkItems(Protocol):
    """The authority."""

    def perform(self, commands: Sequence[Command]) -> tuple[Result, ...]:
        """All in one transaction, in order, each with a result of its own: what is refused leaves the others alone.

        Those that end an item release or cancel its dependents in the same transaction. When it returns, it is durable.
        """
        ...

    def find(self, ids: Sequence[str]) -> dict[str, WorkItem]:
        """Those that there are."""
        ...

    def search(self, query: Query) -> tuple[WorkItem, ...]: ...

    def undelivered(self, limit: int, handed_before_s: float) -> tuple[WorkItem, ...]:
        """Ready and due items without a delivery, that no pump took on within so many seconds; they are handed to the
        caller. The oldest first."""
        ...

    def claimable(self, limit: int, tenant: str | None = None, kinds: Collection[str] = ()) -> tuple[WorkItem, ...]:
        """What can be claimed and has no delivery, of one tenant and of these kinds if any are given: first those whose
        lease ran out, the oldest first; then those that are ready and due and whose session nobody works on, by
        priority, deadline and order of submission."""
        ...

    def overtaken(self, limit: int) -> tuple[WorkItem, ...]:
        """What `Recover` would change."""
        ...

    def outcomes(self, item_id: str) -> tuple[Outcome, ...]:
        """The item's provenance, oldest first."""
        ...

    def watch(self) -> Watch:
        """For the ends of items, above all. What has changed before this call is not told."""
        ...

    def close(self) -> None: ...


class SessionLocks(Protocol):
    """A lock for each session, between all processes that use the authority; it ends with the process that holds it.

    The lease decides; this keeps two processes apart of which one does not know yet that it has lost its lease.
    """

    def lock_sessions(self, sessions: Sequence[tuple[str, str]]) -> tuple[bool, ...]:
        """Try each (tenant, session id), without waiting; whether it is held now. Held by the caller already: False."""
        ...

    def seize_sessions(self, sessions: Sequence[tuple[str, str]]) -> tuple[bool, ...]:
        """Take each from a process that holds it without right: it is cut off from the authority. The caller holds the
        lease on the session. False: somebody holds it yet; try again."""
        ...

    def unlock_sessions(self, sessions: Sequence[tuple[str, str]]) -> None: ...


class Watch(Protocol):
    """A look-out for changes of an authority, with a connection of its own. Whose `wait` it is may be one thread; any
    may close it."""

    def wait(self, seconds: float) -> bool:
        """Whether something may have changed since the last call; after so many seconds, or once it is closed, False.

        A hint: an item may end without one (a connection was lost, say), and one may come without an end.
        """
        ...

    def close(self) -> None: ...


class Archive(Protocol):
    """What an authority keeps beside its items: contents, messages and graves. The same adapters have both sides."""

    def keep(self, contents: bytes) -> str:
        """Contents for a `payload_ref`, which is the answer; the same contents, the same reference."""
        ...

    def contents(self, payload_ref: str) -> bytes | None: ...

    def say(self, item_id: str, text: str) -> int:
        """A message into a turn; the answer is its number, from 1."""
        ...

    def said(self, item_id: str, after: int) -> tuple[tuple[int, str], ...]:
        """The messages into a turn with a higher number."""
        ...

    def bury(self, found: Sequence[Buried]) -> None: ...

    def graves(self, limit: int) -> tuple[Buried, ...]:
        """The last to come first."""
        ...

    def prune(self, before: float) -> int:
        """Forget items that ended before that moment, with all that is kept of them alone, and contents that were kept
        before it and that no item refers to; how many items. In small transactions. Dead letters stay, and so do those
        that others wait for."""
        ...


class Registry(Protocol):
    """Who works, and how much there is: for those who look on. The same adapters have this side too."""

    def beat(self, presence: WorkerPresence) -> None:
        """The worker is there. Who was not heard of for `KEPT_S` is forgotten."""
        ...

    def leave(self, token: str) -> None:
        """The worker has ended as it should."""
        ...

    def workers(self, within_s: float) -> tuple[WorkerPresence, ...]:
        """Those heard of within so many seconds, the longest there first."""
        ...

    def tally(self) -> Tally:
        """Of what is stored, never of what a process remembers."""
        ...


KEPT_S = 3600.0  #: how long a registry remembers a worker that is silent


class Authority(WorkItems, Archive, SessionLocks, Registry, Protocol):
    """All sides of an authority, which every adapter has."""


@attrs.frozen
class Receipt:
    """The right to acknowledge a delivery: whose it is, since when, and where it is kept.

    `claimed_at` is in Unix seconds, by the transport's clock; `place` is the adapter's own matter.
    """

    owner: str
    claimed_at: float
    place: str


@attrs.frozen
class Delivery:
    """What was received: an envelope, or bytes that are none, with the problem."""

    receipt: Receipt
    envelope: AgentTurnEnvelope | None
    raw: bytes = b""
    problem: str = ""


@attrs.frozen
class Ending:
    """Of a turn: what its item comes to, the session (tenant and id) whose lock it had, and its delivery."""

    command: Holding
    session: tuple[str, str]
    receipt: Receipt


@attrs.frozen
class Opening:
    """Of a turn: the claim of its item, and its session (tenant and id)."""

    claim: Claim
    session: tuple[str, str]


@attrs.frozen
class Settlement:
    """What endings and openings came to: the results of their commands, and of each opening whether the session's lock
    was free, and is held now."""

    endings: tuple[Result, ...]
    openings: tuple[Result, ...]
    locked: tuple[bool, ...]


class Joint(Protocol):
    """An authority and its transport in one database: what concerns both, in one transaction of it."""

    def admit(self, submissions: Sequence[Submission], limit: int) -> tuple[WorkItem, ...] | None:
        """Submit all, and admit the deliveries of those that are ready, as `WorkItems.perform` and `Transport.put_many`
        would. None, and nothing is done, unless all of them are new and there is room for all."""
        ...

    def settle(self, endings: Sequence[Ending], openings: Sequence[Opening]) -> Settlement:
        """Perform all their commands. With an ending that is written down, its delivery is acknowledged; the lock of
        the session is freed whatever it came to, and so is that of an opening that was refused. Repeated with the same
        after `FleetUnavailableError` it does no harm."""
        ...


class Transport(Protocol):
    """Carries envelopes. Of one session, at most one is out at a time; different sessions don't wait for each other.

    A delivery is *out* from `receive` until it is acknowledged or given back, or its receiver is taken to be gone: then
    it is delivered again.
    """

    def put_many(self, envelopes: Sequence[AgentTurnEnvelope], limit: int) -> tuple[bool, ...]:
        """Admit each as long as fewer than `limit` deliveries are unacknowledged; whether it was. Durable on return.

        Never more than `limit`, whoever else puts (Kafka: than its lag told). Where the transport can tell that one
        with the same `job_id` waits already, that one stands, and it counts as admitted; one that is out is delivered
        once more after it was acknowledged. So whatever is put is received after that. A depth that can't be read is an
        error, and nothing is admitted.
        """
        ...

    def receive(self, limit: int, wait_s: float) -> tuple[Delivery, ...]:
        """At most `limit`, in the order of the contract; as soon as there is any, and none after `wait_s` seconds."""
        ...

    def acknowledge(self, receipts: Sequence[Receipt]) -> tuple[Exception | None, ...]:
        """They are done with, for good. `StaleReceiptError` for each that is another's by now."""
        ...

    def give_back(self, receipts: Sequence[Receipt], delay_s: float) -> tuple[Exception | None, ...]:
        """They are delivered again, to anybody, after so many seconds."""
        ...

    def extend(self, receipts: Sequence[Receipt]) -> tuple[Exception | None, ...]:
        """Their receiver is still there."""
        ...

    def depth(self) -> int:
        """Deliveries that are not yet acknowledged. Never a guess."""
        ...

    def close(self) -> None: ...
