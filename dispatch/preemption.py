"""Making room for urgent slices: exactly what is needed, whenever it becomes possible, or nobody is asked."""

from __future__ import annotations

from collections.abc import Callable

from dispatch.graph import SliceGraph, SliceNode
from dispatch.intent import Urgency
from dispatch.slice import SliceState


def prune_room(graph: SliceGraph) -> None:
    """Take out of room what is no longer urgent and waiting, or what a slice in review excludes."""
    for node in list(graph.room):
        waits = node.in_frontier and not node.hold and node.urgency == Urgency.URGENT.value
        if not waits or _reviewed(graph, node):
            graph.leave_room(node)


def make_room(graph: SliceGraph, cap: int, preempt: Callable[[SliceNode, SliceNode], None]) -> bool:
    """For each urgent slice left waiting, in rank order, make room if its victims all rank below it.

    `preempt(victim, urgent)` must move the victim out of `running`. Returns whether any slice joined room.
    """
    left = sorted(graph.urgent - graph.room.keys(), key=SliceNode.key) if graph.urgent else []
    joined = False
    for node in left:
        key = node.key()
        staying = [other for other in graph.occupying() if other.staying]
        spare = cap - len(staying) - len(graph.room)
        if spare < 1 and not any(other.key() > key for other in staying):
            break  # no place will be free and nobody ranks below it: nor below those that follow
        victims = _victims(graph, node, staying, spare)
        if victims is not None:
            for victim in victims:
                preempt(victim, node)
            graph.make_room(node)
            joined = True
    return joined


def _victims(graph: SliceGraph, node: SliceNode, staying: list[SliceNode], spare: int) -> list[SliceNode] | None:
    """Whom `node` displaces; None if it may not, or can't be helped that way. `spare`: cap - staying - room.

    In enqueue order: what depended on who began first would come out otherwise after a restart.
    """
    excluders = graph.claims.excluders(node)
    if any(other.state is SliceState.IN_REVIEW or other in graph.room for other in excluders):
        return None
    key = node.key()
    contenders = sorted((other for other in excluders if other.staying), key=lambda other: other.seq)
    if any(other.key() < key for other in contenders):
        return None
    seats = spare + len(contenders)
    if seats < 0:
        return None
    if seats > 0:
        return contenders
    others = [other for other in staying if other not in contenders]
    lowest = max(others, key=SliceNode.key, default=None)
    if lowest is None or lowest.key() < key:
        return None
    return [*contenders, lowest]


def _reviewed(graph: SliceGraph, node: SliceNode) -> bool:
    return any(other.state is SliceState.IN_REVIEW for other in graph.claims.excluders(node))
