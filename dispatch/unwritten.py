"""What of a graph is not durable yet, row by row: the last state of each counts, when it is written."""

from __future__ import annotations

from typing import Any

from dispatch.graph import IntentEntry, SliceGraph, SliceNode
from dispatch.journal import Journal
from dispatch.store.port import AttemptRow, Changes, GraphRow, IntentRow


class Unwritten:
    """Marks of what has changed since the last write. The rows themselves are made when they are asked for."""

    __slots__ = ("attempts", "graph", "intents", "revised", "slices")

    def __init__(self) -> None:
        self.graph = True
        self.slices: dict[SliceNode, None] = {}
        self.revised: dict[SliceNode, None] = {}  # of these, the ones with another declared part
        self.intents: dict[str, None] = {}  # registered or forgotten
        self.attempts: dict[tuple[str, int], tuple[Any, ...]] = {}  # what makes an `AttemptRow`, if there is a store

    def attempt(self, node: SliceNode, outcome: str = "", detail: str = "", checkpoint: str = "") -> None:
        """Keep the present state of the node's attempt."""
        name, attempt = node.slice.id, node.attempt
        self.attempts[name, attempt] = (
            name,
            attempt,
            node.branch,
            node.started_at,
            node.ended_at,
            outcome,
            detail,
            checkpoint,
        )

    def changes(self, row: GraphRow, graph: SliceGraph, journal: Journal | None) -> Changes:
        """All of it. `row` is the graph's own."""
        known = graph.intents
        return Changes(
            graph=row if self.graph else None,
            slices=tuple([node.row() for node in self.slices]),
            attempts=tuple([AttemptRow(*fields) for fields in self.attempts.values()]),
            intents=tuple([intent_row(known[name]) for name in self.intents if name in known]),
            forgotten=tuple([name for name in self.intents if name not in known]),
            revised=tuple([node.id for node in self.revised]),
            log=() if journal is None else tuple(journal.rows),
            keyframe=None if journal is None else journal.keyframe,
        )

    def clear(self) -> None:
        """It is durable."""
        self.slices.clear()
        self.revised.clear()
        self.attempts.clear()
        self.intents.clear()
        self.graph = False


def intent_row(entry: IntentEntry) -> IntentRow:
    return IntentRow(entry.intent, entry.seq, tuple(node.id for node in entry.attached))
