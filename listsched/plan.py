"""What is to be scheduled: tasks with durations, an order, conflicts and a capacity; checked once.

A `Plan` is the problem of Graham (1969), "Bounds on Multiprocessing Timing Anomalies", SIAM J. Appl. Math. 17(2):
tasks with given durations under a partial order, on a number of identical places, listed by priority. Added to it are
conflicts: sets of tasks of which at most one runs at a time.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import attrs

if TYPE_CHECKING:
    import networkx as nx

Task = TypeVar("Task", bound=Hashable)


class PlanError(ValueError):
    """The plan can't be scheduled. The message is one line and names the task, clique or cycle that is wrong."""


@attrs.frozen(eq=False)
class Arrays:
    """A plan in integers: a task is its position in `order.nodes`, a clique its position in `cliques`.

    `topological` is in Kahn's order, sources first. `cliques` leaves out those of fewer than two tasks, which exclude
    nobody; `cliques_of[t]` holds those of `t`. `place[t]` is the task's place in the list, 0 first.
    """

    successors: Sequence[Sequence[int]]
    waits_for: Sequence[int]  #: how many predecessors each task has
    topological: Sequence[int]
    durations: Sequence[float]
    cliques: Sequence[Sequence[int]]
    cliques_of: Sequence[Sequence[int]]
    place: Sequence[int]


@attrs.frozen(eq=False)
class Plan(Generic[Task]):
    """Tasks to schedule, made by `Plan.of`, which checks it. Its graph and mappings must not change afterwards.

    An edge u -> v of `order` says that v starts when u has ended, or later. `conflicts` are cliques: the tasks of
    each exclude one another pairwise, so a pair is a clique of two. `capacity` is how many tasks may run at once, None
    for no limit. `priority` gives each task a sort key, the smaller the earlier in the list, equal ones in the order of
    `order.nodes`; None lists by upward rank, the greatest first.
    """

    order: nx.DiGraph[Task]
    durations: Mapping[Task, float]
    conflicts: tuple[tuple[Task, ...], ...]
    capacity: int | None
    priority: Mapping[Task, Any] | None
    arrays: Arrays = attrs.field(repr=False)  #: the same in integers, for the modules beside this one

    @classmethod
    def of(
        cls,
        order: nx.DiGraph[Task],
        durations: Mapping[Task, float],
        conflicts: Iterable[Iterable[Task]] = (),
        capacity: int | None = None,
        priority: Mapping[Task, Any] | None = None,
    ) -> Plan[Task]:
        """Check everything and make the plan, in time linear in tasks, edges and clique members (the list is sorted).

        Raises `PlanError` for a cycle, a duration that is missing or no finite number from 0 up, a clique that names
        an unknown task or one twice, a capacity below 1, and priorities that are missing or can't be sorted.
        Durations and priorities of other tasks than those of `order` are allowed and count for nothing.

        >>> import networkx as nx
        >>> Plan.of(nx.DiGraph([("a", "b"), ("b", "a")]), {"a": 1, "b": 1})
        Traceback (most recent call last):
        listsched.plan.PlanError: the order runs in a circle: 'a' -> 'b' -> 'a'
        """
        if not order.is_directed():
            raise PlanError("order must be a directed graph, or nothing says which task comes first")
        _check_capacity(capacity)
        cliques = tuple(tuple(clique) for clique in conflicts)
        index = dict(zip(order, range(len(order)), strict=True))
        lengths = _durations(index, durations)
        members = _members(index, cliques)
        successors = [tuple(map(index.__getitem__, after)) for _, after in order.adjacency()]
        waits_for = _waits_for(successors)
        topological = _topological(successors, waits_for)
        if len(topological) < len(index):
            names, cycle = list(index), _cycle(successors, topological)
            raise PlanError("the order runs in a circle: " + " -> ".join(repr(names[task]) for task in cycle))
        if priority is None:
            listed = _by_rank(successors, topological, lengths)
        else:
            listed = _by_priority(index, priority)
        arrays = Arrays(
            successors=successors,
            waits_for=waits_for,
            topological=topological,
            durations=lengths,
            cliques=members,
            cliques_of=_cliques_of(len(index), members),
            place=_places(listed),
        )
        return cls(order, durations, cliques, capacity, priority, arrays)


def _check_capacity(capacity: int | None) -> None:
    if capacity is None:
        return
    if not isinstance(capacity, int) or isinstance(capacity, bool) or capacity < 1:
        raise PlanError(f"capacity must be a whole number from 1 up, or None for no limit, not {capacity!r}")


def _durations(index: Mapping[Task, int], durations: Mapping[Task, float]) -> list[float]:
    try:
        lengths = [durations[task] for task in index]
        if all(0 <= length < math.inf for length in lengths):
            return lengths
    except (KeyError, TypeError):
        pass  # this was for speed; below is who is to blame
    for task in index:
        if task not in durations:
            raise PlanError(f"task {task!r} has no duration")
        if not _is_length(durations[task]):
            raise PlanError(f"task {task!r} has the duration {durations[task]!r}, not a finite number from 0 up")
    raise AssertionError("durations changed while they were read")


def _is_length(value: Any) -> bool:
    try:
        return bool(0 <= value < math.inf)
    except TypeError:
        return False


def _members(index: Mapping[Task, int], cliques: tuple[tuple[Task, ...], ...]) -> list[tuple[int, ...]]:
    found = []
    for clique in cliques:
        try:
            members = tuple(map(index.__getitem__, clique))
        except KeyError:
            stranger = next(task for task in clique if task not in index)
            raise PlanError(f"a conflict names {stranger!r}, which is no task of the order") from None
        if len(set(members)) < len(members):
            twice = next(task for task in clique if clique.count(task) > 1)
            raise PlanError(f"a conflict names {twice!r} twice")
        if len(members) > 1:
            found.append(members)
    return found


def _cliques_of(tasks: int, cliques: Sequence[Sequence[int]]) -> list[Sequence[int]]:
    none: tuple[int, ...] = ()  # shared by all without a conflict, as `alone` is by those with one: most tasks
    found: list[Sequence[int]] = [none] * tasks
    for clique, members in enumerate(cliques):
        alone = (clique,)
        for task in members:
            of = found[task]
            if not of:
                found[task] = alone
            elif isinstance(of, list):
                of.append(clique)
            else:
                found[task] = [*of, clique]
    return found


def _waits_for(successors: Sequence[Sequence[int]]) -> list[int]:
    waits_for = [0] * len(successors)
    for after in successors:
        for task in after:
            waits_for[task] += 1
    return waits_for


def _topological(successors: Sequence[Sequence[int]], waits_for: Sequence[int]) -> list[int]:
    """Kahn's order; shorter than the tasks when some of them wait in a circle."""
    left = list(waits_for)
    order = [task for task, count in enumerate(left) if not count]
    for task in order:
        for after in successors[task]:
            left[after] -= 1
            if not left[after]:
                order.append(after)
    return order


def _cycle(successors: Sequence[Sequence[int]], topological: Sequence[int]) -> list[int]:
    """A cycle among the tasks that Kahn's order left out; its first is also its last.

    Each of them waits for another of them, so a walk from one to a predecessor must come back to its own track.
    """
    stuck = set(range(len(successors))).difference(topological)
    before = {after: task for task in stuck for after in successors[task] if after in stuck}
    track: dict[int, None] = {}
    task = min(stuck)
    while task not in track:
        track[task] = None
        task = before[task]
    walked = list(track)
    circle = walked[walked.index(task) :]
    circle.reverse()
    least = circle.index(min(circle))
    return [*circle[least:], *circle[:least], circle[least]]


def _by_rank(successors: Sequence[Sequence[int]], topological: Sequence[int], durations: Sequence[float]) -> list[int]:
    """The tasks by upward rank, greatest first, equal ones by index."""
    rank = list(durations)
    for task in reversed(topological):
        greatest: float = 0
        for after in successors[task]:
            if rank[after] > greatest:
                greatest = rank[after]
        rank[task] += greatest
    return sorted(range(len(rank)), key=rank.__getitem__, reverse=True)


def _by_priority(index: Mapping[Task, int], priority: Mapping[Task, Any]) -> list[int]:
    for task in index:
        if task not in priority:
            raise PlanError(f"task {task!r} has no priority")
    keys = [priority[task] for task in index]
    if any(key != key for key in keys):  # NaN alone
        raise PlanError("a priority is NaN, which can't be sorted")
    try:
        return sorted(range(len(keys)), key=keys.__getitem__)
    except TypeError as error:
        raise PlanError(f"the priorities can't be compared with one another: {error}") from error


def _places(listed: Sequence[int]) -> list[int]:
    place = [0] * len(listed)
    for at, task in enumerate(listed):
        place[task] = at
    return place
