"""What an executor has in hand while its turn runs: the guard that every effect goes through."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from harness.fleet.commands import Checkpoint, Renew
from harness.fleet.errors import CancelRequestedError, LeaseLostError, StopRequestedError
from harness.fleet.ports import Archive, WorkItems
from harness.fleet.work_item import HELD, Lease, WorkItem

Given = ParamSpec("Given")
Answer = TypeVar("Answer")


class WorkItemLeaseGuard:
    """The right to run one attempt of a WorkItem, kept up by its worker and checked right before whatever matters.

    An executor calls `side_effect` for everything that others can see, and `safepoint` where it could stop. Both raise
    `LeaseLostError` when the item is somebody else's, and `StopRequestedError` when it is to stop: then it should stop
    without another effect, which is what happens if it lets them pass through.
    """

    def __init__(self, work_items: WorkItems, archive: Archive, item: WorkItem, ttl_s: float) -> None:
        self._work_items, self._archive, self._ttl_s = work_items, archive, ttl_s
        self._item = item
        self._lease = item.lease
        self._lost = False
        self._stop: StopRequestedError | None = None
        self._heard = 0
        self._wanted = threading.Event()  # set when the executor should look up from its work
        self.heard(item)

    @property
    def item(self) -> WorkItem:
        """As it stood when it was last heard of."""
        return self._item

    @property
    def lease(self) -> Lease:
        return self._lease

    @property
    def checkpoint(self) -> str:
        """What the attempts before this one left."""
        return self._item.checkpoint

    def side_effect(self, effect: Callable[Given, Answer], *args: Given.args, **kwargs: Given.kwargs) -> Answer:
        """Renews the lease, then does it. The database is asked each time: a clock that stood still proves nothing."""
        self._perform(Renew(self._lease, self._ttl_s))
        self.safepoint()
        return effect(*args, **kwargs)

    def last_effect(self, effect: Callable[Given, Answer], *args: Given.args, **kwargs: Given.kwargs) -> Answer:
        """The same for an effect that makes safe what there is, which a request to stop does not forbid. Raises
        `LeaseLostError`."""
        self._perform(Renew(self._lease, self._ttl_s))
        self._refuse_if_lost()
        return effect(*args, **kwargs)

    def safepoint(self) -> None:
        """Raises if the turn should stop here. Asks nobody: what there is to know came with the last renewal."""
        self._refuse_if_lost()
        if self._stop is not None:
            raise self._stop

    def leave(self, checkpoint: str) -> None:
        """For the next attempt, should this one end here. Raises `LeaseLostError`."""
        self._perform(Checkpoint(self._lease, checkpoint))
        self._refuse_if_lost()

    def look(self) -> None:
        """Learn now how the item stands, which else comes with the next renewal: whether it is to stop, whether it is
        somebody else's. Raises nothing of that; see `safepoint`."""
        item = self._work_items.find([self._item.id]).get(self._item.id)
        lease = self._lease
        holder = (item.owner, item.epoch, item.token) if item is not None and item.state in HELD else None
        self.heard(item if holder == (lease.owner, lease.epoch, lease.token) else None)

    def messages(self) -> tuple[str, ...]:
        """Those sent into the turn since the last call."""
        said = self._archive.said(self._item.id, self._heard)
        self._heard = max((number for number, _ in said), default=self._heard)
        return tuple(text for _, text in said)

    def wait(self, seconds: float) -> bool:
        """Sleep; whether it was cut short because `safepoint` would raise."""
        return self._wanted.wait(seconds)

    # -- for the worker ------------------------------------------------------------------------------------------------

    def heard(self, result: WorkItem | Exception | None) -> None:
        """What a command in the lease's name came to. Whatever is no item says that it is not ours."""
        if not isinstance(result, WorkItem):
            self.lose()
            return
        self._item = result
        if result.cancel_cause:
            self.ask_to_stop(CancelRequestedError(result.id, result.cancel_cause))

    def lose(self) -> None:
        self._lost = True
        self._wanted.set()

    def ask_to_stop(self, asked: StopRequestedError) -> None:
        """A cancellation stands, whatever else is asked."""
        if not isinstance(self._stop, CancelRequestedError):
            self._stop = asked
        self._wanted.set()

    @property
    def is_lost(self) -> bool:
        return self._lost

    def _perform(self, command: Renew | Checkpoint) -> None:
        (result,) = self._work_items.perform([command])
        self.heard(result)

    def _refuse_if_lost(self) -> None:
        if self._lost:
            raise LeaseLostError(self._item.id, self._lease.epoch)
