"""What happened between two snapshots, as events. Nothing here touches a terminal."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from dispatch.slice import OCCUPYING, SliceState
from dispatch.views import SliceView, Snapshot

_ENDS = {
    SliceState.MERGED: "merged",
    SliceState.FAILED: "failed",
    SliceState.CANCELED: "canceled",
    SliceState.IN_REVIEW: "in review",
}


UNSAID = "it ended without a merge"


@attrs.frozen
class Event:
    """One thing that happened. `at`: Unix seconds; `slice_id`: empty for the graph's own; `detail`: as it came."""

    at: float
    what: str
    slice_id: str = ""
    detail: str = ""


def as_durable(before: Snapshot | None, after: Snapshot) -> Snapshot:
    """`after` with slices whose change is not on the disk yet as they were `before`: nothing has come of it so far."""
    waiting = frozenset(after.store.unwritten)
    if not waiting:
        return after
    known = {view.id: view for view in before.slices} if before is not None else {}
    slices = (known.get(view.id) if view.id in waiting else view for view in after.slices)
    return attrs.evolve(after, slices=tuple(view for view in slices if view is not None))


def events_between(before: Snapshot | None, after: Snapshot) -> list[Event]:
    """In order of time. An attempt that began and ended between the two is told by its end alone."""
    if before is None:
        return []
    known = {view.id: view for view in before.slices}
    found = list(_of_graph(before, after))
    for view in after.slices:
        old = known.get(view.id)
        if old is None or _differs(old, view):
            found += _of_slice(old, view, after.taken_at)
    found.sort(key=lambda event: (event.at, event.what == "started"))  # at one instant: what made room comes first
    return found


def _differs(old: SliceView, new: SliceView) -> bool:
    return (
        old.state is not new.state
        or old.attempt != new.attempt
        or old.closes != new.closes
        or old.hold != new.hold
        or old.canceling != new.canceling
    )


def _of_graph(before: Snapshot, after: Snapshot) -> Iterator[Event]:
    if after.paused != before.paused:
        yield Event(after.taken_at, "paused" if after.paused else "resumed", "", after.paused)
    if after.store.reachable != before.store.reachable:
        if after.store.reachable:
            yield Event(after.taken_at, "store", "", "the store is in reach again")
        else:
            yield Event(after.store.since, "store", "", f"the store is out of reach: {after.store.problem}")


def _of_slice(old: SliceView | None, new: SliceView, now: float) -> Iterator[Event]:
    state = old.state if old else SliceState.QUEUED
    attempt, closes = (old.attempt, old.closes) if old else (0, 0)
    again = new.attempt > attempt and new.state is not SliceState.QUEUED
    if new.closes > closes and new.state is not SliceState.FAILED:
        yield Event(_last_end(new, now, again=again), "closed", new.id, _reason(new))
    elif state in OCCUPYING and (new.state is SliceState.QUEUED or new.attempt > attempt):
        yield Event(_last_end(new, now, again=again), "stopped", new.id, _stop_detail(state, new))
    if new.attempt > attempt:
        which = f"attempt {new.attempt}" if new.attempt > 1 else ""
        yield Event(new.started_at, "started", new.id, which)
    if new.state is SliceState.PREEMPTED and state is not SliceState.PREEMPTED:
        yield Event(now, "preempted", new.id, "asked to stop at its next safepoint, to make room")
    if new.state in _ENDS and new.state is not state:
        yield Event(new.ended_at or now, _ENDS[new.state], new.id, _end_detail(new))
    if new.state is SliceState.QUEUED and state in (SliceState.FAILED, SliceState.IN_REVIEW):
        yield Event(now, "retried", new.id)
    yield from _of_orders(old, new, now)


def _of_orders(old: SliceView | None, new: SliceView, now: float) -> Iterator[Event]:
    """What an operator said about it."""
    held = old.hold if old else ""
    if new.hold != held:
        yield Event(now, "held" if new.hold else "released", new.id, "" if new.hold == "held" else new.hold)
    if new.canceling and new.state in OCCUPYING and not (old and old.canceling):
        yield Event(now, "canceling", new.id, "asked to stop; it is canceled when it has")


def _last_end(view: SliceView, now: float, *, again: bool) -> float:
    """When its last attempt ended; if it has begun `again` since, no later than the one that did."""
    return (view.started_at if again else view.ended_at) or view.started_at or now


def _reason(view: SliceView) -> str:
    return f"{view.error or UNSAID} (close {view.closes} of {view.slice.recipe.max_attempts}; queued again)"


def _stop_detail(before: SliceState, view: SliceView) -> str:
    """Between two looks a slice may have been asked and have stopped: then it says how it ended."""
    if before is SliceState.PREEMPTED:
        return "it made room, and is queued again"
    return f"{view.error or UNSAID} (queued again)"


def _end_detail(view: SliceView) -> str:
    if view.state is SliceState.FAILED:
        return view.error or "no reason was given"
    if view.state is SliceState.IN_REVIEW:
        return view.pull_request_url
    return ""
