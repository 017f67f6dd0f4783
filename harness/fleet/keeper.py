"""What goes on beside a worker's turns: their leases are renewed, it tells that it is there, what dead workers left is
put in order, and what is ready without a delivery gets one; even what should have one, where there is none."""

from __future__ import annotations

import contextlib
import logging
import math
import random
import threading
import time
from collections.abc import Callable

from harness.fleet.commands import Deliver, Recover, Renew
from harness.fleet.errors import FleetUnavailableError
from harness.fleet.ports import Authority, Query, Transport, WorkerPresence
from harness.fleet.queue import HANDED_S
from harness.fleet.settings import FleetSettings
from harness.fleet.turn import Turns
from harness.fleet.work_item import WorkItemState

logger = logging.getLogger(__name__)

LOOK_S = 1.0  #: between two looks for what is overtaken or undelivered, more or less
PAUSE_S = 0.05  #: between two looks for what is undelivered, however often it is said that there may be something
STRANDED_S, SELDOM_S = 10.0, 300.0  #: between two looks for what has lost its delivery, after work and without any
REACH_S = 0.5  #: before the authority or the transport is tried again when it was out of reach
MOST = 500  #: items at a time


class Keeper:
    """A thread from `start` to `stop`. Every worker has one, and any of them does for all.

    `guarded` runs it, and sees to what it raises. `presence` is the worker as it stands.
    """

    def __init__(
        self,
        authority: Authority,
        transport: Transport,
        settings: FleetSettings,
        turns: Turns,
        guarded: Callable[[Callable[[], None]], None],
        presence: Callable[[], WorkerPresence],
    ) -> None:
        self._authority, self._transport, self._settings, self._turns = authority, transport, settings, turns
        self._asked, self._ending = threading.Event(), threading.Event()
        self._presence = presence
        self._renewed_at, self._beat_at, self._recover_at = time.monotonic(), -math.inf, -math.inf
        self._stranded_at, self._saw_deliveries, self._last_stranded = time.monotonic(), False, ""
        self._thread = threading.Thread(target=guarded, args=(self._run,), name="fleet-keeper")

    def start(self) -> None:
        self._thread.start()

    def look(self) -> None:
        """There may be something to deliver."""
        self._asked.set()

    def stop(self) -> None:
        self._ending.set()
        self._asked.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ending.is_set():
            looked_at = time.monotonic()
            try:
                self._keep_up()
                self.deliver()
            except FleetUnavailableError as problem:
                logger.warning("%s", problem)
                self._ending.wait(REACH_S)
            self._asked.wait(min(max(0.0, self._recover_at - looked_at), self._settings.renew_interval_s / 2))
            self._ending.wait(looked_at + PAUSE_S - time.monotonic())
            self._asked.clear()
        with contextlib.suppress(FleetUnavailableError):  # then it is taken for gone when it is silent for long enough
            self._authority.leave(self._presence().token)

    def _keep_up(self) -> None:
        """What is due by time."""
        now = time.monotonic()
        if now - self._renewed_at >= self._settings.renew_interval_s:
            self.renew()
        if now - self._beat_at >= self._settings.renew_interval_s:
            self.beat()
        if now >= self._recover_at:
            self._recover_at = now + LOOK_S * random.uniform(0.7, 1.3)
            self.recover()

    def renew(self) -> None:
        """Of all turns under way, the lease and the delivery. What has not been renewed for as long as a lease lasts is
        taken for lost: nobody can say any more whose it is."""
        turns, before = self._turns.all(), self._renewed_at
        began = time.monotonic()
        try:
            ttl_s = self._settings.claim_ttl_s
            results = self._authority.perform([Renew(turn.guard.lease, ttl_s) for turn in turns]) if turns else ()
        except FleetUnavailableError:
            for turn in turns:
                if turn.begun_at < before and began - before > self._settings.claim_ttl_s:
                    turn.guard.lose()
            raise
        self._renewed_at = began
        for turn, result in zip(turns, results, strict=True):
            turn.guard.heard(result)
        if turns:
            self._transport.extend([turn.receipt for turn in turns])

    def beat(self) -> None:
        """The worker is there."""
        began = time.monotonic()
        self._authority.beat(self._presence())
        self._beat_at = began

    def recover(self) -> None:
        """Leases that ran out, deadlines that passed: whoever's they were."""
        found = self._authority.overtaken(MOST)
        if found:
            self._authority.perform([Recover(item.id, item.tenant, random.random()) for item in found])

    def deliver(self) -> None:
        """The pump: a full queue delays what is ready, and drops none."""
        depth = self._transport.depth()
        self._saw_deliveries |= depth > 0
        room = self._settings.max_depth - depth
        if room <= 0:
            return
        since_s = time.monotonic() - self._stranded_at
        if depth == 0 and since_s >= (STRANDED_S if self._saw_deliveries else SELDOM_S):
            self.rescue()
        items = self._authority.undelivered(min(room, MOST), HANDED_S)
        if not items:
            return
        admitted = self._transport.put_many([item.envelope(item.handed_at) for item in items], self._settings.max_depth)
        notes = [
            Deliver(item.id, item.tenant, item.epoch) for item, there in zip(items, admitted, strict=True) if there
        ]
        if notes:
            self._authority.perform(notes)

    def rescue(self) -> None:
        """While nothing is queued or out, whatever is said to have a delivery has lost it, and gets another.

        It does where a queue of rows was asked to take the delivery and had a stranger's of the same job. A page at a
        time; a delivery too many does no harm.
        """
        self._stranded_at, self._saw_deliveries = time.monotonic(), False
        wanted = Query(states=frozenset({WorkItemState.READY}), after=self._last_stranded, limit=MOST)
        page = self._authority.search(wanted)
        self._last_stranded = page[-1].id if len(page) == MOST else ""
        lost = [item for item in page if item.delivered]
        if lost:
            logger.warning("%d turns had lost their deliveries, and get others", len(lost))
            self._transport.put_many([item.envelope(item.changed_at) for item in lost], self._settings.max_depth)
