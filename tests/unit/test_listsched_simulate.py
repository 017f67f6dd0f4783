"""Schedules worked out by hand, and what `Schedule.check` says about broken ones."""

from __future__ import annotations

import math
from typing import Any

import networkx as nx
import pytest

from listsched import Plan, Schedule, simulate


def graph(nodes: str, *edges: str) -> nx.DiGraph[str]:
    """Tasks of one letter each; "ab" is the edge a -> b."""
    order: nx.DiGraph[str] = nx.DiGraph()
    order.add_nodes_from(nodes)
    order.add_edges_from((edge[0], edge[1]) for edge in edges)
    return order


def plan(nodes: str, edges: str, lengths: list[float], **more: Any) -> Plan[str]:
    listed = dict(zip(nodes, range(len(nodes)), strict=True))
    return Plan.of(graph(nodes, *edges.split()), dict(zip(nodes, lengths, strict=True)), priority=listed, **more)


BY_HAND = [
    pytest.param(plan("", "", []), {}, 0, 0, id="nothing to do"),
    pytest.param(plan("a", "", [3]), {"a": (0, 3)}, 3, 1, id="one task"),
    pytest.param(plan("ab", "", [3, 2]), {"a": (0, 3), "b": (0, 2)}, 3, 2, id="no order, no limit"),
    pytest.param(plan("ab", "ba", [3, 2]), {"b": (0, 2), "a": (2, 5)}, 5, 1, id="order"),
    pytest.param(
        plan("abc", "", [2, 2, 2], capacity=2),
        {"a": (0, 2), "b": (0, 2), "c": (2, 4)},
        4,
        2,
        id="the capacity",
    ),
    pytest.param(
        plan("abc", "", [4, 1, 1], capacity=2, conflicts=["ab"]),
        {"a": (0, 4), "c": (0, 1), "b": (4, 5)},
        5,
        2,
        id="a blocked task holds nothing back",
    ),
    pytest.param(
        plan("abcd", "", [2, 2, 2, 2], conflicts=["abc"]),
        {"a": (0, 2), "d": (0, 2), "b": (2, 4), "c": (4, 6)},
        6,
        2,
        id="a clique goes one by one",
    ),
    pytest.param(
        plan("abc", "", [1, 1, 1], conflicts=["ac", "bc"]),
        {"a": (0, 1), "b": (0, 1), "c": (1, 2)},
        2,
        2,
        id="blocked by two",
    ),
    pytest.param(
        plan("abcd", "", [2, 1, 1, 1], conflicts=["ac", "bc", "bd"]),
        {"a": (0, 2), "b": (0, 1), "d": (1, 2), "c": (2, 3)},
        3,
        2,
        id="one of the two that block it ends first",
    ),
    pytest.param(
        plan("abcd", "ad bc", [2, 2, 9, 1], capacity=2, conflicts=["cd"]),
        {"a": (0, 2), "b": (0, 2), "c": (2, 11), "d": (11, 12)},
        12,
        2,
        id="what ends at one instant ends together, then one pick",
    ),
    pytest.param(
        plan("abc", "ab bc", [0, 0, 0], capacity=1),
        {"a": (0, 0), "b": (0, 0), "c": (0, 0)},
        0,
        1,
        id="a chain that takes no time",
    ),
    pytest.param(
        plan("abc", "", [3, 0, 0], conflicts=["ab"]),
        {"a": (0, 3), "c": (0, 0), "b": (3, 3)},
        3,
        1,
        id="a moment waits for its conflict as all do",
    ),
    pytest.param(
        plan("abz", "", [2, 3, 0], capacity=2),
        {"a": (0, 2), "b": (0, 3), "z": (2, 2)},
        3,
        2,
        id="a moment beside a running task",
    ),
    pytest.param(plan("ab", "ab", [0.1, 0.2]), {"a": (0, 0.1), "b": (0.1, 0.1 + 0.2)}, 0.1 + 0.2, 1, id="floats"),
]


@pytest.mark.parametrize(("given", "intervals", "makespan", "concurrency"), BY_HAND)
def test_by_hand(
    given: Plan[str], intervals: dict[str, tuple[float, float]], makespan: float, concurrency: int
) -> None:
    schedule = simulate(given)
    assert list(schedule.intervals.items()) == list(intervals.items())  # in order of start, too
    assert (schedule.makespan, schedule.concurrency) == (makespan, concurrency)
    schedule.check()


ANOMALY = ("ai de df dg dh", [3, 2, 2, 2, 4, 4, 4, 4, 9])


@pytest.mark.parametrize(
    ("edges", "lengths", "capacity", "makespan"),
    [
        pytest.param(*ANOMALY, 3, 12, id="as it is"),
        pytest.param(*ANOMALY, 4, 15, id="one place more"),
        pytest.param(ANOMALY[0], [length - 1 for length in ANOMALY[1]], 3, 13, id="every task shorter"),
        pytest.param("ai dg dh", ANOMALY[1], 3, 16, id="two constraints fewer"),
    ],
)
def test_grahams_anomalies(edges: str, lengths: list[float], capacity: int, makespan: int) -> None:
    """The example of Graham (1969), section 2: what should help makes the schedule longer."""
    schedule = simulate(plan("abcdefghi", edges, lengths, capacity=capacity))
    schedule.check()
    assert schedule.makespan == makespan


@pytest.mark.parametrize("capacity", [None, 1, 7])
def test_a_chain_of_a_hundred_thousand_tasks(capacity: int | None) -> None:
    order: nx.DiGraph[int] = nx.DiGraph()
    nx.add_path(order, range(100_000))
    schedule = simulate(Plan.of(order, dict.fromkeys(order, 2), capacity=capacity))
    schedule.check()
    assert (schedule.makespan, schedule.concurrency) == (200_000, 1)


def test_ten_thousand_tasks_behind_one_conflict() -> None:
    order: nx.DiGraph[int] = nx.DiGraph()
    order.add_nodes_from(range(10_000))
    schedule = simulate(Plan.of(order, dict.fromkeys(order, 1), conflicts=[range(10_000)], capacity=8))
    schedule.check()
    assert list(schedule.intervals.items()) == [(task, (task, task + 1)) for task in range(10_000)]


GIVEN = plan("abcz", "ab az", [2, 3, 3, 0], capacity=2, conflicts=["bc"])
SOUND_LATE = {"a": (0, 2), "c": (0, 3), "b": (3, 6), "z": (6, 6)}

BROKEN = [
    pytest.param({"b": None}, "'b' is not scheduled", id="one is missing"),
    pytest.param({"q": (0, 1)}, "'q' is scheduled but no task of the plan", id="a stranger"),
    pytest.param({"c": (-1, 2)}, "'c' takes 3 from 0 on but runs from -1 to 2", id="before time began"),
    pytest.param({"c": (0, 2)}, "'c' takes 3 from 0 on but runs from 0 to 2", id="cut short"),
    pytest.param({"z": (7, 8)}, "'z' takes 0 from 0 on but runs from 7 to 8", id="too long"),
    pytest.param({"c": (math.nan, 3)}, "'c' takes 3 from 0 on but runs from nan to 3", id="no number"),
    pytest.param({"z": (1, 1)}, "'z' starts at 1, before 'a' ends at 2", id="before its predecessor's end"),
    pytest.param({"z": (1.9, 1.9)}, "'z' starts at 1.9, before 'a' ends at 2", id="only just before"),
    pytest.param({"b": (2, 5)}, "'c' and 'b' exclude each other but both run at 2", id="two that exclude each other"),
    pytest.param(
        {"c": (6, 9), "b": (6.5, 9.5)}, "'c' and 'b' exclude each other but both run at 6.5", id="the same, later"
    ),
]


@pytest.mark.parametrize(("change", "message"), BROKEN)
def test_check_names_the_evidence(change: dict[str, Any], message: str) -> None:
    Schedule(GIVEN, SOUND_LATE).check()  # without the change nothing is wrong
    intervals = {task: times for task, times in {**SOUND_LATE, **change}.items() if times is not None}
    with pytest.raises(AssertionError) as refusal:
        Schedule(GIVEN, intervals).check()
    assert str(refusal.value) == message


@pytest.mark.parametrize(
    ("nodes", "lengths", "intervals", "message"),
    [
        pytest.param(
            "abc",
            [2, 2, 2],
            {"a": (0, 2), "b": (1, 3), "c": (1.5, 3.5)},
            "3 tasks run at 1.5, of 2 allowed: 'a', 'b', 'c'",
            id="three at once",
        ),
        pytest.param(
            "abz",
            [2, 2, 0],
            {"a": (0, 2), "b": (0, 2), "z": (1, 1)},
            "3 tasks run at 1, of 2 allowed: 'a', 'b', 'z'",
            id="a moment beside two",
        ),
    ],
)
def test_check_counts_places(nodes: str, lengths: list[float], intervals: Any, message: str) -> None:
    with pytest.raises(AssertionError) as refusal:
        Schedule(plan(nodes, "", lengths, capacity=2), intervals).check()
    assert str(refusal.value) == message


@pytest.mark.parametrize(
    "intervals",
    [
        pytest.param({"a": (0, 2), "b": (2, 4), "z": (2, 2)}, id="between two"),
        pytest.param({"a": (0, 2), "b": (2, 4), "z": (0, 0)}, id="before all"),
        pytest.param({"a": (5, 7), "b": (1, 3), "z": (4, 4)}, id="in a gap"),
    ],
)
def test_check_lets_a_moment_pass_between_two_tasks(intervals: Any) -> None:
    given = plan("abz", "", [2, 2, 0], capacity=1, conflicts=["abz"])
    schedule = Schedule(given, intervals)
    schedule.check()
    assert schedule.concurrency == 1


def test_check_sees_a_moment_inside_a_conflicting_task() -> None:
    given = plan("az", "", [2, 0], conflicts=["az"])
    with pytest.raises(AssertionError, match="'a' and 'z' exclude each other but both run at 1"):
        Schedule(given, {"a": (0, 2), "z": (1, 1)}).check()
