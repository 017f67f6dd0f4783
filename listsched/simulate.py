"""Run a plan on paper: what starts when, if every task takes as long as its duration says.

Event-driven list scheduling: R. L. Graham, "Bounds on Multiprocessing Timing Anomalies", SIAM J. Appl. Math. 17(2),
1969, with the list by upward rank (H. Topcuoglu, S. Hariri, M.-Y. Wu, "Performance-Effective and Low-Complexity Task
Scheduling for Heterogeneous Computing", IEEE TPDS 13(3), 2002) unless the plan brings its own. All tasks that end at
one instant end together, then one `pick` decides what starts: the same decision as the service's. A task that takes no
time ends in the instant it starts, after that pick and before the next.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from heapq import heappop, heappush
from typing import Generic

import attrs

from listsched.pick import Waiting, pick
from listsched.plan import Arrays, Plan, Task

Interval = tuple[float, float]


@attrs.frozen(eq=False)
class Schedule(Generic[Task]):
    """When each task of a plan runs: `intervals` maps it to its start and its finish, in order of start."""

    plan: Plan[Task] = attrs.field(repr=False)
    intervals: Mapping[Task, Interval]

    @functools.cached_property
    def makespan(self) -> float:
        """When the last task ends, the first having started at 0 or later; 0 without tasks."""
        return max((finish for _, finish in self.intervals.values()), default=0)

    @functools.cached_property
    def concurrency(self) -> int:
        """The most tasks that run at once. One that takes no time runs beside those that are under way, on its own."""
        return _peak(self.intervals.items())[0]

    def check(self) -> None:
        """Raise `AssertionError`, with the evidence, unless this is a schedule of its plan, however it was made.

        Every task of the plan and no other, from 0 up, for exactly its duration; none before its predecessors have
        ended; never more than the capacity at once; never two of a clique. n log n, for cliques in their members.
        """
        self._check_tasks()
        self._check_order()
        self._check_conflicts()
        self._check_capacity()

    def _check_tasks(self) -> None:
        for task in self.intervals:
            if task not in self.plan.order:
                raise AssertionError(f"{task!r} is scheduled but no task of the plan")
        for task in self.plan.order:
            if task not in self.intervals:
                raise AssertionError(f"{task!r} is not scheduled")
            start, finish = self.intervals[task]
            duration = self.plan.durations[task]
            if start < 0 or finish != start + duration:
                raise AssertionError(f"{task!r} takes {duration} from 0 on but runs from {start} to {finish}")

    def _check_order(self) -> None:
        for before, after in self.plan.order.edges():
            finish, start = self.intervals[before][1], self.intervals[after][0]
            if start < finish:
                raise AssertionError(f"{after!r} starts at {start}, before {before!r} ends at {finish}")

    def _check_conflicts(self) -> None:
        for clique in self.plan.conflicts:
            _, at, both = _peak(((task, self.intervals[task]) for task in clique), limit=1)
            if both:
                raise AssertionError(f"{both[0]!r} and {both[1]!r} exclude each other but both run at {at}")

    def _check_capacity(self) -> None:
        _, at, running = _peak(self.intervals.items(), limit=self.plan.capacity)
        if running:
            some = ", ".join(repr(task) for task in running[:8])
            raise AssertionError(f"{len(running)} tasks run at {at}, of {self.plan.capacity} allowed: {some}")


def _peak(intervals: Iterable[tuple[Task, Interval]], limit: int | None = None) -> tuple[int, float, list[Task]]:
    """The most that run at once, and the first instant at which they do.

    As soon as more than `limit` run that is the answer, and the third part says which they are; else it is empty. At
    one instant first what ran until then ends, then what takes no time runs, one by one, then the rest starts: the
    order in which the fewest run at once.
    """
    starts, ends, moments = 0, -2, -1
    events: list[tuple[float, int, int]] = []
    tasks: list[Task] = []
    for at, (task, (start, finish)) in enumerate(intervals):
        tasks.append(task)
        if start == finish:
            events.append((start, moments, at))
        else:
            events += ((start, starts, at), (finish, ends, at))
    events.sort()
    running: dict[int, None] = {}
    most, when = 0, 0.0
    for instant, kind, at in events:
        if kind == ends:
            del running[at]
            continue
        if len(running) + 1 > most:
            most, when = len(running) + 1, instant
            if limit is not None and most > limit:
                return most, when, [tasks[other] for other in (*running, at)]
        if kind == starts:
            running[at] = None
    return most, when, []


def simulate(plan: Plan[Task]) -> Schedule[Task]:
    """List-schedule the plan: at every instant at which something ends, start what can start, best first.

    The result is feasible and never idles on purpose: a place stays free only while every waiting task waits for a
    predecessor or for a running task it conflicts with.

    >>> import networkx as nx
    >>> plan = Plan.of(nx.DiGraph([("a", "c")]), {"a": 2, "c": 1}, capacity=1)
    >>> simulate(plan).intervals
    {'a': (0, 2), 'c': (2, 3)}
    """
    names = list(plan.order)
    started, intervals = _run(plan.arrays, plan.capacity or len(names))
    return Schedule(plan, dict(zip([names[task] for task in started], intervals, strict=True)))


def _run(arrays: Arrays, capacity: int) -> tuple[list[int], Iterable[Interval]]:
    """The tasks in the order in which they start, and when each of these starts and ends."""
    successors, durations, place = arrays.successors, arrays.durations, arrays.place
    cliques_of, busy = arrays.cliques_of, [False] * len(arrays.cliques)
    left = list(arrays.waits_for)
    started: list[int] = []
    starts: list[float] = []
    finishes: list[float] = []
    waiting: Waiting[int] = Waiting()
    running: list[tuple[float, int]] = []  # finish, task
    now: float = 0

    def blocked(task: int) -> int | None:
        for clique in cliques_of[task]:
            if busy[clique]:
                return clique
        return None

    def claim(task: int) -> None:
        for clique in cliques_of[task]:
            busy[clique] = True

    for task in arrays.topological:
        if left[task]:
            break
        waiting.put(task, place[task])
    while True:
        for task in pick(waiting, capacity - len(running), blocked, claim):
            finish = now + durations[task]
            started.append(task)
            starts.append(now)
            finishes.append(finish)
            heappush(running, (finish, task))
        if not running:
            return started, zip(starts, finishes, strict=True)
        now = running[0][0]
        while running and running[0][0] == now:
            task = heappop(running)[1]
            for clique in cliques_of[task]:
                busy[clique] = False
                waiting.wake(clique)
            for after in successors[task]:
                left[after] -= 1
                if not left[after]:
                    waiting.put(after, place[after])
