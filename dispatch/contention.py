"""Who excludes whom, answered from what is held now and never by comparing all pairs.

A node that excludes its contenders (it runs, is in review, or has room made for it) *claims* what it touches: its
hotspots in a dictionary, its patterns in an index of the few patterns claimed at this moment, and a count at each of
its declared contenders. Whether a waiting node is blocked is then a look at those, whatever the size of the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import TYPE_CHECKING

from dispatch.touch import Pattern, PatternIndex, overlap
from dispatch.views import Reason, ReasonCode

if TYPE_CHECKING:
    from dispatch.graph import SliceNode

NO_CONTENDERS: dict[SliceNode, None] = {}  # shared by all nodes that declare none; never written to


class Contention:
    """The claims. `wake(resource)` is called for each thing that stops being claimed: what waits for it may go on."""

    __slots__ = ("_claiming", "_hotspots", "_index", "_patterns", "_wake")

    def __init__(self, wake: Callable[[Hashable], None]) -> None:
        self._wake = wake
        self._claiming: dict[SliceNode, None] = {}
        self._hotspots: dict[str, set[SliceNode]] = {}
        self._patterns: dict[Pattern, set[SliceNode]] = {}
        self._index = PatternIndex()

    def __contains__(self, node: SliceNode) -> bool:
        return node in self._claiming

    def claim(self, node: SliceNode) -> None:
        """Let `node` exclude its contenders from now on; nothing if it does already."""
        if node in self._claiming:
            return
        self._claiming[node] = None
        for hotspot in node.slice.touch.hotspots:
            self._hotspots.setdefault(hotspot, set()).add(node)
        for pattern in node.patterns:
            holders = self._patterns.get(pattern)
            if holders is None:
                holders = self._patterns[pattern] = set()
                self._index.add(pattern)
            holders.add(node)
        for other in node.contends:
            other.excluders += 1

    def unclaim(self, node: SliceNode) -> None:
        """Let `node` exclude nobody; nothing if it did not."""
        if node not in self._claiming:
            return
        del self._claiming[node]
        for hotspot in dict.fromkeys(node.slice.touch.hotspots):
            holders = self._hotspots[hotspot]
            holders.remove(node)
            if not holders:
                del self._hotspots[hotspot]
            self._wake(hotspot)
        for pattern in node.patterns:
            holders = self._patterns[pattern]
            holders.remove(node)
            if not holders:
                del self._patterns[pattern]
                self._index.discard(pattern)
            self._wake(pattern)
        for other in node.contends:
            other.excluders -= 1
            if not other.excluders:
                self._wake(other)

    def declare(self, one: SliceNode, other: SliceNode) -> None:
        """Make the two contend; their claims of the moment count at once."""
        if other in one.contends:
            return
        for node, contender in ((one, other), (other, one)):
            if node.contends is NO_CONTENDERS:
                node.contends = {}
            node.contends[contender] = None
        one.excluders += other in self._claiming
        other.excluders += one in self._claiming

    def blocker(self, node: SliceNode) -> Hashable | None:
        """Something claimed by another node that keeps this one from starting, or None.

        It is what `wake` will be called with: a hotspot, a pattern, or the node itself for declared contenders.
        """
        if node.excluders:
            return node
        for hotspot in node.slice.touch.hotspots:
            if (holders := self._hotspots.get(hotspot)) and (len(holders) > 1 or node not in holders):
                return hotspot
        if node.patterns and self._patterns:
            return self._blocking_pattern(node)
        return None

    def _blocking_pattern(self, node: SliceNode) -> Pattern | None:
        if node not in self._claiming:
            for mine in node.patterns:  # most often many contend under the same pattern: no search then
                found = mine if mine in self._patterns else self._index.first_overlapping(mine)
                if found is not None:
                    return found
            return None
        for mine in node.patterns:
            for pattern in self._index.overlapping(mine):
                if self._patterns[pattern] - {node}:
                    return pattern
        return None

    def excluders(self, node: SliceNode) -> list[SliceNode]:
        """All that claim something `node` needs, itself left out, in the order in which they began to."""
        found: set[SliceNode] = set()
        for hotspot in node.slice.touch.hotspots:
            found |= self._hotspots.get(hotspot, set())
        for mine in node.patterns:
            for pattern in self._index.overlapping(mine):
                found |= self._patterns[pattern]
        if node.excluders:
            found |= self._claiming.keys() & node.contends.keys()
        found.discard(node)
        return [other for other in self._claiming if other in found] if found else []


def evidence(node: SliceNode, other: SliceNode) -> Iterator[Reason]:
    """Why the two contend, from `node`'s side: declared, by hotspot, by overlapping patterns with a witness."""
    name = other.slice.id
    if other in node.contends:
        yield Reason(ReasonCode.CONTENDS, f"contends with {name}, as declared", name)
    theirs = set(other.slice.touch.hotspots)
    for hotspot in node.slice.touch.hotspots:
        if hotspot in theirs:
            yield Reason(ReasonCode.CONTENDS, f"contends with {name} for the hotspot {hotspot}", name, hotspot)
    for mine in node.patterns:
        for pattern in other.patterns:
            if (witness := overlap(mine, pattern)) is not None:
                text = f"contends with {name}: {mine.text} and {pattern.text} both match {witness}"
                yield Reason(ReasonCode.CONTENDS, text, name, pattern.text, witness)


def contend(one: SliceNode, other: SliceNode) -> bool:
    """Whether the two may never run at once."""
    return next(evidence(one, other), None) is not None
