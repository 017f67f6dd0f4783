"""How a turn gets into the fleet: a work item first, then its delivery, and nothing left of a refused one.

Where one database has both, they are there at once. Else a process may die between the two writes, with an item there
that has no delivery: submitting it again delivers it, and if nobody does, a worker's pump will, once `HANDED_S` have
passed in which its submitter would have.

That it was delivered is therefore written down only of what waits for some time. Most turns have begun by then.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from harness.fleet.commands import Deliver, Submit, Withdraw
from harness.fleet.errors import QueueFullError
from harness.fleet.ports import Joint, Result, Transport, WorkItems
from harness.fleet.work_item import Submission, WorkItem, WorkItemState

HANDED_S = 30.0  #: how long whoever took on an item's delivery has for it
NOTED_S = HANDED_S / 3  #: how long a note of an admitted delivery is kept before it is written down
_BESIDE = 100  #: so many notes at most are written down with something else, at no cost of a transaction
_KEPT_NOTES = 10_000  #: at most


class TurnQueue:
    """Submits turns to an authority and its transport; by `joint`, which is of these two, if there is one. May be used
    from any thread.

    `clock` tells how long a note is kept, in seconds from whenever.
    """

    def __init__(
        self,
        work_items: WorkItems,
        transport: Transport,
        max_depth: int,
        *,
        joint: Joint | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._work_items, self._transport, self._max_depth, self._clock = work_items, transport, max_depth, clock
        self._joint = joint
        self._mutex = threading.Lock()
        self._notes: deque[tuple[float, Deliver]] = deque()  # of admitted deliveries, the oldest first

    def submit(self, submission: Submission) -> WorkItem:
        """The item as it stands; submitted again, it is no other. Raises `QueueFullError`, `ItemExistsError`, ..."""
        (result,) = self.submit_many([submission])
        if isinstance(result, Exception):
            raise result
        assert result is not None
        return result

    def submit_many(self, submissions: Sequence[Submission]) -> tuple[Result, ...]:
        """Each is accepted or refused by itself; they share transactions."""
        admitted = self._joint.admit(submissions, self._max_depth) if self._joint is not None else None
        return self._one_by_one(submissions) if admitted is None else admitted

    def _one_by_one(self, submissions: Sequence[Submission]) -> tuple[Result, ...]:
        """An item first, then its delivery."""
        depth = self._transport.depth()
        room = self._max_depth - depth
        if room <= 0:
            return self._refused(submissions, depth)
        results = list(self._perform([Submit(submission) for submission in submissions]))
        waiting = [number for number, item in enumerate(results) if _waits_for_delivery(item)]
        items = [item for number in waiting if isinstance(item := results[number], WorkItem)]
        admitted = self._transport.put_many([item.envelope(item.changed_at) for item in items], self._max_depth)
        refused = [item for item, there in zip(items, admitted, strict=True) if not there]
        self._note([item for item, there in zip(items, admitted, strict=True) if there])
        if refused:
            self._perform([Withdraw(item.id, item.tenant) for item in refused])
            full = QueueFullError(self._max_depth, self._max_depth)
            for number, there in zip(waiting, admitted, strict=True):
                results[number] = results[number] if there else full
        return tuple(results)

    def flush(self) -> None:
        """Write down which deliveries were admitted. Until then a pump may deliver them again, which does no harm."""
        notes = self._taken(math.inf)
        if notes:
            self._work_items.perform(notes)

    def _refused(self, submissions: Sequence[Submission], depth: int) -> tuple[Result, ...]:
        """What is there already is not refused: it was accepted before."""
        known = self._work_items.find([submission.id for submission in submissions])
        full = QueueFullError(depth, self._max_depth)
        repeated = [submission for submission in submissions if submission.id in known]
        results = dict(zip((one.id for one in repeated), self._perform(list(map(Submit, repeated))), strict=True))
        return tuple(results.get(submission.id, full) for submission in submissions)

    def _perform(self, commands: Sequence[Submit] | Sequence[Withdraw]) -> tuple[Result, ...]:
        """Together with notes that are due."""
        if not commands:
            return ()
        notes = self._taken(self._clock() - NOTED_S, _BESIDE)
        return self._work_items.perform([*commands, *notes])[: len(commands)]

    def _note(self, items: Sequence[WorkItem]) -> None:
        now = self._clock()
        with self._mutex:
            self._notes += [(now, Deliver(item.id, item.tenant, item.epoch)) for item in items]
            enough = len(self._notes) > _KEPT_NOTES or (
                len(self._notes) > _BESIDE and self._notes[_BESIDE][0] < now - NOTED_S
            )
        if enough:
            self.flush()

    def _taken(self, before: float, most: float = math.inf) -> list[Deliver]:
        """The notes from before then."""
        taken: list[Deliver] = []
        with self._mutex:
            while self._notes and self._notes[0][0] < before and len(taken) < most:
                taken.append(self._notes.popleft()[1])
        return taken


def _waits_for_delivery(item: Result) -> bool:
    is_ready = isinstance(item, WorkItem) and item.state is WorkItemState.READY and not item.delivered
    return is_ready and isinstance(item, WorkItem) and item.not_before <= item.changed_at
