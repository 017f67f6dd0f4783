"""Work items for as long as a process lives: for tests, and for trying things out."""

from __future__ import annotations

import hashlib
import itertools
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence

import attrs

from harness.fleet.commands import Command, Hand
from harness.fleet.envelope import check_contents
from harness.fleet.ledger import Session, perform
from harness.fleet.lifecycle import is_abandoned, is_lapsed, step
from harness.fleet.ports import KEPT_S, Buried, Query, Result, Tally, WorkerPresence
from harness.fleet.work_item import ENDED, HELD, Outcome, WorkItem, WorkItemState
from harness.text import storable


class _Rows:
    """The items of a `MemoryWorkItems` as `ledger.Rows`: a copy, put in the place of the first when all went well."""

    def __init__(self, kept: MemoryWorkItems, now: float) -> None:
        self._kept, self._now = kept, now
        self.items = dict(kept.items)
        self.outcomes: list[Outcome] = []

    def now(self) -> float:
        return self._now

    def tokens(self, count: int) -> Sequence[int]:
        return [next(self._kept.tokens) for _ in range(count)]

    def lock(self, ids: Sequence[str]) -> dict[str, WorkItem]:
        return {name: self.items[name] for name in ids if name in self.items}

    def held_in(self, sessions: Sequence[Session]) -> dict[Session, str]:
        held = {(item.tenant, item.session_id): item.id for item in self.items.values() if item.state in HELD}
        return {session: held[session] for session in sessions if session in held}

    def waiting_for(self, ids: Sequence[str]) -> dict[str, tuple[str, ...]]:
        waiting = [item for item in self.items.values() if item.state is WorkItemState.SUBMITTED]
        found = {name: tuple(item.id for item in waiting if name in item.depends_on) for name in ids}
        return {name: names for name, names in found.items() if names}

    def unmet(self, ids: Sequence[str]) -> dict[str, int]:
        def met(name: str) -> bool:
            return name in self.items and self.items[name].state is WorkItemState.SUCCEEDED

        return {name: sum(not met(other) for other in set(self.items[name].depends_on)) for name in ids}

    def save(
        self, new: Sequence[WorkItem], changed: Sequence[WorkItem], gone: Sequence[str], outcomes: Sequence[Outcome]
    ) -> None:
        self.items |= {item.id: item for item in (*new, *changed)}
        for name in gone:
            del self.items[name]
        self.outcomes += outcomes


class MemoryWatch:
    """By a count of transactions."""

    def __init__(self, kept: MemoryWorkItems) -> None:
        self._kept, self._closed = kept, False
        with kept.changed:
            self._seen = kept.changes

    def wait(self, seconds: float) -> bool:
        with self._kept.changed:
            self._kept.changed.wait_for(lambda: self._closed or self._kept.changes != self._seen, seconds)
            news, self._seen = self._kept.changes != self._seen, self._kept.changes
            return news and not self._closed

    def close(self) -> None:
        with self._kept.changed:
            self._closed = True
            self._kept.changed.notify_all()


class MemoryWorkItems:
    """`clock` gives Unix seconds."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock, self._mutex = clock, threading.Lock()
        self.changed, self.changes = threading.Condition(self._mutex), 0
        self.items: dict[str, WorkItem] = {}
        self.tokens = itertools.count(1)
        self._outcomes: list[Outcome] = []
        self._forgotten: list[Outcome] = []  # of items that were pruned: they still count
        self._contents: dict[str, tuple[bytes, float]] = {}  # and when they were kept
        self._messages: dict[str, list[str]] = {}
        self._graves: dict[str, Buried] = {}
        self._present: dict[str, WorkerPresence] = {}
        self._locked: set[Session] = set()

    def perform(self, commands: Sequence[Command]) -> tuple[Result, ...]:
        with self._mutex:
            rows = _Rows(self, self._clock())
            results = perform(rows, commands)
            self.items, self._outcomes = rows.items, self._outcomes + rows.outcomes
            self.changes += 1
            self.changed.notify_all()
            return results

    def find(self, ids: Sequence[str]) -> dict[str, WorkItem]:
        with self._mutex:
            return {name: self.items[name] for name in ids if name in self.items}

    def search(self, query: Query) -> tuple[WorkItem, ...]:
        with self._mutex:
            found = list(self.items.values())
        names = [item.id for item in found]
        start = names.index(query.after) + 1 if query.after in names else 0
        return tuple(item for item in found[start:] if _is_meant(query, item))[: query.limit]

    def undelivered(self, limit: int, handed_before_s: float) -> tuple[WorkItem, ...]:
        with self._mutex:
            now = self._clock()
            waiting = [item for item in self.items.values() if _needs_a_delivery(item, now, handed_before_s)]
            waiting.sort(key=lambda item: item.not_before)
            handed = [step(item, Hand(item.id, item.tenant), now).item for item in waiting[:limit]]
            taken = tuple(item for item in handed if item is not None)
            self.items |= {item.id: item for item in taken}
            return taken

    def claimable(self, limit: int, tenant: str | None = None, kinds: Collection[str] = ()) -> tuple[WorkItem, ...]:
        with self._mutex:
            now, everything = self._clock(), list(self.items.values())
        meant = [item for item in everything if tenant in (None, item.tenant) and (not kinds or item.kind in kinds)]
        expired = sorted((item for item in meant if is_abandoned(item, now)), key=lambda item: item.expires_at)
        busy = {(item.tenant, item.session_id) for item in everything if item.state in HELD and item.expires_at >= now}
        free = [
            item
            for item in meant
            if _needs_a_delivery(item, now, -math.inf) and (item.tenant, item.session_id) not in busy
        ]
        free.sort(key=lambda item: (item.priority, math.inf if item.deadline is None else item.deadline))
        return (*expired, *free)[:limit]

    def overtaken(self, limit: int) -> tuple[WorkItem, ...]:
        with self._mutex:
            now = self._clock()
            found = (item for item in self.items.values() if is_abandoned(item, now) or is_lapsed(item, now))
            return tuple(itertools.islice(found, limit))

    def outcomes(self, item_id: str) -> tuple[Outcome, ...]:
        with self._mutex:
            return tuple(outcome for outcome in self._outcomes if outcome.item_id == item_id)

    def watch(self) -> MemoryWatch:
        return MemoryWatch(self)

    def close(self) -> None:
        """Nothing is open."""

    def lock_sessions(self, sessions: Sequence[Session]) -> tuple[bool, ...]:
        with self._mutex:
            free = [session not in self._locked and session not in sessions[:at] for at, session in enumerate(sessions)]
            self._locked |= set(sessions)
            return tuple(free)

    def seize_sessions(self, sessions: Sequence[Session]) -> tuple[bool, ...]:
        """There is no other process."""
        return self.lock_sessions(sessions)

    def unlock_sessions(self, sessions: Sequence[Session]) -> None:
        with self._mutex:
            self._locked -= set(sessions)

    def keep(self, contents: bytes) -> str:
        check_contents(contents)
        reference = f"sha256:{hashlib.sha256(contents).hexdigest()}"
        with self._mutex:
            self._contents[reference] = contents, self._clock()
        return reference

    def contents(self, payload_ref: str) -> bytes | None:
        with self._mutex:
            return self._contents.get(payload_ref, (None, 0.0))[0]

    def say(self, item_id: str, text: str) -> int:
        with self._mutex:
            messages = self._messages.setdefault(item_id, [])
            messages.append(storable(text))
            return len(messages)

    def said(self, item_id: str, after: int) -> tuple[tuple[int, str], ...]:
        with self._mutex:
            return tuple(enumerate(self._messages.get(item_id, ()), start=1))[after:]

    def bury(self, found: Sequence[Buried]) -> None:
        with self._mutex:
            now = self._clock()
            for each in (attrs.evolve(each, cause=storable(each.cause)) for each in found):
                before = self._graves.pop(each.digest, None)
                first = attrs.evolve(each, count=0, first_at=now) if before is None else before
                self._graves[each.digest] = attrs.evolve(first, count=first.count + each.count, last_at=now)

    def graves(self, limit: int) -> tuple[Buried, ...]:
        with self._mutex:
            return tuple(reversed(self._graves.values()))[:limit]

    def prune(self, before: float) -> int:
        with self._mutex:
            waiting = [item for item in self.items.values() if item.state is WorkItemState.SUBMITTED]
            awaited = {name for item in waiting for name in item.depends_on}
            ends = ENDED - {WorkItemState.DEAD_LETTER}
            old = {item.id for item in self.items.values() if item.state in ends and item.changed_at < before} - awaited
            self.items = {name: item for name, item in self.items.items() if name not in old}
            self._forgotten += [each for each in self._outcomes if each.item_id in old]
            self._outcomes = [each for each in self._outcomes if each.item_id not in old]
            self._messages = {name: texts for name, texts in self._messages.items() if name not in old}
            meant = {item.payload_ref for item in self.items.values()}
            kept = self._contents.items()
            self._contents = {name: each for name, each in kept if name in meant or each[1] >= before}
            return len(old)

    def beat(self, presence: WorkerPresence) -> None:
        with self._mutex:
            now = self._clock()
            before = self._present.get(presence.token)
            started_at = now if before is None else before.started_at
            self._present[presence.token] = attrs.evolve(presence, started_at=started_at, seen_at=now)
            self._present = {token: each for token, each in self._present.items() if each.seen_at >= now - KEPT_S}

    def leave(self, token: str) -> None:
        with self._mutex:
            self._present.pop(token, None)

    def workers(self, within_s: float) -> tuple[WorkerPresence, ...]:
        with self._mutex:
            now = self._clock()
            there = [each for each in self._present.values() if each.seen_at >= now - within_s]
            return tuple(sorted(there, key=lambda each: (each.started_at, each.token)))

    def tally(self) -> Tally:
        with self._mutex:
            now, items, outcomes = self._clock(), self.items.values(), self._forgotten + self._outcomes
            lapses = [now - item.expires_at for item in items if is_abandoned(item, now)]
            return Tally(
                at=now,
                schema=1,
                items=Counter(item.state for item in items),
                outcomes=Counter(each.ended for each in outcomes),
                expired=sum(each.expired for each in outcomes),
                overdue=len(lapses),
                overdue_s=max(lapses, default=0.0),
                due=Counter(item.kind for item in items if _is_due(item, now)),
            )


def _is_meant(query: Query, item: WorkItem) -> bool:
    return (
        query.tenant in (None, item.tenant)
        and query.session_id in (None, item.session_id)
        and query.kind in (None, item.kind)
        and (not query.states or item.state in query.states)
    )


def _is_due(item: WorkItem, now: float) -> bool:
    return item.state is WorkItemState.READY and item.not_before <= now


def _needs_a_delivery(item: WorkItem, now: float, handed_before_s: float) -> bool:
    return _is_due(item, now) and not item.delivered and item.handed_at <= now - handed_before_s
