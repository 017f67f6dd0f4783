"""The simulator against a walk of the whole list at every instant; the bounds against schedules of every kind."""

from __future__ import annotations

import math
from itertools import combinations, permutations
from typing import Any

import networkx as nx
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from listsched import Plan, Schedule, graham_bound, lower_bound, simulate, upward_rank
from tests.effort import examples

THOROUGH = settings(max_examples=examples(300), deadline=None, suppress_health_check=[HealthCheck.too_slow])
Intervals = dict[str, tuple[float, float]]

WHOLE = st.integers(0, 4)
FLOATS = st.integers(0, 12).map(lambda tenths: tenths * 0.1)  # sums that meet exactly, and sums that only nearly do


@st.composite
def plans(
    draw: st.DrawFn, lengths: st.SearchStrategy[float] = WHOLE, most: int = 10, conflicts: bool = True
) -> Plan[str]:
    """Plans of a few tasks, their nodes in any order, with ties of every kind."""
    names = draw(st.permutations("abcdefghijkl"[: draw(st.integers(0, most))]))
    order: nx.DiGraph[str] = nx.DiGraph()
    order.add_nodes_from(names)
    pairs = list(combinations(sorted(names), 2))
    order.add_edges_from(draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else [])
    cliques: list[list[str]] = []
    if conflicts and names:
        cliques = draw(st.lists(st.lists(st.sampled_from(names), unique=True, max_size=5), max_size=4))
    return Plan.of(
        order,
        {name: draw(lengths) for name in names},
        cliques,
        draw(st.none() | st.integers(1, 4)),
        draw(st.none() | st.just({name: draw(st.integers(0, 3)) for name in names})),
    )


def walk(plan: Plan[str]) -> Intervals:
    """List scheduling as it is defined: at every instant the whole list is walked, best first."""
    keys: Any = plan.priority
    if keys is None:
        keys = {task: -rank for task, rank in upward_rank(plan.order, plan.durations).items()}
    intervals: Intervals = {}
    running: Intervals = {}
    now: float = 0
    while True:
        for task in sorted(plan.order, key=keys.__getitem__):
            if (
                task not in intervals
                and all(before in intervals and before not in running for before in plan.order.predecessors(task))
                and not any(task in clique and not running.keys().isdisjoint(clique) for clique in plan.conflicts)
                and (plan.capacity is None or len(running) < plan.capacity)
            ):
                running[task] = intervals[task] = (now, now + plan.durations[task])
        if not running:
            return intervals
        now = min(finish for _, finish in running.values())
        running = {task: times for task, times in running.items() if times[1] > now}


def feasible(plan: Plan[str], intervals: Intervals) -> bool:
    """Whether what is scheduled keeps order, conflicts and capacity, by all pairs of tasks."""

    def overlap(a: str, b: str) -> bool:
        return intervals[a][0] < intervals[b][1] and intervals[b][0] < intervals[a][1]

    def meets_the_start_of(task: str, other: str) -> bool:
        (instant, end), (start, finish) = intervals[task], intervals[other]
        return start <= instant < finish if instant < end else start < instant < finish

    edges = [edge for edge in plan.order.edges if intervals.keys() >= {*edge}]
    pairs = [pair for clique in plan.conflicts for pair in combinations(clique, 2) if intervals.keys() >= {*pair}]
    places = plan.capacity or len(intervals)
    return (
        all(intervals[before][1] <= intervals[after][0] for before, after in edges)
        and not any(overlap(a, b) for a, b in pairs)
        and all(
            sum(other == task or meets_the_start_of(task, other) for other in intervals) <= places for task in intervals
        )
    )


@THOROUGH
@given(plans() | plans(FLOATS))
def test_the_simulator_is_a_walk_of_the_list(plan: Plan[str]) -> None:
    schedule = simulate(plan)
    assert schedule.intervals == walk(plan)
    schedule.check()
    assert schedule.makespan == max((finish for _, finish in schedule.intervals.values()), default=0)
    event(f"concurrency {schedule.concurrency}")


@THOROUGH
@given(plans(), st.data())
def test_check_agrees_with_a_look_at_all_pairs(plan: Plan[str], data: st.DataObject) -> None:
    intervals = dict(simulate(plan).intervals)
    for task in data.draw(st.lists(st.sampled_from(sorted(plan.order)), max_size=3)) if intervals else []:
        start = data.draw(st.integers(0, 9))
        intervals[task] = (start, start + plan.durations[task])
    try:
        Schedule(plan, intervals).check()
        sound = True
    except AssertionError:
        sound = False
    assert sound == feasible(plan, intervals)
    event("feasible" if sound else "broken")


@THOROUGH
@given(plans())
def test_every_schedule_is_between_the_bounds(plan: Plan[str]) -> None:
    makespan = simulate(plan).makespan
    assert lower_bound(plan) <= makespan <= graham_bound(plan)
    assert all(isinstance(bound, int) for bound in (lower_bound(plan), makespan, graham_bound(plan)))


@THOROUGH
@given(plans(conflicts=False))
def test_without_conflicts_and_capacity_the_bounds_meet_at_the_critical_path(plan: Plan[str]) -> None:
    free = Plan.of(plan.order, plan.durations, priority=plan.priority)
    longest = max(upward_rank(plan.order, plan.durations).values(), default=0)
    assert lower_bound(free) == simulate(free).makespan == graham_bound(free) == longest


@THOROUGH
@given(plans(FLOATS))
def test_every_schedule_is_between_the_bounds_up_to_rounding(plan: Plan[str]) -> None:
    makespan = simulate(plan).makespan
    assert lower_bound(plan) <= makespan * (1 + 1e-12)
    assert makespan <= graham_bound(plan) * (1 + 1e-12)


@THOROUGH
@given(plans(conflicts=False))
def test_without_conflicts_grahams_bound_is_grahams(plan: Plan[str]) -> None:
    work, longest = sum(plan.durations.values()), max(upward_rank(plan.order, plan.durations).values(), default=0)
    places = plan.capacity or math.inf
    assert graham_bound(plan) == math.floor(round(work / places + (1 - 1 / places) * longest, 9))


def placed_one_by_one(plan: Plan[str], sequence: tuple[str, ...]) -> float:
    """The makespan if each task in turn starts as early as those before it allow. Some sequence is optimal."""
    intervals: Intervals = {}
    for task in sequence:
        for start in sorted({0, *(finish for _, finish in intervals.values())}):
            intervals[task] = (start, start + plan.durations[task])
            if feasible(plan, intervals):
                break
    return max((finish for _, finish in intervals.values()), default=0)


@THOROUGH
@given(plans(st.integers(1, 4), most=4))
def test_no_schedule_at_all_is_below_the_lower_bound(plan: Plan[str]) -> None:
    def in_order(sequence: tuple[str, ...]) -> bool:
        return all(sequence.index(before) < sequence.index(after) for before, after in plan.order.edges)

    best = min(placed_one_by_one(plan, sequence) for sequence in permutations(plan.order) if in_order(sequence))
    assert lower_bound(plan) <= best <= simulate(plan).makespan
    event("met" if lower_bound(plan) == best else "not met")


@THOROUGH
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 5), st.integers(0, 9)), min_size=1, max_size=6))
def test_the_bound_of_a_clique_is_that_of_its_worst_part(tasks: list[tuple[int, int, int]]) -> None:
    order: nx.DiGraph[tuple[str, int]] = nx.DiGraph()
    durations: dict[tuple[str, int], float] = {}
    for number, task in enumerate(tasks):
        chain = [(part, number) for part in ("head", "work", "tail")]
        nx.add_path(order, chain)
        durations.update(zip(chain, task, strict=True))
    plan = Plan.of(order, durations, conflicts=[[("work", number) for number in range(len(tasks))]])
    assert lower_bound(plan) == max(
        min(head for head, _, _ in part) + sum(work for _, work, _ in part) + min(tail for _, _, tail in part)
        for size in range(1, len(tasks) + 1)
        for part in combinations(tasks, size)
    )
