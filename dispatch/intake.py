"""Whether slices can be taken into a graph: all of them, or the first reason why not."""

from __future__ import annotations

from collections.abc import Sequence

from dispatch.errors import CycleError, SliceExistsError, SliceFinishedError, UnknownSliceError
from dispatch.graph import SliceGraph, check_acyclic
from dispatch.slice import Slice, SliceState, check_slice


def admit(graph: SliceGraph, slices: Sequence[Slice]) -> None:
    """Refuse all of them if one can't be taken in. They may name one another in any order."""
    nodes, new = graph.nodes, dict[str, Slice]()
    for slice_ in slices:
        check_slice(slice_)
        if slice_.id in nodes or slice_.id in new:
            raise SliceExistsError(slice_.id)
        new[slice_.id] = slice_
    for slice_ in slices:
        if slice_.depends_on or slice_.required_by or slice_.contends:
            _admit_references(graph, slice_, new)
    check_acyclic(new, nodes)


def _admit_references(graph: SliceGraph, slice_: Slice, new: dict[str, Slice]) -> None:
    nodes = graph.nodes
    for name in (*slice_.depends_on, *slice_.required_by, *slice_.contends):
        if name == slice_.id:
            raise CycleError((name, name))
        if name not in nodes and name not in new:
            raise UnknownSliceError(name, slice_.id)
    for name in slice_.depends_on:
        if name in nodes and nodes[name].state is SliceState.CANCELED:
            raise SliceFinishedError(name, "canceled", "depend on")
    for name in slice_.required_by:
        if name in nodes and nodes[name].state not in (SliceState.QUEUED, SliceState.FAILED):
            raise SliceFinishedError(name, nodes[name].state.value, "be required by")
