"""Ranks kept up to date against ranks computed from scratch, after any edits."""

from __future__ import annotations

import networkx as nx
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from listsched import Ranked, UpwardRanks, critical_path, upward_rank
from tests.effort import examples

THOROUGH = settings(max_examples=examples(300), deadline=None, suppress_health_check=[HealthCheck.too_slow])
NODES = 8
NODE = st.integers(0, NODES - 1)
WEIGHT = st.integers(0, 50) | st.sampled_from([0.1, 0.2, 0.3, 0.7])
EDITS = st.one_of(
    st.tuples(st.just("link"), NODE, NODE),
    st.tuples(st.just("link and take back"), NODE, NODE),
    st.tuples(st.just("finish"), NODE, NODE),
    st.tuples(st.just("reweigh"), NODE, WEIGHT),
    st.tuples(st.just("refresh"), NODE, NODE),
)


class Both:
    """The same graph twice: with its ranks kept, and as networkx has it."""

    def __init__(self, weights: list[float]) -> None:
        self.ranks: UpwardRanks[Ranked] = UpwardRanks()
        self.nodes = [Ranked(weight) for weight in weights]
        self.plain: nx.DiGraph[int] = nx.DiGraph()
        self.plain.add_nodes_from(range(NODES))
        self.weights = dict(enumerate(weights))
        self.known = dict(enumerate(weights))

    def edit(self, what: str, one: int, other: float) -> None:
        if what == "finish":
            self.ranks.finish(self.nodes[one])
            self.plain.remove_nodes_from([one])
        elif what == "reweigh":
            self.ranks.reweigh(self.nodes[one], other)
            self.weights[one] = other
        elif what == "refresh":
            self.refresh()
        elif one != other:
            first, last = sorted((one, int(other)))
            self.ranks.link(self.nodes[first], self.nodes[last])
            if what == "link and take back":
                self.ranks.unlink_last(self.nodes[first], self.nodes[last])
            elif first in self.plain and last in self.plain:
                self.plain.add_edge(first, last)

    def refresh(self) -> None:
        changed = self.ranks.refresh()
        expected = upward_rank(self.plain, self.weights)
        assert {n: self.nodes[n].upward for n in self.plain} == expected
        indices = sorted(self.nodes.index(node) for node in changed)
        assert indices == [n for n in sorted(self.plain) if expected[n] != self.known[n]]
        self.known.update(expected)
        assert self.ranks.refresh() == []
        event(f"{len(changed)} changed")


@THOROUGH
@given(st.lists(WEIGHT, min_size=NODES, max_size=NODES), st.lists(EDITS, max_size=40))
def test_ranks_kept_are_ranks_computed(weights: list[float], edits: list[tuple[str, int, float]]) -> None:
    both = Both(weights)
    for edit in edits:
        both.edit(*edit)
    both.refresh()


@THOROUGH
@given(st.lists(WEIGHT, min_size=NODES, max_size=NODES), st.sets(st.tuples(NODE, NODE)))
def test_the_critical_path_is_a_longest_path(weights: list[float], pairs: set[tuple[int, int]]) -> None:
    order: nx.DiGraph[int] = nx.DiGraph()
    order.add_nodes_from(range(NODES))
    order.add_edges_from((min(pair), max(pair)) for pair in pairs if pair[0] != pair[1])
    path, length = critical_path(order, dict(enumerate(weights)))
    assert nx.is_path(order, path) if len(path) > 1 else len(path) == 1
    total: float = 0
    for node in reversed(path):
        total = weights[node] + total  # in the order of the ranks, so that floats agree
    assert length == total
    assert length == max(upward_rank(order, dict(enumerate(weights))).values())
