"""Upward ranks by hand, and how little is computed again when a graph changes."""

from __future__ import annotations

from itertools import pairwise

import networkx as nx
import pytest

from listsched import Ranked, UpwardRanks, critical_path, upward_rank


class Counted(Ranked):
    """Counts how often its rank is computed: once per reading of its weight, links aside."""

    __slots__ = ("_weight", "computed")

    def __init__(self, weight: float) -> None:
        self.computed = 0
        super().__init__(weight)

    @property
    def weight(self) -> float:
        self.computed += 1
        return self._weight

    @weight.setter
    def weight(self, weight: float) -> None:
        self._weight = weight


@pytest.mark.parametrize(
    ("edges", "lengths", "ranks", "path"),
    [
        pytest.param([], {}, {}, ([], 0), id="nothing"),
        pytest.param([], {"a": 4}, {"a": 4}, (["a"], 4), id="one task"),
        pytest.param(["ab", "bc"], {"a": 1, "b": 2, "c": 3}, {"a": 6, "b": 5, "c": 3}, (list("abc"), 6), id="a chain"),
        pytest.param(
            ["ab", "ac", "bd", "cd"],
            {"a": 1, "b": 5, "c": 2, "d": 1},
            {"a": 7, "b": 6, "c": 3, "d": 1},
            (list("abd"), 7),
            id="a diamond",
        ),
        pytest.param(
            ["ac", "bc"], {"a": 2, "b": 2, "c": 0}, {"a": 2, "b": 2, "c": 0}, (list("ac"), 2), id="ties by position"
        ),
    ],
)
def test_by_hand(
    edges: list[str], lengths: dict[str, float], ranks: dict[str, float], path: tuple[list[str], float]
) -> None:
    order: nx.DiGraph[str] = nx.DiGraph()
    order.add_nodes_from(lengths)
    order.add_edges_from((edge[0], edge[1]) for edge in edges)
    assert upward_rank(order, lengths) == ranks
    assert critical_path(order, lengths) == path


@pytest.mark.parametrize("ask", [upward_rank, critical_path])
def test_a_cycle_is_refused(ask: object) -> None:
    assert callable(ask)
    with pytest.raises(nx.NetworkXUnfeasible):
        ask(nx.DiGraph([("a", "b"), ("b", "a")]), {"a": 1, "b": 1})


def test_a_long_chain() -> None:
    order: nx.DiGraph[int] = nx.DiGraph()
    nx.add_path(order, range(100_000))
    assert critical_path(order, dict.fromkeys(order, 1)) == (list(range(100_000)), 100_000)


def chain(length: int) -> tuple[UpwardRanks[Counted], list[Counted]]:
    ranks: UpwardRanks[Counted] = UpwardRanks()
    nodes = [Counted(1) for _ in range(length)]
    for before, after in pairwise(nodes):
        ranks.link(before, after)
    ranks.refresh()
    for node in nodes:
        node.computed = 0
    return ranks, nodes


def test_a_long_chain_built_from_either_end() -> None:
    for turn in (1, -1):
        ranks: UpwardRanks[Ranked] = UpwardRanks()
        nodes = [Ranked(1) for _ in range(100_000)]
        for before, after in list(pairwise(nodes))[::turn]:
            ranks.link(before, after)
        ranks.refresh()
        assert [node.upward for node in nodes] == list(range(100_000, 0, -1))
        ranks.finish(nodes[-1])
        assert len(ranks.refresh()) == 99_999
        assert nodes[0].upward == 99_999


def test_nothing_is_computed_before_it_is_asked_for() -> None:
    ranks, nodes = chain(10)
    ranks.reweigh(nodes[9], 5)
    assert [node.computed for node in nodes] == [0] * 9 + [1]  # the comparison with the old weight
    assert nodes[0].upward == 10


def test_many_edits_cost_each_node_once() -> None:
    ranks, nodes = chain(1_000)
    for weight in range(2, 102):
        ranks.reweigh(nodes[999], weight)
        ranks.reweigh(nodes[500], weight)
    for node in nodes:
        node.computed = 0
    assert len(ranks.refresh()) == 1_000
    assert [node.computed for node in nodes] == [1] * 1_000


def test_only_what_depends_on_the_edit_is_computed() -> None:
    ranks, nodes = chain(100)
    ranks.reweigh(nodes[2], 3)
    nodes[2].computed = 0
    changed = ranks.refresh()
    assert set(changed) == set(nodes[:3])
    assert [node.computed for node in nodes] == [1] * 3 + [0] * 97


def test_an_edge_below_the_rank_changes_nothing() -> None:
    ranks, nodes = chain(5)
    ranks.link(nodes[0], nodes[3])
    assert ranks.refresh() == []
    assert sum(node.computed for node in nodes) == 1  # to see that it is below


def test_an_edge_to_a_node_whose_rank_is_not_known_yet() -> None:
    ranks: UpwardRanks[Ranked] = UpwardRanks()
    a, b, c = Ranked(1), Ranked(9), Ranked(2)
    ranks.link(a, b)
    ranks.refresh()
    ranks.reweigh(c, 20)
    ranks.link(a, c)
    assert set(ranks.refresh()) == {a, c}
    assert a.upward == 21


def test_an_edge_to_a_finished_node_changes_nothing() -> None:
    ranks: UpwardRanks[Counted] = UpwardRanks()
    a, b = Counted(1), Counted(9)
    ranks.finish(b)
    ranks.link(a, b)
    assert ranks.refresh() == []
    assert (a.upward, a.computed) == (1, 0)


def test_finishing_what_came_first_changes_nothing() -> None:
    ranks, nodes = chain(100)
    ranks.finish(nodes[0])
    assert ranks.refresh() == []
    assert sum(node.computed for node in nodes) == 0


def test_finishing_another_than_the_greatest_dependent_changes_nothing() -> None:
    ranks: UpwardRanks[Counted] = UpwardRanks()
    first, before, great, small = Counted(1), Counted(1), Counted(9), Counted(2)
    ranks.link(first, before)
    ranks.link(before, great)
    ranks.link(before, small)
    ranks.refresh()
    first.computed = 0
    ranks.finish(small)
    assert ranks.refresh() == []
    assert first.computed == 0


def test_a_finished_node_passes_no_rank_on() -> None:
    ranks: UpwardRanks[Ranked] = UpwardRanks()
    a, b, c = Ranked(1), Ranked(2), Ranked(4)
    ranks.link(a, b)
    ranks.link(b, c)
    ranks.refresh()
    assert a.upward == 7
    ranks.finish(b)
    assert ranks.refresh() == [a]
    assert a.upward == 1


def test_taking_the_newest_edge_back() -> None:
    ranks: UpwardRanks[Ranked] = UpwardRanks()
    a, b, c = Ranked(1), Ranked(2), Ranked(4)
    ranks.link(a, b)
    ranks.refresh()
    ranks.link(a, c)
    assert ranks.refresh() == [a]
    assert a.upward == 5
    ranks.unlink_last(a, c)
    assert ranks.refresh() == [a]
    assert (a.upward, list(a.dependents), list(c.depends_on)) == (3, [b], [])
    ranks.unlink_last(a, b)
    ranks.refresh()
    assert (a.upward, list(a.dependents), list(b.depends_on)) == (1, [], [])


def test_only_the_newest_edge_can_be_taken_back() -> None:
    ranks: UpwardRanks[Ranked] = UpwardRanks()
    a, b, c = Ranked(1), Ranked(2), Ranked(4)
    ranks.link(a, b)
    ranks.link(a, c)
    with pytest.raises(AssertionError, match="only the newest edge"):
        ranks.unlink_last(a, b)
