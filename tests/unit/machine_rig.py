"""A machine driven by hand, and ways to look at all of it."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from types import FunctionType, MethodType
from typing import Any

from dispatch.commands import Cancel, Command, DeclareIntent, Effect, Enqueue, Observe, Remeasure
from dispatch.graph import SliceNode
from dispatch.intent import Intent, Urgency
from dispatch.machine import Machine
from dispatch.slice import Slice, SliceState, TouchSet
from dispatch.weights import UnitWeights, Weights
from harness import Recipe, SessionPhase, SessionState

BEGAN_AT = 1_000_000.0
UNSEEN = ("__weakref__", "_attrs_cached_hash")
URL = "https://example.invalid/pull/1"


class Rig:
    """A graph with `cap` places. `do` applies a command at `now`, and tells the effects that followed."""

    def __init__(self, *slices: Slice, cap: int = 1, weights: Weights | None = None, graph_id: str = "g1") -> None:
        self.machine = Machine("default", graph_id, weights or UnitWeights())
        self.cap, self.now = cap, BEGAN_AT
        self.reply: Any = None
        for slice_ in slices:
            self.enqueue(slice_)

    def do(self, command: Command) -> list[Effect]:
        self.reply = self.machine.handle(command, self.now, self.cap)
        self.machine.graph.check()
        return self.machine.take_effects()

    def enqueue(self, *slices: Slice) -> list[Effect]:
        return self.do(Enqueue(slices))

    def report(self, slice_id: str, phase: SessionPhase, **fields: Any) -> list[Effect]:
        """Of the slice's current session, or of its last one."""
        node = self.machine.graph.node(slice_id)
        return self.do(Observe(SessionState(f"{slice_id}@{node.attempt}", phase, **fields)))

    def urgent(self, slice_id: str) -> list[Effect]:
        return self.do(DeclareIntent(Intent(f"urgent-{slice_id}", "now", slice_id, Urgency.URGENT)))

    def open(self, cap: int) -> list[Effect]:
        self.cap = cap
        return self.do(Remeasure())

    def state(self, slice_id: str) -> SliceState:
        return self.machine.graph.node(slice_id).state

    def states(self) -> dict[str, str]:
        return {name: node.state.value for name, node in self.machine.graph.nodes.items()}

    def running(self) -> set[str]:
        return {node.id for node in self.machine.graph.occupying()}

    def settle(self) -> None:
        """As if all had been written."""
        self.machine.written()


def work(id_: str, *, paths: Iterable[str] = (), hotspots: Iterable[str] = (), kind: str = "", **fields: Any) -> Slice:
    fields.setdefault("recipe", Recipe(kind=kind))
    return Slice(id_, touch=TouchSet(tuple(paths), tuple(hotspots)), **fields)


def in_state(state: SliceState, canceling: bool = False, pull_request: bool = False) -> Rig:
    """A rig with one place whose slice `x` is in `state`, for the reason that puts it there most simply."""
    rig = Rig(work("other"), work("x")) if state is SliceState.QUEUED else Rig(work("x"))
    match state:
        case SliceState.PREEMPTED:
            rig.enqueue(work("now"))
            rig.urgent("now")
        case SliceState.IN_REVIEW:
            rig.report("x", SessionPhase.CLOSED, pull_request_url=URL)
        case SliceState.MERGED | SliceState.FAILED | SliceState.CANCELED:
            rig.report("x", SessionPhase(state.value))
    if canceling:
        rig.do(Cancel("x"))
    if pull_request:
        rig.report("x", SessionPhase.RUNNING, pull_request_url=URL)
    assert rig.state("x") is state
    rig.settle()
    return rig


def anatomy(machine: Machine) -> Any:
    """Everything that a machine is made of, its caches and leftovers included, but for the time and cap it was given.

    What a refused command must leave as it was.
    """
    outside = {"now", "cap"}
    parts = {name: plain(value) for name, value in vars(machine).items() if name not in outside}
    nodes = {name: _attributes(node) for name, node in machine.graph.nodes.items()}
    return parts, nodes, machine.changes()


def plain(value: Any) -> Any:
    """Nested tuples of numbers and texts that are equal if the values are made alike. Nodes are told by their id."""
    match value:
        case None | bool() | int() | float() | str() | enum.Enum():
            return value
        case SliceNode():
            return "node", value.id
        case FunctionType() | MethodType():
            return value.__qualname__
        case Mapping():
            return tuple((plain(name), plain(part)) for name, part in value.items())
        case set() | frozenset():
            return tuple(sorted(repr(plain(part)) for part in value))
        case list() | tuple():
            return tuple(plain(part) for part in value)
        case _:
            return type(value).__name__, _attributes(value)


def _attributes(value: Any) -> Any:
    slots = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ()) if name not in UNSEEN]
    names = [*slots, *getattr(value, "__dict__", ())]
    return tuple((name, plain(getattr(value, name))) for name in names if hasattr(value, name))
