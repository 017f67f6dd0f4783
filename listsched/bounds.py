"""What no schedule can beat, and what no list schedule exceeds.

Both are after R. L. Graham, "Bounds on Multiprocessing Timing Anomalies", SIAM J. Appl. Math. 17(2), 1969. The lower
bound of one clique is the length of its preemptive schedule by longest tail: J. Carlier, "The one-machine sequencing
problem", European Journal of Operational Research 11(1), 1982.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from heapq import heappop, heappush

from listsched.plan import Arrays, Plan, Task


def lower_bound(plan: Plan[Task]) -> float:
    """A makespan that no schedule of the plan is below; 0 without tasks.

    The greatest of: the critical path; the work divided by the capacity, rounded up if all durations are whole; and for
    each clique its work, one task after the other, with the chains that must run before and after it – also of a part
    of the clique, where that says more. With float durations it is right up to rounding.

    >>> import networkx as nx
    >>> order, durations = nx.DiGraph([("a", "b"), ("a", "c")]), {"a": 1, "b": 2, "c": 2}
    >>> lower_bound(Plan.of(order, durations))
    3
    >>> lower_bound(Plan.of(order, durations, conflicts=[("b", "c")]))
    5
    """
    arrays = plan.arrays
    heads, tails = _heads(arrays), _tails(arrays, arrays.durations)
    bounds = [head + length for head, length in zip(heads, arrays.durations, strict=True)]
    bounds.append(_shared(arrays.durations, plan.capacity))
    for clique in arrays.cliques:
        bounds.append(_one_by_one(sorted((heads[t], arrays.durations[t], tails[t]) for t in clique)))
    return max(bounds)


def graham_bound(plan: Plan[Task]) -> float:
    """A makespan that no list schedule of the plan exceeds, whatever its list: `work / m + (1 - 1 / m) * path`.

    m is the capacity. Without conflicts `path` is the critical path, and this is Graham's bound: while a place is
    free, some task of one chain is running. With conflicts a task of that chain may also wait for a running task of
    one of its cliques, so each task of the chain counts with the work that conflicts with it, and `path` is the
    longest chain so weighed, at most all the work. Without a capacity the bound is `path` itself. If all durations are
    whole it is rounded down, as the makespan is whole too; with float durations it is right up to rounding.

    >>> import networkx as nx
    >>> order = nx.DiGraph([("a", "b")])
    >>> order.add_node("c")
    >>> graham_bound(Plan.of(order, {"a": 3, "b": 3, "c": 2}, capacity=2))
    7
    """
    arrays, m = plan.arrays, plan.capacity
    total = _sum(arrays.durations)
    path = min(total, max(_stretched(arrays), default=0))
    if m is None:
        return path
    m_times = total + (m - 1) * path
    return m_times // m if _whole(arrays.durations) else m_times / m


def _heads(arrays: Arrays) -> list[float]:
    """The length of the longest chain before each task."""
    heads: list[float] = [0] * len(arrays.durations)
    for task in arrays.topological:
        end = heads[task] + arrays.durations[task]
        for after in arrays.successors[task]:
            if end > heads[after]:
                heads[after] = end
    return heads


def _tails(arrays: Arrays, lengths: Sequence[float]) -> list[float]:
    """The length of the longest chain after each task, its tasks as long as `lengths` says."""
    tails: list[float] = [0] * len(lengths)
    for task in reversed(arrays.topological):
        tails[task] = max([lengths[after] + tails[after] for after in arrays.successors[task]], default=0)
    return tails


def _stretched(arrays: Arrays) -> list[float]:
    """For each task the longest chain from it on, each of its tasks with the work that conflicts with it added."""
    lengths = list(arrays.durations)
    for clique in arrays.cliques:
        work = _sum([arrays.durations[task] for task in clique])
        for task in clique:
            lengths[task] += work - arrays.durations[task]
    return [length + tail for length, tail in zip(lengths, _tails(arrays, lengths), strict=True)]


def _shared(durations: Sequence[float], capacity: int | None) -> float:
    """How long the places take for all the work, evenly spread."""
    if capacity is None:
        return 0
    total = _sum(durations)
    return -(-total // capacity) if _whole(durations) else total / capacity


def _one_by_one(tasks: Sequence[tuple[float, float, float]]) -> float:
    """How long tasks (head, duration, tail), sorted by head, take at least if only one of them runs at a time.

    They may interrupt one another here, and of those whose head is over the one with the longest tail runs: that is
    the best such schedule, as long as the worst part of them is when its heads, work and tails are laid end to end.
    """
    heads = [head for head, _, _ in tasks[1:]]
    begun: list[tuple[float, float]] = []  # -tail, what is left of the duration
    now = least = tasks[0][0]
    for (_, duration, tail), next_head in zip(tasks, [*heads, math.inf], strict=True):
        heappush(begun, (-tail, duration))
        while begun and now < next_head:
            minus_tail, left = heappop(begun)
            if now + left > next_head:
                heappush(begun, (minus_tail, left - (next_head - now)))
                now = next_head
            else:
                now += left
                least = max(least, now - minus_tail)
        if not begun:
            now = max(now, next_head)
    return least


def _whole(durations: Sequence[float]) -> bool:
    return all(isinstance(duration, int) for duration in durations)


def _sum(durations: Sequence[float]) -> float:
    return sum(durations) if _whole(durations) else math.fsum(durations)
