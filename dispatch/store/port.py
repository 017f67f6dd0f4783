"""The port behind which a graph is kept: what is written, what is read back, who may write.

A store holds any number of graphs by name. `open` claims one for this process and returns all of it; `write` commits
one batch of changed rows in one transaction under the claim's epoch; rows carry the *last* state of what changed.
`tests/conformance/test_store.py` defines the port: every adapter passes it, on the same inputs.
"""

from __future__ import annotations

import datetime as dt
from typing import Protocol

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
    it ended with its harness, nobody knows when, and `ended_at` stays 0."""

    slice_id: str
    attempt: int
    branch: str
    started_at: float
    ended_at: float = 0.0
    outcome: str = ""
    detail: str = ""


@attrs.frozen
class IntentRow:
    """An intent, the ids of the slices it is attached to, and its place in the order of registration, from 1."""

    intent: Intent
    seq: int
    attached: tuple[str, ...] = ()


@attrs.frozen
class Changes:
    """One batch. Rows replace what the store has under the same key, but a slice's declared part (`SliceRow.slice`) is
    kept from its first row, unless `revised` names it; `forgotten` names intents to delete.

    Intents are forgotten before any is written: one that is in both stays. Of several rows with one key the last
    counts. What a slice was declared as is kept from its first row: `SliceRow.slice` of a later one may differ, and
    is not written.
    """

    graph: GraphRow | None = None
    slices: tuple[SliceRow, ...] = ()
    attempts: tuple[AttemptRow, ...] = ()
    intents: tuple[IntentRow, ...] = ()
    forgotten: tuple[str, ...] = ()
    revised: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.graph or self.slices or self.attempts or self.intents or self.forgotten)


@attrs.frozen
class Contents:
    """A whole graph as stored. `graph` is None when the store has none of that name.

    Slices and intents come in `seq` order, attempts by slice and attempt.
    """

    graph: GraphRow | None = None
    slices: tuple[SliceRow, ...] = ()
    attempts: tuple[AttemptRow, ...] = ()
    intents: tuple[IntentRow, ...] = ()


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
