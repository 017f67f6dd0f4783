"""Which slices an intent is about."""

from __future__ import annotations

from collections.abc import Iterable

from dispatch.graph import SliceGraph, SliceNode
from dispatch.intent import Intent
from dispatch.slice import FINISHED, OCCUPYING, SliceState

# Nearer first: a message is best taken by a session that is at work, then by work that is still to come.
_NEARNESS = {
    SliceState.RUNNING: 0,
    SliceState.PREEMPTED: 0,
    SliceState.QUEUED: 1,
    SliceState.FAILED: 1,
    SliceState.IN_REVIEW: 1,
    SliceState.MERGED: 2,
}
assert {state for state, near in _NEARNESS.items() if near == 0} == OCCUPYING


def targets(graph: SliceGraph, intent: Intent) -> list[SliceNode]:
    """The unfinished slices that `intent` is about, in enqueue order."""
    if intent.scope in graph.nodes:
        node = graph.nodes[intent.scope]
        return [] if node.state in FINISHED else [node]
    scored = _scored(intent, (node for node in graph.nodes.values() if node.state not in FINISHED))
    most = max((score for score, _ in scored), default=0)
    return [node for score, node in scored if score == most]


def best_target(graph: SliceGraph, intent: Intent) -> SliceNode | None:
    """The one slice that a message with `intent` should go to; canceled ones are out of the question."""
    if intent.scope in graph.nodes:
        node = graph.nodes[intent.scope]
        return None if node.state is SliceState.CANCELED else node
    alive = (node for node in graph.nodes.values() if node.state is not SliceState.CANCELED)
    scored = _scored(intent, alive)
    best = min(scored, key=lambda pair: (-pair[0], _NEARNESS[pair[1].state], pair[1].seq), default=None)
    return best[1] if best else None


def terms_of(intent: Intent) -> list[str]:
    """Its terms as they are compared: trimmed, case folded, none empty, none twice."""
    return list(dict.fromkeys(term.strip().casefold() for term in intent.terms if term.strip()))


def _scored(intent: Intent, nodes: Iterable[SliceNode]) -> list[tuple[int, SliceNode]]:
    """How many terms each node's touch-set covers, those that cover none left out."""
    terms = terms_of(intent)
    if not terms:
        return []
    pairs = ((covered(terms, node), node) for node in nodes)
    return [(score, node) for score, node in pairs if score]


def covered(terms: list[str], node: SliceNode) -> int:
    """How many of the (folded) terms some path or hotspot of the node contains, as written."""
    touch = node.slice.touch
    names = [name.casefold() for name in (*touch.paths, *touch.hotspots)]
    return sum(any(term in name for name in names) for term in terms)
