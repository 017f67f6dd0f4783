"""The port behind which a graph is kept: what is written, what is read back, who may write.

A store holds any number of graphs by name. `open` claims one for this process and returns all of it; `write` commits
one batch of changed rows in one transaction under the claim's epoch; rows carry the *last* state of what changed.
`tests/conformance/test_store.py` defines the port: every adapter passes it, on the same inputs.
"""

from __future__ import annotations

import datetime as dt
from contextlib import AbstractContextManager
from typing import Protocol, runtime_checkable

import attrs

from dispatch.intent import Intent
from dispatch.slice import Slice, SliceState


@attrs.frozen
class GraphRow:
    """The graph itself. `graph_id` is random, made with the graph; `paused` is the reason, empty when not paused."""

    graph_id: str
    paused: str = ""


@attrs.frozen
class SliceRow:
    """A slice as it stands. `seq` is its place in enqueue order, from 1.

    `attempt` counts launches, `closes` those that ended without a merge (forgotten by a retry). `stopping`: its session
    was asked to stop; `canceling`: a cancel waits for the session's report. `error` is what the last attempt that
    didn't merge ended with. `ran_s`: measured running time of all its attempts, in seconds. Times are Unix seconds, 0
    when not reached.
    """

    slice: Slice
    seq: int
    state: SliceState
    attempt: int = 0
    closes: int = 0
    turns: int = 0
    branch: str = ""
    pull_request_url: str = ""
    error: str = ""
    checkpoint: str = ""
    hold: str = ""
    canceling: bool = False
    stopping: bool = False
    ran_s: float = 0.0
    enqueued_at: float = 0.0
    started_at: float = 0.0
    ended_at: float = 0.0


@attrs.frozen
class AttemptRow:
    """One attempt at a slice. `outcome` is empty while it runs; else the phase reported, or `preempted`, or `lost`:
    it ended with its harness, nobody knows when, and `ended_at` stays 0. `checkpoint` is what it left for the next.
    """

    slice_id: str
    attempt: int
    branch: str
    started_at: float
    ended_at: float = 0.0
    outcome: str = ""
    detail: str = ""
    checkpoint: str = ""


@attrs.frozen
class IntentRow:
    """An intent, the ids of the slices it is attached to, and its place in the order of registration, from 1."""

    intent: Intent
    seq: int
    attached: tuple[str, ...] = ()


@attrs.frozen
class LogRow:
    """One input that was taken in, and what was decided upon it; see `dispatch/journal.py`.

    `seq` counts them from 1, without a gap, through all owners of a graph. `at` (Unix seconds), `cap` and `suspended`
    are what the machine was told with it. `kind` says what it is; `input` and `decisions` are JSON objects.
    """

    seq: int
    epoch: int
    at: float
    cap: int
    suspended: bool
    kind: str
    input: str
    decisions: str


@attrs.frozen
class KeyframeRow:
    """The whole graph as it was after the log's entry `seq`, at `at`, in the form that `dispatch/keyframe.py` gives it.

    From here on the log can be played without what came before.
    """

    seq: int
    at: float
    content: bytes


@attrs.frozen
class Logged:
    """How far the log goes: the `seq` of the last entry, or of a keyframe after which there is none, 0 without either;
    and `seq` and `at` of each keyframe, the oldest first."""

    last: int = 0
    keyframes: tuple[tuple[int, float], ...] = ()


NOTHING_LOGGED = Logged()


@attrs.frozen
class Changes:
    """One batch. Rows replace what the store has under the same key, but a slice's declared part (`SliceRow.slice`) is
    kept from its first row, unless `revised` names it; `forgotten` names intents to delete.

    Intents are forgotten before any is written: one that is in both stays. Of several rows with one key the last
    counts. What a slice was declared as is kept from its first row: `SliceRow.slice` of a later one may differ, and
    is not written. An entry of the log, and a keyframe, is kept as it was first written.
    """

    graph: GraphRow | None = None
    slices: tuple[SliceRow, ...] = ()
    attempts: tuple[AttemptRow, ...] = ()
    intents: tuple[IntentRow, ...] = ()
    forgotten: tuple[str, ...] = ()
    revised: tuple[str, ...] = ()
    log: tuple[LogRow, ...] = ()
    keyframe: KeyframeRow | None = None

    def __bool__(self) -> bool:
        rows = self.graph or self.slices or self.attempts or self.intents or self.forgotten
        return bool(rows or self.log or self.keyframe)


@attrs.frozen
class Contents:
    """A whole graph as stored. `graph` is None when the store has none of that name.

    Slices and intents come in `seq` order, attempts by slice and attempt.
    """

    graph: GraphRow | None = None
    slices: tuple[SliceRow, ...] = ()
    attempts: tuple[AttemptRow, ...] = ()
    intents: tuple[IntentRow, ...] = ()
    logged: Logged = NOTHING_LOGGED


@attrs.frozen
class Claim:
    """Who owns a graph: the epoch of this ownership, and when it began, by the store's clock."""

    graph: str
    epoch: int
    since: dt.datetime


class Store(Protocol):
    """Where graphs are kept. One object serves one owner at a time; methods are called from one thread after another.
    `peek` alone may be called from any thread at any time.

    Every method may raise `StoreUnavailableError` (out of reach, full, locked: try again later) and `StoreError` (it
    can't be used as it is). `claim_s` and `renew_s` are 10 and 3 seconds.
    """

    @property
    def url(self) -> str:
        """Where it is, without any password."""
        ...

    def claim(self, graph: str, *, take_over: bool = False) -> Claim:
        """Own `graph`, with an epoch higher than any before.

        Waits for the expiry of a claim that is no longer renewed; takes one whose process is known to be gone at
        once. Raises `OwnedElsewhereError` for one that is alive, unless told to `take_over`.

        A claim that ran out but that nobody followed still writes: the epoch decides, not the expiry.
        """
        ...

    def load(self) -> Contents:
        """All of the claimed graph."""
        ...

    def write(self, changes: Changes) -> None:
        """Commit `changes`, all or none, durable on return. Raises `OwnershipLostError` if the claim is another's now.

        After `StoreUnavailableError` the same changes may be written again: rows are states, not increments.
        `StoreError` refuses what some database would not give back as it was, alike in every adapter: a NUL character
        or a lone surrogate, a number that is not finite or outside 64 bits, a deadline without a time zone; and an
        attempt at a slice that isn't stored.
        """
        ...

    def renew(self) -> None:
        """Push the claim's expiry out. Raises `OwnershipLostError` if the claim is another's now."""
        ...

    def release(self) -> None:
        """Give the claim up and close what is open. The object can claim again. Never raises for a lost claim.

        If the store is out of reach everything is closed too, and the claim runs out by itself. An object whose
        `claim` was refused holds nothing: its owner has nothing to release.
        """
        ...

    def peek(self, graph: str) -> tuple[Contents, Claim | None]:
        """All of `graph` and its live claim, read in one snapshot without claiming or disturbing anything."""
        ...


class Reading(Protocol):
    """A graph and its log at one moment: whatever is written or pruned meanwhile, nothing here changes."""

    @property
    def contents(self) -> Contents: ...

    @property
    def claim(self) -> Claim | None:
        """The live one; None if no process owns the graph."""
        ...

    def entries(self, after: int, limit: int, kind: str = "") -> list[LogRow]:
        """At most `limit` entries with a `seq` beyond `after`, in order; of one `kind` alone if that is given."""
        ...

    def keyframe(self, seq: int) -> KeyframeRow:
        """The one that `contents.logged` names."""
        ...


class History(Protocol):
    """The log of the graphs in a store. Every method may be called from any thread, beside the graph's owner.

    Each call is a transaction of its own, on a connection of its own, and writes little: the owner never waits for
    longer than one of them takes. Raises what `Store` raises. `tests/conformance/test_history.py` defines it.
    """

    def reading(self, graph: str) -> AbstractContextManager[Reading]:
        """`graph` as it stands, while the context lasts. Claims nothing, and lets its owner write."""
        ...

    def keep(self, graph: str, keyframe: KeyframeRow) -> None:
        """Add a keyframe, durably. One that is there already stays as it is."""
        ...

    def prune(self, graph: str, keyframe: int, limit: int) -> int:
        """Delete up to `limit` of the entries that the keyframe of that `seq` makes dispensable, the oldest first; and
        when none is left, the keyframes before it. Returns how many entries went: fewer than `limit` in the end. Does
        nothing if there is no such keyframe."""
        ...


@runtime_checkable
class KeepsHistory(Protocol):
    """A store that writes `Changes.log` and gives it back. One that doesn't still is a store."""

    def history(self) -> History: ...


def history_of(store: object) -> History | None:
    """The log of a store that keeps one."""
    return store.history() if isinstance(store, KeepsHistory) else None
