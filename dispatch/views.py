"""What leaves the owner: frozen values, safe to keep and to hand between threads."""

from __future__ import annotations

import enum

import attrs

from dispatch.intent import Intent, Urgency
from dispatch.slice import Slice, SliceState


@attrs.frozen
class PriorityBreakdown:
    """Why a slice ranks where it does.

    `critical_path`: its upward rank, own weight included; `learned`: the part of its weight that its kind adds;
    `urgency`: the strongest of its intents', None without one; `declared_order`: its place in enqueue order, from 1;
    `rank`: its place in the frontier, from 1, None outside it.
    """

    critical_path: float
    learned: float
    urgency: Urgency | None
    declared_order: int
    rank: int | None


@attrs.frozen
class SliceView:
    """A slice as it stood when the owner answered. Times are Unix seconds, 0 when not reached.

    `error` says what the last attempt that didn't merge ended with; it stands until the next one has ended.
    """

    slice: Slice
    id: str
    title: str
    state: SliceState
    priority: PriorityBreakdown
    assignment_id: str
    attempt: int
    closes: int
    turns: int
    branch: str
    pull_request_url: str
    error: str
    checkpoint: str
    hold: str
    canceling: bool
    intents: tuple[str, ...]
    waits_for: tuple[str, ...]
    enqueued_at: float
    started_at: float
    ended_at: float
    ran_s: float


@attrs.frozen
class Merge:
    """The slice that was marked merged, and the dependents that entered the frontier by it, in enqueue order."""

    slice: SliceView
    released: tuple[SliceView, ...]


class RouteDecision(enum.Enum):
    """What became of a routed message."""

    STEER = "steer"
    QUEUE = "queue"
    ALREADY_DONE = "already_done"
    NEW = "new"


@attrs.frozen
class RouteResult:
    """Where a message went. `reference` names the proof of `ALREADY_DONE`; `turn_id` the turn that takes a `STEER`."""

    decision: RouteDecision
    slice_id: str = ""
    assignment_id: str = ""
    turn_id: str = ""
    reference: str = ""
    findings: tuple[str, ...] = ()
    view: SliceView | None = None


class ReasonCode(enum.Enum):
    """Why a slice doesn't run. The values are stable: scripts may rely on them."""

    PAUSED = "paused"  #: the graph is paused
    STORE = "store"  #: the store is out of reach: nothing is launched
    HELD = "held"  #: kept back by the operator
    DEPENDS_ON = "depends_on"  #: a predecessor hasn't merged
    STRANDED = "stranded"  #: a predecessor failed or was canceled: it will not merge by itself
    CONTENDS = "contends"  #: a slice that excludes it is under way
    ROOM = "room"  #: room is being made for an urgent slice that it contends with, or that takes the places left
    CAP = "cap"  #: every place is taken
    STATE = "state"  #: it isn't waiting: running, in review, or ended


@attrs.frozen
class Reason:
    """One reason, with its evidence. `text` says it in words; `slice_id` is the other slice; `pattern` and `witness`
    the overlap (the other's pattern or hotspot, and a path that both match)."""

    code: ReasonCode
    text: str
    slice_id: str = ""
    pattern: str = ""
    witness: str = ""


@attrs.frozen
class Explanation:
    """A slice with every reason for which it doesn't run now; the first is the one to look at."""

    view: SliceView
    reasons: tuple[Reason, ...]


@attrs.frozen
class Cap:
    """How many sessions may run at once, and how that was arrived at, in words; `short` has what decided alone."""

    places: int
    derivation: str
    decided_by: str = ""

    @property
    def short(self) -> str:
        return self.decided_by or self.derivation


@attrs.frozen
class StoreStatus:
    """Whether changes reach the store; if not, since when (Unix seconds), why, and which slices wait to be written."""

    url: str
    reachable: bool = True
    since: float = 0.0
    problem: str = ""
    unwritten: tuple[str, ...] = ()


@attrs.frozen
class IntentView:
    """A registered intent and the slices it is attached to, in enqueue order."""

    intent: Intent
    attached: tuple[str, ...]


@attrs.frozen
class Snapshot:
    """The whole graph at one moment. Ids refer to `slices`, which are in enqueue order."""

    graph: str
    taken_at: float
    order: str
    paused: str
    cap: Cap
    store: StoreStatus
    slices: tuple[SliceView, ...]
    frontier: tuple[str, ...]
    running: tuple[str, ...]
    room: tuple[str, ...]
    intents: tuple[IntentView, ...]
