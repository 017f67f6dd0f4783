"""Where a graph stands: whether anything can still happen by itself, and why each slice that waits can't start.

Told from a snapshot alone. A slice that waits for nothing but a place is ready; all others are blocked, by something of
their own (a hold, a review that excludes them) or by the nearest predecessor that will not merge by itself.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Iterator, Mapping

import attrs

from dispatch.slice import OCCUPYING, Slice, SliceState
from dispatch.touch import Pattern, PatternIndex
from dispatch.view.text import hold_words
from dispatch.views import SliceView, Snapshot

HELD, STRANDED, EXCLUDED, PAUSED = "held", "stranded", "excluded", "paused"


@attrs.frozen
class Block:
    """Why a queued slice can't start: `kind` is one of the above, `root` the slice that is in its way, if any."""

    kind: str
    text: str
    root: str = ""


@attrs.frozen
class Standing:
    """`blocked` has the queued slices that can't start, in enqueue order; `ready` those that only need a place.

    `over`: nothing runs, and nothing can start unless somebody does something.
    """

    blocked: Mapping[str, Block]
    ready: tuple[str, ...]
    over: bool


def standing(snapshot: Snapshot) -> Standing:
    """In time linear in slices and edges."""
    views = {view.id: view for view in snapshot.slices}
    reviews = Reviews(view.slice for view in snapshot.slices if view.state is SliceState.IN_REVIEW)
    own = {view.id: block for view in snapshot.slices if (block := _own_block(view, reviews)) is not None}
    stranded = _stranded(views, own)
    blocked: dict[str, Block] = {}
    ready: list[str] = []
    for view in snapshot.slices:
        if view.state is not SliceState.QUEUED:
            continue
        block = own.get(view.id) or stranded.get(view.id)
        if block is None and snapshot.paused:
            block = Block(PAUSED, f"the graph is paused: {snapshot.paused}")
        if block is not None:
            blocked[view.id] = block
        elif not view.waits_for:
            ready.append(view.id)
    working = any(view.state in OCCUPYING for view in snapshot.slices)
    return Standing(blocked, tuple(ready), over=not working and not ready)


class Reviews:
    """What the slices in review exclude."""

    def __init__(self, slices: Iterable[Slice]) -> None:
        self._hotspots: dict[str, str] = {}
        self._patterns: dict[str, str] = {}
        self._named: dict[str, str] = {}
        self._ids: set[str] = set()
        self._index = PatternIndex()
        for each in slices:
            self._ids.add(each.id)
            self._hotspots.update(dict.fromkeys(each.touch.hotspots, each.id))
            self._named.update(dict.fromkeys(each.contends, each.id))
            for text in each.touch.paths:
                pattern = Pattern.parse(text)
                self._index.add(pattern)
                self._patterns[pattern.text] = each.id

    def excluder(self, wanted: Slice) -> str:
        """The id of one that excludes `wanted`, or nothing."""
        return next(self._excluders(wanted), "") if self._ids else ""

    def _excluders(self, wanted: Slice) -> Iterator[str]:
        if wanted.id in self._named:
            yield self._named[wanted.id]
        yield from (name for name in wanted.contends if name in self._ids)
        yield from (self._hotspots[name] for name in wanted.touch.hotspots if name in self._hotspots)
        for text in wanted.touch.paths:
            found = self._index.first_overlapping(Pattern.parse(text))
            if found is not None:
                yield self._patterns[found.text]


def _own_block(view: SliceView, reviews: Reviews) -> Block | None:
    if view.state is not SliceState.QUEUED:
        return None
    if view.hold:
        return Block(HELD, hold_words(view.hold))
    if not view.waits_for and (other := reviews.excluder(view.slice)):
        return Block(EXCLUDED, f"contends with {other}, which is in review", other)
    return None


_WILL_NOT_MERGE = {
    SliceState.FAILED: "failed",
    SliceState.CANCELED: "was canceled",
    SliceState.IN_REVIEW: "is in review",
}


def _stranded(views: Mapping[str, SliceView], own: Mapping[str, Block]) -> dict[str, Block]:
    """The queued slices behind one that will not merge by itself, each with the nearest such."""
    dependents: dict[str, list[str]] = {}
    for view in views.values():
        for name in view.waits_for:
            dependents.setdefault(name, []).append(view.id)
    roots = {view.id: _WILL_NOT_MERGE[view.state] for view in views.values() if view.state in _WILL_NOT_MERGE}
    roots |= {name: "is held" if block.kind == HELD else f"can't start: {block.text}" for name, block in own.items()}
    found: dict[str, Block] = {}
    queue = collections.deque((name, name) for name in roots)
    while queue:
        name, root = queue.popleft()
        for after in dependents.get(name, ()):
            if after not in found and after not in own:
                found[after] = Block(STRANDED, f"needs {root}, which {roots[root]}", root)
                queue.append((after, root))
    return found
