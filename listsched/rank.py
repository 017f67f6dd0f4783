"""Upward rank: how much work, at least, still follows a task, its own included.

`rank(t) = weight(t) + max(rank(d) for d in dependents of t)`, the priority of HEFT: H. Topcuoglu, S. Hariri, M.-Y. Wu,
"Performance-Effective and Low-Complexity Task Scheduling for Heterogeneous Computing", IEEE TPDS 13(3), 2002, with
one machine speed and no communication cost.

`upward_rank` and `critical_path` answer for a whole graph at once. `UpwardRanks` keeps the same numbers for a graph
that changes: an edit marks what it may have changed as stale, along with all that depends on the answer, and nothing
is computed before `refresh` is called. A node that is stale already ends the marking, so any run of edits between two
refreshes costs each node once.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    import networkx as nx

T = TypeVar("T", bound=Hashable)


def upward_rank(order: nx.DiGraph[T], durations: Mapping[T, float]) -> dict[T, float]:
    """The upward rank of every task. An edge u -> v says that v depends on u.

    >>> import networkx as nx
    >>> order = nx.DiGraph([("a", "b"), ("a", "c"), ("b", "d")])
    >>> upward_rank(order, {"a": 1, "b": 2, "c": 9, "d": 3})
    {'d': 3, 'c': 9, 'b': 5, 'a': 10}

    Raises `networkx.NetworkXUnfeasible` if the graph has a cycle.
    """
    import networkx as nx  # not above: it takes long to load, and who keeps ranks as a graph changes never needs it

    ranks: dict[T, float] = {}
    for task in reversed(list(nx.topological_sort(order))):
        ranks[task] = durations[task] + max((ranks[d] for d in order.successors(task)), default=0)
    return ranks


def critical_path(order: nx.DiGraph[T], durations: Mapping[T, float]) -> tuple[list[T], float]:
    """A longest chain through the graph, first task first, and its length; among equals the earliest in node order.

    >>> import networkx as nx
    >>> critical_path(nx.DiGraph([("a", "b"), ("a", "c")]), {"a": 1, "b": 2, "c": 9})
    (['a', 'c'], 10)
    """
    ranks = upward_rank(order, durations)
    path: list[T] = []
    step: Iterable[T] = order.nodes
    while (task := max(step, key=ranks.__getitem__, default=None)) is not None:
        path.append(task)
        step = order.successors(task)
    return path, (ranks[path[0]] if path else 0)


NO_NODES: tuple[Any, ...] = ()  # shared by all nodes without edges: a list each would cost 56 bytes


class Ranked:
    """A node whose upward rank is kept; subclass it to hang more on it.

    `depends_on` and `dependents` are its neighbours; `live` is False once it is out of the ranking; `upward` is right
    when `stale` is False. Only `UpwardRanks` writes them.
    """

    __slots__ = ("dependents", "depends_on", "live", "stale", "upward", "weight")

    def __init__(self, weight: float) -> None:
        self.weight = weight
        self.upward = weight
        self.stale = False
        self.live = True
        self.depends_on: Sequence[Any] = NO_NODES
        self.dependents: Sequence[Any] = NO_NODES


N = TypeVar("N", bound=Ranked)


class UpwardRanks(Generic[N]):
    """Upward ranks of a changing graph, recomputed where they may have changed, and only when asked.

    >>> ranks = UpwardRanks()
    >>> a, b = Ranked(1), Ranked(5)
    >>> ranks.link(a, b)
    >>> _ = ranks.refresh()
    >>> a.upward
    6
    >>> ranks.finish(b)
    >>> ranks.refresh() == [a], a.upward
    (True, 1)
    """

    __slots__ = ("_stale",)

    def __init__(self) -> None:
        self._stale: list[N] = []

    def link(self, before: N, after: N) -> None:
        """Let `after` depend on `before`. The caller answers for the graph staying acyclic."""
        if isinstance(dependents := before.dependents, list):
            dependents.append(after)
        else:
            before.dependents = [after]
        if isinstance(depends_on := after.depends_on, list):
            depends_on.append(before)
        else:
            after.depends_on = [before]
        if not before.stale and after.live and (after.stale or before.weight + after.upward > before.upward):
            self._spoil(before)

    def unlink_last(self, before: N, after: N) -> None:
        """Take back the edge that `link(before, after)` added last, both ends' newest: for undoing a refused batch."""
        assert before.dependents[-1] is after, "only the newest edge can be taken back"
        assert after.depends_on[-1] is before, "only the newest edge can be taken back"
        before.dependents = _without_last(before.dependents)
        after.depends_on = _without_last(after.depends_on)
        self._spoil(before)

    def finish(self, node: N) -> None:
        """Take `node` out of the ranking; its edges stay."""
        node.live = False
        for before in node.depends_on:
            if before.live and not before.stale and before.upward <= before.weight + node.upward:
                self._spoil(before)

    def reweigh(self, node: N, weight: float) -> None:
        """Give `node` another weight."""
        if weight != node.weight:
            node.weight = weight
            self._spoil(node)

    def refresh(self) -> list[N]:
        """Bring every rank up to date; returns the live nodes whose rank became another one."""
        changed: list[N] = []
        # Newest first: edges mostly run from older nodes to newer, so dependents are met before what waits for them.
        while self._stale:
            self._settle(self._stale.pop(), changed)
        return changed

    def _spoil(self, node: N) -> None:
        """Mark a node and every live ancestor stale: the invariant is that a stale node's live ancestors all are."""
        stack = [node]
        while stack:
            node = stack.pop()
            if node.live and not node.stale:
                node.stale = True
                self._stale.append(node)
                stack.extend(node.depends_on)

    def _settle(self, node: N, changed: list[N]) -> None:
        """Compute one stale node, its stale dependents first, by an explicit stack: chains are long."""
        stack = [node]
        while stack:
            node = stack[-1]
            below: float = 0
            if node.stale and node.live:
                for after in node.dependents:  # one loop for both: what is stale, and the greatest rank if nothing is
                    if after.live:
                        if after.stale:
                            stack.append(after)
                        elif after.upward > below:
                            below = after.upward
            if stack[-1] is not node:
                continue
            stack.pop()
            if not node.stale:
                continue
            node.stale = False
            if node.live and node.upward != (upward := node.weight + below):
                node.upward = upward
                changed.append(node)


def _without_last(nodes: Sequence[N]) -> Sequence[N]:
    assert isinstance(nodes, list), "a node without edges has none to take back"
    nodes.pop()
    return nodes or NO_NODES
