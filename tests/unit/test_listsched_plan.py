"""What a plan refuses, in words, and what it makes of the rest."""

from __future__ import annotations

import math
from typing import Any

import networkx as nx
import pytest

from listsched import Plan, PlanError, simulate

REFUSED: list[tuple[str, dict[str, Any], str]] = [
    (
        "a cycle",
        {"order": nx.DiGraph([("w", "a"), ("a", "b"), ("b", "c"), ("c", "a"), ("x", "a"), ("c", "y")])},
        "the order runs in a circle: 'a' -> 'b' -> 'c' -> 'a'",
    ),
    ("a task after itself", {"order": nx.DiGraph([("a", "a")])}, "the order runs in a circle: 'a' -> 'a'"),
    (
        "an undirected graph",
        {"order": nx.Graph([("a", "b")])},
        "order must be a directed graph, or nothing says which task comes first",
    ),
    ("no duration", {"durations": {"a": 1, "b": 2}}, "task 'c' has no duration"),
    (
        "a negative duration",
        {"durations": {"a": 1, "b": -2, "c": 3}},
        "task 'b' has the duration -2, not a finite number from 0 up",
    ),
    (
        "NaN as duration",
        {"durations": {"a": math.nan, "b": 2, "c": 3}},
        "task 'a' has the duration nan, not a finite number from 0 up",
    ),
    (
        "an endless duration",
        {"durations": {"a": math.inf, "b": 2, "c": 3}},
        "task 'a' has the duration inf, not a finite number from 0 up",
    ),
    (
        "a duration in words",
        {"durations": {"a": 1, "b": 2, "c": "long"}},
        "task 'c' has the duration 'long', not a finite number from 0 up",
    ),
    (
        "a stranger in a clique",
        {"conflicts": [("a", "b"), ("b", "z")]},
        "a conflict names 'z', which is no task of the order",
    ),
    ("a task that excludes itself", {"conflicts": [("a", "b", "a")]}, "a conflict names 'a' twice"),
    ("no place", {"capacity": 0}, "capacity must be a whole number from 1 up, or None for no limit, not 0"),
    (
        "fewer than no places",
        {"capacity": -3},
        "capacity must be a whole number from 1 up, or None for no limit, not -3",
    ),
    (
        "half a place",
        {"capacity": 1.5},
        "capacity must be a whole number from 1 up, or None for no limit, not 1.5",
    ),
    (
        "yes as capacity",
        {"capacity": True},
        "capacity must be a whole number from 1 up, or None for no limit, not True",
    ),
    ("a missing priority", {"priority": {"a": 1, "b": 2}}, "task 'c' has no priority"),
    ("NaN as priority", {"priority": {"a": 1, "b": math.nan, "c": 0}}, "a priority is NaN, which can't be sorted"),
    (
        "priorities of two kinds",
        {"priority": {"a": 1, "b": "2", "c": 0}},
        "the priorities can't be compared with one another: '<' not supported between instances of 'str' and 'int'",
    ),
]


@pytest.mark.parametrize(("change", "message"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_refusals(change: dict[str, Any], message: str) -> None:
    sound = {
        "order": nx.DiGraph([("a", "b"), ("a", "c")]),
        "durations": dict(zip("abcwxy", (1, 2, 3, 1, 1, 1), strict=True)),
    }
    assert Plan.of(**sound).capacity is None  # without the change nothing is wrong
    with pytest.raises(PlanError) as refusal:
        Plan.of(**{**sound, **change})
    assert str(refusal.value) == message


def test_a_plan_error_is_a_value_error() -> None:
    assert issubclass(PlanError, ValueError)


def test_a_cycle_far_down_a_long_chain_is_found() -> None:
    order = nx.DiGraph()
    nx.add_path(order, range(100_000))
    order.add_edges_from([(99_999, 100_000), (100_000, 99_998)])
    with pytest.raises(PlanError, match=r"99998 -> 99999 -> 100000 -> 99998$"):
        Plan.of(order, dict.fromkeys(order, 1))


def test_a_cycle_of_a_hundred_thousand_tasks_is_spelled_out_in_order() -> None:
    order = nx.DiGraph()
    nx.add_cycle(order, range(100_000))
    with pytest.raises(PlanError) as refusal:
        Plan.of(order, dict.fromkeys(order, 1))
    steps = str(refusal.value).removeprefix("the order runs in a circle: ").split(" -> ")
    assert steps == [*map(str, range(100_000)), "0"]


@pytest.mark.parametrize(
    ("conflicts", "kept"),
    [
        ([["a", "b"]], (("a", "b"),)),
        ((pair for pair in [("b", "c")]), (("b", "c"),)),
        ([[], ["a"]], ((), ("a",))),
    ],
)
def test_conflicts_come_as_any_iterable(conflicts: Any, kept: object) -> None:
    order = nx.DiGraph([("a", "b"), ("a", "c")])
    assert Plan.of(order, {"a": 1, "b": 1, "c": 1}, conflicts).conflicts == kept


@pytest.mark.parametrize(
    ("priority", "sequence"),
    [
        pytest.param(None, "cabd", id="by upward rank, ties by position"),
        pytest.param({"a": 0, "b": 0, "c": 0, "d": 0}, "abcd", id="equal keys by position"),
        pytest.param({"a": 3, "b": 2, "c": 1, "d": 0}, "dcba", id="the smaller the earlier"),
        pytest.param({"a": (1, "y"), "b": (1, "x"), "c": (0, "z"), "d": (2, "a")}, "cbad", id="keys of any kind"),
    ],
)
def test_the_list(priority: Any, sequence: str) -> None:
    order: nx.DiGraph[str] = nx.DiGraph()
    order.add_nodes_from("abcd")
    plan = Plan.of(order, {"a": 2, "b": 2, "c": 3, "d": 1}, capacity=1, priority=priority)
    assert "".join(simulate(plan).intervals) == sequence


def test_the_list_by_upward_rank_counts_what_follows() -> None:
    order = nx.DiGraph([("short", "then"), ("then", "last")])
    order.add_node("long")
    plan = Plan.of(order, {"short": 1, "then": 1, "last": 5, "long": 6.5}, capacity=1)
    assert list(simulate(plan).intervals) == ["short", "long", "then", "last"]
