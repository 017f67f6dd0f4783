"""The one decision: which of the waiting tasks start now.

List scheduling after R. L. Graham, "Bounds on Multiprocessing Timing Anomalies", SIAM J. Appl. Math. 17(2), 1969: walk
the waiting tasks from best to worst and start each that can start while a place is free; one that is blocked never
holds back a worse one. The simulator and the service both call `pick`; they differ only in what blocks a task.

Two things keep the walk cheap. A task found blocked is *parked* on what blocked it (a resource: any hashable) and is
not looked at again until that resource is woken; then only its best waiter comes back, and the next one only once that
one has started or turned out to be blocked by something else. And of *twins*, tasks that need exactly the same and so
exclude one another, only the best is shown at all: what blocks it blocks the rest. Ten thousand tasks behind one lock,
or under one glob, cost a look or two each.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from heapq import heappop, heappush
from operator import itemgetter
from typing import Any, Generic, TypeVar

T = TypeVar("T", bound=Hashable)
_SLACK = 64  # stale entries that are not worth a clean-up
_NOBODY: Any = object()


class _Twins(list[tuple[Any, int, Any]]):
    """The twins that are not shown, a heap, and the one that is."""

    __slots__ = ("name", "shown")

    def __init__(self, name: Hashable) -> None:
        super().__init__()
        self.name = name
        self.shown: Any = _NOBODY


class Waiting(Generic[T]):
    """Waiting tasks, each with a key: smaller is better, no two equal.

    Every task has one current key object; a heap entry that carries another one is stale and is dropped when met. So
    re-keying is a push, and leaving is a dictionary deletion. A stale entry's key may equal a current one, so entries
    are numbered: tasks and resources are never compared.

    >>> waiting = Waiting()
    >>> for task in ("b", "a", "c"):
    ...     waiting.put(task, (task,))
    >>> pick(waiting, 2, blocked=lambda task: "lock" if task == "a" else None, start=lambda task: None)
    ['b', 'c']
    >>> waiting.wake("lock")
    >>> pick(waiting, 2, blocked=lambda task: None, start=lambda task: None)
    ['a']
    """

    __slots__ = ("_entries", "_keys", "_parked", "_puts", "_ready", "_twins", "_twinship")

    def __init__(self) -> None:
        self._keys: dict[T, Any] = {}
        self._ready: list[tuple[Any, int, T, Hashable]] = []  # key, number, task, resource it was parked on before
        self._parked: dict[Hashable, list[tuple[Any, int, T]]] = {}
        self._puts = 0  # the number of the newest entry
        self._twinship: dict[T, _Twins] = {}  # of the tasks that have twins or may get some
        self._twins: dict[Hashable, _Twins] = {}
        self._entries = 0  # in all heaps, stale ones included

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, task: object) -> bool:
        return task in self._keys

    def __iter__(self) -> Iterator[T]:
        return iter(self._keys)

    def put(self, task: T, key: Any, twin: Hashable | None = None) -> None:
        """Let `task` wait under `key`, or give it another key; either way it is looked at afresh.

        Tasks of the same `twin` (not None) are twins: they must exclude one another, and be blocked by the same things.
        """
        if self._twinship:
            self._part(task)
        self._keys[task] = key
        self._entries += 1
        self._puts += 1
        if twin is None:
            heappush(self._ready, (key, self._puts, task, None))
        else:
            twins = self._twins.get(twin)
            if twins is None:
                twins = self._twins[twin] = _Twins(twin)
            self._twinship[task] = twins
            heappush(twins, (key, self._puts, task))
            self._show(twins)
        if self._entries > 2 * len(self._keys) + _SLACK:
            self.rekey(self._keys.__getitem__)

    def discard(self, task: T) -> None:
        """Let `task` wait no more, if it did."""
        if self._keys.pop(task, None) is not None and self._twinship:
            self._part(task)

    def rekey(self, key: Callable[[T], Any]) -> None:
        """Give every task a new key and look at all afresh."""
        names = {task: twins.name for task, twins in self._twinship.items()}
        keys = sorted([(task, key(task)) for task in self._keys], key=itemgetter(1))  # so the best twin is first
        for container in (self._keys, self._ready, self._parked, self._twinship, self._twins):
            container.clear()  # in place: `pick` may be under way
        self._keys.update(keys)
        plain = [entry for entry in keys if entry[0] not in names] if names else keys
        self._ready.extend((new, number, task, None) for number, (task, new) in enumerate(plain, self._puts + 1))
        self._puts += len(plain)  # in order, and so a heap: there is no need to put one by one
        self._entries = len(plain)
        for task, new in keys if names else ():
            if task in names:
                self.put(task, new, names[task])

    def wake(self, resource: Hashable) -> None:
        """Say that `resource` blocks no more (or may not): its best waiter is looked at again."""
        heap = self._parked.get(resource)
        if heap is None:
            return
        best = self._best(heap)
        if best is not None:
            heappush(self._ready, (*heappop(heap), resource))
        if not heap:
            del self._parked[resource]

    def in_order(self) -> list[T]:
        """All waiting tasks, best first, parked ones in their place."""
        return [task for task, _ in sorted(self._keys.items(), key=itemgetter(1))]

    def _best(self, heap: list[tuple[Any, int, T]]) -> tuple[Any, int, T] | None:
        """The heap's best entry that is not stale, left in it; stale ones above it are dropped."""
        while heap:
            if self._keys.get(heap[0][2]) is heap[0][0]:
                return heap[0]
            heappop(heap)
            self._entries -= 1
        return None

    def _part(self, task: T) -> None:
        """End a task's twinship, if it has one; if it was the twin shown, the next one is."""
        twins = self._twinship.pop(task, None)
        if twins is not None and twins.shown == task:
            twins.shown = _NOBODY
            self._show(twins)

    def _show(self, twins: _Twins) -> None:
        """Make the best of the twins one of those looked at."""
        best = self._best(twins)
        if best is None:
            if twins.shown is _NOBODY:
                del self._twins[twins.name]
        elif twins.shown is _NOBODY or best[0] < self._keys[twins.shown]:
            heappop(twins)
            heappush(self._ready, (*best, None))
            twins.shown = best[2]


def pick(
    waiting: Waiting[T],
    places: int,
    blocked: Callable[[T], Hashable | None],
    start: Callable[[T], object],
) -> list[T]:
    """Start what can start, best first, at most `places` of them; returns them in that order.

    `blocked(task)` names a resource that keeps the task from starting, or None; the caller must `wake` that resource
    when it may have become free. `start(task)` is called before the next task is looked at, so that it can block it.
    A started task waits no more.
    """
    started: list[T] = []
    keys, ready, parked = waiting._keys, waiting._ready, waiting._parked
    while ready and len(started) < places:
        key, number, task, source = heappop(ready)
        if keys.get(task) is not key:
            waiting._entries -= 1
        elif (resource := blocked(task)) is not None:
            heappush(parked.setdefault(resource, []), (key, number, task))
            if resource == source:
                continue  # still busy: the others stay parked
        else:
            waiting._entries -= 1
            waiting.discard(task)
            started.append(task)
            start(task)
        if source is not None:
            waiting.wake(source)
    return started
