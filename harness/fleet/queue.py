"""How a turn gets into the fleet: a work item first, then its delivery, and nothing left of a refused one.

Between the two writes a process may die. Then the item is there without a delivery: submitting it again delivers it,
and if nobody does, a worker's pump will, once `HANDED_S` have passed in which its submitter would have.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from harness.fleet.commands import Deliver, Submit, Withdraw
from harness.fleet.errors import QueueFullError
from harness.fleet.ports import Result, Transport, WorkItems
from harness.fleet.work_item import Submission, WorkItem, WorkItemState

HANDED_S = 30.0  #: how long whoever took on an item's delivery has for it
_KEPT_NOTES = 100  #: of deliveries that were admitted, until they're written down with something else


class TurnQueue:
    """Submits turns to an authority and its transport. May be used from any thread."""

    def __init__(self, work_items: WorkItems, transport: Transport, max_depth: int) -> None:
        self._work_items, self._transport, self._max_depth = work_items, transport, max_depth
        self._mutex = threading.Lock()
        self._admitted: list[Deliver] = []

    def submit(self, submission: Submission) -> WorkItem:
        """The item as it stands; submitted again, it is no other. Raises `QueueFullError`, `ItemExistsError`, ..."""
        (result,) = self.submit_many([submission])
        if isinstance(result, Exception):
            raise result
        assert result is not None
        return result

    def submit_many(self, submissions: Sequence[Submission]) -> tuple[Result, ...]:
        """Each is accepted or refused by itself; they share transactions."""
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
        with self._mutex:
            notes, self._admitted = self._admitted, []
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
        """Together with the notes there are, at no cost of a transaction."""
        if not commands:
            return ()
        with self._mutex:
            notes, self._admitted = self._admitted, []
        return self._work_items.perform([*commands, *notes])[: len(commands)]

    def _note(self, items: Sequence[WorkItem]) -> None:
        with self._mutex:
            self._admitted += [Deliver(item.id, item.tenant) for item in items]
            enough = len(self._admitted) >= _KEPT_NOTES
        if enough:
            self.flush()


def _waits_for_delivery(item: Result) -> bool:
    is_ready = isinstance(item, WorkItem) and item.state is WorkItemState.READY and not item.delivered
    return is_ready and isinstance(item, WorkItem) and item.not_before <= item.changed_at
