"""The floor under the owner's loop: list scheduling in one thread, written as plainly as it can be.

The same policy and nothing around it: upward ranks, a heap of what waits, one holder for what is touched, slotted
objects, a message object for each launch and each report, which name their slice by id. No checks, no refusals, no
attempts, no clock, nobody to ask; two slices contend when they touch the same text. What the product takes beyond this
is what its promises cost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from heapq import heapify, heappop, heappush

from dispatch.slice import Slice

QUEUED, RUNNING, MERGED = range(3)


class Task:
    """A slice as the loop sees it. `touches` is the one thing that it shares with others, empty for none."""

    __slots__ = ("dependents", "depends_on", "rank", "seq", "slice", "state", "touches", "unmet")

    def __init__(self, slice_: Slice, seq: int) -> None:
        self.slice = slice_
        self.seq = seq
        self.state = QUEUED
        self.rank = 1
        self.unmet = 0
        self.depends_on: list[Task] = []
        self.dependents: list[Task] = []
        names = slice_.touch.hotspots + slice_.touch.paths
        assert len(names) <= 1, "no shape touches more, and one holder is all that the loop looks at"
        self.touches = names[0] if names else ""


class Launch:
    """Open a session."""

    __slots__ = ("slice_id",)

    def __init__(self, slice_id: str) -> None:
        self.slice_id = slice_id


class Report:
    """A session's end."""

    __slots__ = ("slice_id", "state")

    def __init__(self, slice_id: str, state: int) -> None:
        self.slice_id, self.state = slice_id, state


Entry = tuple[int, int, Task]  # the smallest first: rank, turned round, and enqueue order


class Loop:
    """The whole life of a graph of slices on `places` instant sessions."""

    def __init__(self, slices: Iterable[Slice], places: int) -> None:
        self.tasks = {slice_.id: Task(slice_, seq) for seq, slice_ in enumerate(slices)}
        self.free = places
        self.merged = 0
        self._holders: dict[str, Task] = {}
        self._parked: dict[str, list[Entry]] = {}
        self._messages: deque[Launch | Report] = deque()
        for task in self.tasks.values():
            self._link(task)
        self._rank()
        self._ready = [(-task.rank, task.seq, task) for task in self.tasks.values() if not task.unmet]
        heapify(self._ready)

    def run(self) -> int:
        """Launch and merge until nothing is left to do; returns how many have merged."""
        messages = self._messages
        self._launch()
        while messages:
            match messages.popleft():
                case Launch(slice_id=slice_id):
                    messages.append(Report(slice_id, MERGED))
                case Report() as report:
                    self._observe(report)
                    self._launch()
        return self.merged

    def _link(self, task: Task) -> None:
        for name in task.slice.depends_on:
            before = self.tasks[name]
            before.dependents.append(task)
            task.depends_on.append(before)
            task.unmet += 1

    def _rank(self) -> None:
        """Kahn's algorithm from the ends, every slice weighing 1."""
        left = {task: len(task.dependents) for task in self.tasks.values() if task.dependents}
        ends = [task for task in self.tasks.values() if not task.dependents]
        while ends:
            task = ends.pop()
            for before in task.depends_on:
                before.rank = max(before.rank, task.rank + 1)
                left[before] -= 1
                if not left[before]:
                    ends.append(before)

    def _launch(self) -> None:
        ready, holders = self._ready, self._holders
        while ready and self.free:
            entry = heappop(ready)
            task = entry[2]
            if task.touches in holders:
                heappush(self._parked.setdefault(task.touches, []), entry)
                continue
            if task.touches:
                holders[task.touches] = task
            task.state = RUNNING
            self.free -= 1
            self._messages.append(Launch(task.slice.id))

    def _observe(self, report: Report) -> None:
        task = self.tasks[report.slice_id]
        task.state = report.state
        self.merged += 1
        self.free += 1
        if task.touches:
            del self._holders[task.touches]
            if parked := self._parked.get(task.touches):
                heappush(self._ready, heappop(parked))
        for after in task.dependents:
            after.unmet -= 1
            if not after.unmet:
                heappush(self._ready, (-after.rank, after.seq, after))
