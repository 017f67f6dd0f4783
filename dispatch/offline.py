"""A stored graph read from outside, by the same rules as its owner's, without claiming or disturbing anything.

What only the owner's process knows is not known here: what the host measures, which places are kept for urgent slices,
and whether a report is on its way.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

import attrs

from dispatch import answers
from dispatch.errors import DispatchError
from dispatch.machine import Machine
from dispatch.slice import OCCUPYING, SliceState
from dispatch.store import Store
from dispatch.store.port import AttemptRow, Claim, Contents
from dispatch.views import Cap, Explanation, SliceView, Snapshot, StoreStatus
from dispatch.weights import LearnedWeights, Weights

LOST = "lost"  #: the outcome of an attempt that ended with the process that ran it
UNMEASURED = "the cap is measured by the process that runs the graph"


class NoGraphError(DispatchError):
    """The store has no graph of that name."""

    def __init__(self, graph: str, url: str) -> None:
        super().__init__(f"there is no graph {graph!r} in {url}; `run` a plan first, or name another one with --graph")
        self.graph, self.url = graph, url


@attrs.frozen(eq=False)
class StoredGraph:
    """A graph as it was when it was read. `claim` is its owner's, None when no process runs it.

    Without an owner no session lives: slices that were running are queued, as they will be when it is run again.
    """

    name: str
    url: str
    contents: Contents
    claim: Claim | None
    read_at: float
    machine: Machine

    @classmethod
    def read(cls, store: Store, name: str, weights: Weights | None = None) -> StoredGraph:
        """Raises `NoGraphError`, `StoreError`, `StoreUnavailableError`."""
        return cls.of(store, name, *store.peek(name), weights)

    @classmethod
    def of(
        cls, store: Store, name: str, contents: Contents, claim: Claim | None, weights: Weights | None = None
    ) -> StoredGraph:
        """From what was read of `store`. Raises `NoGraphError`."""
        if contents.graph is None:
            raise NoGraphError(name, store.url)
        now = time.time()
        machine = Machine(name, contents.graph.graph_id, weights or LearnedWeights())
        machine.restore(contents, _sessions(contents) if claim is not None else (), now)
        return cls(name, store.url, contents, claim, now, machine)

    @property
    def owned(self) -> bool:
        return self.claim is not None

    def slices(self) -> list[SliceView]:
        """In enqueue order."""
        graph = self.machine.graph
        return answers.views(graph, tuple(graph.nodes.values()))

    def explain(self, slice_id: str) -> Explanation:
        """Why it doesn't run now, as far as can be known from outside. Raises `UnknownSliceError`."""
        graph = self.machine.graph
        return answers.explain(graph, graph.node(slice_id), self.machine.paused, StoreStatus(self.url), self._cap())

    def snapshot(self) -> Snapshot:
        machine = self.machine
        return answers.snapshot(
            machine.graph, self.name, self.read_at, machine.paused, StoreStatus(self.url), self._cap()
        )

    def attempts(self, slice_id: str) -> list[AttemptRow]:
        """Its attempts, the first one first. Without an owner none of them runs."""
        rows = [row for row in self.contents.attempts if row.slice_id == slice_id]
        return rows if self.owned else [attrs.evolve(row, outcome=row.outcome or LOST) for row in rows]

    def _cap(self) -> Cap:
        """What waits while an owner is at work waits for a place; while there is none, the cap keeps nobody."""
        return Cap(len(self.machine.graph.sessions) if self.owned else len(self.machine.graph.nodes) + 1, UNMEASURED)


def _sessions(contents: Contents) -> list[str]:
    """The assignments of the slices that hold a session, as stored."""
    return [f"{row.slice.id}@{row.attempt}" for row in contents.slices if row.state in OCCUPYING]


def states(views: Iterable[SliceView]) -> dict[SliceState, int]:
    """How many slices are in each state, in the order of a slice's life; states that no slice is in are left out."""
    counted = dict.fromkeys(SliceState, 0)
    for view in views:
        counted[view.state] += 1
    return {state: number for state, number in counted.items() if number}
