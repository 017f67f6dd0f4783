"""Graphs for tests of what is shown: the real rules, driven by hand, with a clock that is moved by hand."""

from __future__ import annotations

from typing import Any

from rich.console import Console, RenderableType

from dispatch import answers
from dispatch.commands import Enqueue, Observe, Remeasure
from dispatch.machine import Machine
from dispatch.slice import Slice
from dispatch.views import Cap, Snapshot, StoreStatus
from dispatch.weights import UnitWeights
from harness import SessionPhase, SessionState

BEGAN_AT = 1_000_000.0


class Graph:
    """A graph with `cap` places. `do` applies a command; `report` tells of the slice's current session."""

    def __init__(self, *slices: Slice, cap: int = 2) -> None:
        self.machine = Machine("demo", "id", UnitWeights())
        self.now, self.cap = BEGAN_AT, cap
        self.store = StoreStatus("memory:")
        if slices:
            self.do(Enqueue(slices))

    def do(self, command: Any) -> Any:
        return self.machine.handle(command, self.now, self.cap)

    def report(self, slice_id: str, phase: SessionPhase, **fields: Any) -> None:
        self.do(Observe(SessionState(self.machine.graph.node(slice_id).assignment_id, phase, **fields)))

    def merge(self, *slice_ids: str) -> None:
        for slice_id in slice_ids:
            self.report(slice_id, SessionPhase.MERGED)

    def open(self, cap: int) -> None:
        """More places, or fewer."""
        self.cap = cap
        self.do(Remeasure())

    def snapshot(self) -> Snapshot:
        machine = self.machine
        cap = Cap(self.cap, f"cap {self.cap}, set by hand")
        return answers.snapshot(machine.graph, machine.name, self.now, machine.paused, self.store, cap)


def printed(renderable: RenderableType, width: int, height: int = 100) -> list[str]:
    """What a terminal of that size would show, line by line, without styles."""
    console = Console(width=width, height=height, color_system=None, force_terminal=False, legacy_windows=False)
    with console.capture() as captured:
        console.print(renderable)
    return captured.get().split("\n")[:-1]
