"""Bounds worked out by hand."""

from __future__ import annotations

from typing import Any

import networkx as nx
import pytest

from listsched import Plan, graham_bound, lower_bound, simulate


def plan(edges: str, lengths: dict[str, float], **more: Any) -> Plan[str]:
    order: nx.DiGraph[str] = nx.DiGraph()
    order.add_nodes_from(lengths)
    order.add_edges_from((edge[0], edge[1]) for edge in edges.split())
    return Plan.of(order, lengths, **more)


@pytest.mark.parametrize(
    ("given", "bound"),
    [
        pytest.param(plan("", {}), 0, id="nothing"),
        pytest.param(plan("", {}, capacity=3), 0, id="nothing, on three places"),
        pytest.param(plan("ab ac", {"a": 2, "b": 3, "c": 4}), 6, id="the critical path"),
        pytest.param(plan("", {"a": 2, "b": 2, "c": 2}, capacity=2), 3, id="the work by the capacity"),
        pytest.param(plan("", {"a": 2, "b": 2, "c": 3}, capacity=2), 4, id="rounded up when all is whole"),
        pytest.param(plan("", {"a": 2, "b": 2.0, "c": 3}, capacity=2), 3.5, id="not rounded else"),
        pytest.param(plan("", {"a": 2, "b": 3, "c": 9}, conflicts=["ab"]), 9, id="a light clique"),
        pytest.param(plan("", {"a": 2, "b": 3, "c": 4}, conflicts=["ab", "abc"]), 9, id="the heaviest clique"),
        pytest.param(plan("lz sz", {"l": 5, "s": 1, "z": 2}), 7, id="the longer of two chains, met first"),
        pytest.param(plan("sz lz", {"s": 1, "l": 5, "z": 2}), 7, id="the longer of two chains, met last"),
        pytest.param(
            plan("ha hb at bt", {"h": 5, "a": 2, "b": 3, "t": 7}, conflicts=["ab"]), 17, id="with head and tail"
        ),
        pytest.param(
            plan("ha hb at", {"h": 5, "a": 2, "b": 3, "t": 7}, conflicts=["ab"]),
            14,
            id="the shortest tail of the clique, or the critical path",
        ),
        pytest.param(
            plan("ha hb", {"h": 5, "a": 2, "b": 3, "c": 1}, conflicts=["abc"]), 10, id="a part of the clique says more"
        ),
        pytest.param(plan("ax by", {"a": 4, "x": 6, "b": 4, "y": 6}, conflicts=["ab"]), 14, id="equal heads and tails"),
        pytest.param(plan("", {"a": 0, "b": 0}, conflicts=["ab"], capacity=1), 0, id="no work"),
    ],
)
def test_lower_bound(given: Plan[str], bound: float) -> None:
    assert lower_bound(given) == bound
    assert simulate(given).makespan >= bound


@pytest.mark.parametrize(
    ("given", "bound"),
    [
        pytest.param(plan("", {}, capacity=2), 0, id="nothing"),
        pytest.param(plan("ab", {"a": 2, "b": 3, "c": 4}), 5, id="no capacity: the critical path"),
        pytest.param(plan("ab", {"a": 2, "b": 3, "c": 4}, capacity=1), 9, id="one place: all the work"),
        pytest.param(plan("", {"a": 1, "b": 1, "c": 2}, capacity=2), 3, id="two places"),
        pytest.param(plan("", {"a": 1, "b": 1, "c": 1}, capacity=2), 2, id="rounded down when all is whole"),
        pytest.param(plan("", {"a": 1.0, "b": 1, "c": 1.5}, capacity=2), 2.5, id="not rounded else"),
        pytest.param(plan("", {"a": 1, "b": 1, "c": 1}, capacity=3, conflicts=["abc"]), 3, id="one clique of all"),
        pytest.param(plan("", {"a": 1, "b": 4, "c": 9, "d": 9}, capacity=None, conflicts=["ab"]), 9, id="off the path"),
        pytest.param(plan("", {"a": 5, "b": 4, "c": 1}, conflicts=["ab"]), 9, id="a conflict on the path"),
        pytest.param(plan("", {"a": 5, "b": 4}, conflicts=["ab", "ba", "ab"]), 9, id="never more than all the work"),
    ],
)
def test_graham_bound(given: Plan[str], bound: float) -> None:
    assert graham_bound(given) == bound
    assert simulate(given).makespan <= bound


@pytest.mark.parametrize("places", range(1, 8))
def test_grahams_bound_is_reached(places: int) -> None:
    """Graham's worst case: the one long task is listed last, after short ones that fill every place."""
    shorts = places * (places - 1)
    order: nx.DiGraph[int] = nx.DiGraph()
    order.add_nodes_from(range(shorts + 1))
    durations = {task: 1 if task < shorts else places for task in order}
    given = Plan.of(order, durations, capacity=places, priority={task: task for task in order})
    assert simulate(given).makespan == graham_bound(given) == 2 * places - 1
    best = Plan.of(order, durations, capacity=places)
    assert simulate(best).makespan == lower_bound(best) == places


def test_bounds_of_a_chain_of_a_hundred_thousand_tasks() -> None:
    order: nx.DiGraph[int] = nx.DiGraph()
    nx.add_path(order, range(100_000))
    given = Plan.of(order, dict.fromkeys(order, 1), conflicts=[range(0, 100_000, 2)], capacity=3)
    assert lower_bound(given) == graham_bound(given) == 100_000
