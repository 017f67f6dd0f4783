"""The loop of a run: look at the graph when it has changed, show it, and end when nothing can happen any more.

A look at a large graph takes its owner's time, and so does drawing. Both are measured, and come only so often that they
take no more than a fiftieth of it, unless no session runs: then the owner has nothing better to do.
"""

from __future__ import annotations

import collections
import logging
import signal
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import attrs

from dispatch.cli.interrupts import Interrupts
from dispatch.cli.screen import Screen
from dispatch.errors import StoreUnavailableError, TimedOutError
from dispatch.offline import states
from dispatch.owner import reach
from dispatch.service import DispatchService
from dispatch.slice import FINISHED
from dispatch.view.events import Event, as_durable, events_between
from dispatch.view.frame import Scene
from dispatch.view.standing import Standing, standing
from dispatch.views import SliceView, Snapshot
from harness.local import RunningSession

logger = logging.getLogger(__name__)

SOONEST_S = 0.125  #: between two looks, and between two frames
SHARE = 50  #: a look that took t seconds is followed by none for SHARE * t
TICK_S = 1.0  #: how often the clock on the screen moves
REVIEWS_S = 2.0  #: between two looks for reviews that have been merged
NAP_S = 0.25  #: how soon a signal is heeded
RECENT = 200  #: events that are kept to be shown
WAITS = 12  #: frontier slices whose reasons are asked for: each takes its owner a sort of the frontier
STOPPING = "stopping at safepoints – press ctrl-C again to stop at once"
LEAVING = "leaving – what is out on the fleet goes on, and waits to be merged by the next run"
HURRYING = "stopping at once"


class Host(Protocol):
    """What the loop needs of a session host."""

    def running(self) -> Sequence[RunningSession]: ...

    def close(self, timeout: float = ...) -> bool: ...


class Reviews(Protocol):
    """Knows which slices in review have been merged; any thread may ask, but it takes a while."""

    def merged(self, views: Iterable[SliceView]) -> list[str]: ...


@attrs.frozen
class Outcome:
    """How a run ended: the graph at the end, and where it stands."""

    snapshot: Snapshot
    standing: Standing


class Watch:
    """One run. `before` is the graph as it was before anything started, at `began_at` (Unix seconds).

    `stopping` is what is said when the first signal has come.
    """

    def __init__(
        self,
        service: DispatchService,
        host: Host,
        screen: Screen,
        interrupts: Interrupts,
        notices: Notices,
        reviews: Reviews,
        before: Snapshot,
        began_at: float,
        clock: Callable[[], float] = time.monotonic,
        stopping: str = STOPPING,
    ) -> None:
        self._service, self._host, self._screen = service, host, screen
        self._interrupts, self._notices, self._clock = interrupts, notices, clock
        self._reviews, self._began_at, self._stopping = reviews, began_at, stopping
        self._seen = -1
        self._snapshot = self._told = before
        self._counts = states(before.slices)
        self._standing = Standing({}, (), over=False)
        self._waits: dict[str, str] = {}
        self._events: collections.deque[Event] = collections.deque(maxlen=RECENT)
        self._news: list[Event] = []
        self._next_look = self._next_frame = self._next_tick = 0.0
        self._next_reviews = float("-inf")
        self._looked = 0.0
        self._notice = ""
        self._closing: threading.Thread | None = None

    def until_over(self, *, wait: bool, patience_s: float) -> Outcome:
        """Returns when the run is over, by itself or because it was interrupted and all sessions have ended.

        With `wait` it is not over before all slices are finished. After a first signal sessions have `patience_s`
        seconds to stop.

        Raises what the service raises once it can't go on (`OwnershipLostError`, `NotRunningError`).
        """
        while True:
            self._take_merges()
            changes = self._service.wait_for_change(self._seen, min(NAP_S, self._until_tick()))
            self._heed(patience_s)
            self._screen.heed()
            if changes != self._seen:
                self._look(changes)
            self._draw()
            if self._over(wait):
                return self._outcome()
            if changes != self._seen:  # not looked at yet: it would be reported at once, again and again
                self._interrupts.rest(min(NAP_S, self._next_look - self._clock()))

    # --- looking ---------------------------------------------------------------------------------------------------

    def _look(self, changes: int) -> None:
        """Take a snapshot, unless that would come too soon after the last one."""
        began = self._clock()
        if began < (self._next_look if self._host.running() else self._looked + SOONEST_S):
            return
        snapshot = self._service.snapshot()
        before, self._told = self._told, as_durable(self._told, snapshot)
        self._seen, self._snapshot = changes, snapshot
        self._counts = states(snapshot.slices)
        self._standing = Standing({}, (), over=False) if snapshot.running else standing(snapshot)
        self._waits = {name: self._why(name) for name in snapshot.frontier[: min(WAITS, self._screen.rows)]}
        news = [*self._notices.taken(), *events_between(before, self._told)]
        self._add(sorted(news, key=lambda event: event.at))
        self._looked = self._clock()
        self._next_look = self._looked + max(SOONEST_S, SHARE * (self._looked - began))

    def _take_merges(self) -> None:
        """Tell the service which reviews have been merged, now and then."""
        began = self._clock()
        if began < self._next_reviews or self._closing is not None:
            return
        try:
            for slice_id in self._reviews.merged(self._snapshot.slices):
                self._service.mark_merged(slice_id)
        except (StoreUnavailableError, TimedOutError) as problem:
            logger.warning("a review that was merged can't be noted yet: %s", problem)
        self._next_reviews = began + max(REVIEWS_S, SHARE * (self._clock() - began))

    def _why(self, slice_id: str) -> str:
        reasons = self._service.explain(slice_id).reasons
        return reasons[0].text if reasons else ""

    def _add(self, events: list[Event]) -> None:
        self._events.extend(events)
        self._news += events

    # --- showing ---------------------------------------------------------------------------------------------------

    def _until_tick(self) -> float:
        return max(0.0, self._next_tick - self._clock())

    def _draw(self) -> None:
        began = self._clock()
        self._add(self._notices.taken())
        fresh = bool(self._news) and began >= self._next_frame
        if not fresh and began < self._next_tick:
            return
        news, self._news = self._news, []
        self._screen.show(self._scene(self._snapshot), news)
        if self._screen.broken and not self._interrupts.count:
            self._interrupts.note(signal.SIGPIPE)
        took = self._clock() - began
        self._next_frame = began + max(SOONEST_S, SHARE * took)
        self._next_tick = began + max(TICK_S, SHARE * took)

    def _scene(self, snapshot: Snapshot) -> Scene:
        return Scene(
            snapshot=snapshot,
            counts=self._counts,
            sessions=self._host.running(),
            waits=self._waits,
            events=tuple(self._events),
            began_at=self._began_at,
            now=time.time(),
            notice=self._notice,
        )

    # --- ending ----------------------------------------------------------------------------------------------------

    def _heed(self, patience_s: float) -> None:
        """The first signal lets sessions come to a safepoint, a second one ends them."""
        count = self._interrupts.count
        if count and self._closing is None:
            self._say(self._stopping)
            self._closing = threading.Thread(
                target=self._host.close, args=(patience_s,), name="dispatch-closing", daemon=True
            )
            self._closing.start()
        if count > 1 and self._notice != HURRYING:
            self._say(HURRYING)
            self._host.close(0.0)

    def _say(self, notice: str) -> None:
        self._notice, self._next_tick = notice, 0.0
        self._draw()

    def _over(self, wait: bool) -> bool:
        if self._closing is not None:
            return not self._closing.is_alive()
        if self._snapshot.store.unwritten:
            return False  # the store is away: what has happened since is not on the disk, and may let more happen
        if wait:
            return self._seen >= 0 and all(view.state in FINISHED for view in self._snapshot.slices)
        return self._standing.over

    def _outcome(self) -> Outcome:
        """From a last look, at leisure."""
        snapshot = self._service.snapshot()
        news = [*self._news, *events_between(self._told, as_durable(self._told, snapshot))]
        self._counts = states(snapshot.slices)
        self._screen.show(self._scene(snapshot), news)
        return Outcome(snapshot, standing(snapshot))


class Notices(logging.Handler):
    """Takes what is logged or told while a run is shown, so that it doesn't tear the screen apart."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._taken: collections.deque[Event] = collections.deque(maxlen=RECENT)

    def emit(self, record: logging.LogRecord) -> None:
        if record.name != reach.name:  # the snapshots tell that, too
            self.tell(Event(record.created, "warning", "", record.getMessage()))

    def tell(self, event: Event) -> None:
        """From any thread."""
        self._taken.append(event)

    def taken(self) -> list[Event]:
        """What came since the last call."""
        events = []
        while self._taken:
            events.append(self._taken.popleft())
        return events
