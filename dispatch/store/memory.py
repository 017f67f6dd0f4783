"""Graphs in memory, behind the same port and with the same rules as on disk, for as long as the object lives."""

from __future__ import annotations

import contextlib
import functools
import itertools
import threading
import time
from collections.abc import Callable, Iterator

import attrs

from dispatch.errors import OwnershipLostError, StoreError
from dispatch.store import codec
from dispatch.store.following import Follower, Position
from dispatch.store.ownership import (
    CLAIM_S,
    Held,
    Wait,
    claim_in_turn,
    hindrance,
    live_claim,
    lost,
    serves_another,
    succession,
    unclaimed,
)
from dispatch.store.port import (
    AttemptRow,
    Changes,
    Claim,
    Contents,
    GraphRow,
    IntentRow,
    KeyframeRow,
    Logged,
    LogRow,
    SliceRow,
)
from dispatch.store.process import Owner, Presence, presence_of, this_process


@attrs.define
class _Graph:
    held: Held | None = None
    row: GraphRow | None = None
    slices: dict[str, SliceRow] = attrs.Factory(dict)
    attempts: dict[tuple[str, int], AttemptRow] = attrs.Factory(dict)
    intents: dict[str, IntentRow] = attrs.Factory(dict)
    log: dict[int, LogRow] = attrs.Factory(dict)  # in order
    keyframes: dict[int, KeyframeRow] = attrs.Factory(dict)

    def contents(self) -> Contents:
        return Contents(
            self.row,
            tuple(sorted(self.slices.values(), key=lambda row: (row.seq, row.slice.id))),
            tuple(self.attempts[key] for key in sorted(self.attempts)),
            tuple(sorted(self.intents.values(), key=lambda row: (row.seq, row.intent.id))),
            Logged(self.last(), tuple((seq, self.keyframes[seq].at) for seq in sorted(self.keyframes))),
        )

    def last(self) -> int:
        """How far the log goes."""
        return max((0, *self.log, *self.keyframes))

    def check_attempts(self, changes: Changes) -> None:
        arriving = {row.slice.id for row in changes.slices}
        for attempt in changes.attempts:
            if attempt.slice_id not in self.slices and attempt.slice_id not in arriving:
                raise StoreError(codec.ORPHANED_ATTEMPT)

    def apply(self, changes: Changes) -> None:
        self.row = changes.graph or self.row
        for row in changes.slices:
            first = self.slices.get(row.slice.id)
            if first is not None and first.slice is not row.slice and row.slice.id not in changes.revised:
                row = attrs.evolve(row, slice=first.slice)
            self.slices[row.slice.id] = row
        self.attempts.update(((row.slice_id, row.attempt), row) for row in changes.attempts)
        for intent_id in changes.forgotten:
            self.intents.pop(intent_id, None)
        self.intents.update((row.intent.id, row) for row in changes.intents)
        for entry in changes.log:
            self.log.setdefault(entry.seq, entry)
        if changes.keyframe is not None:
            self.keyframes.setdefault(changes.keyframe.seq, changes.keyframe)


@attrs.define
class _Database:
    """What handles share. The lock stands for the database's own: it makes a batch one step for other threads."""

    graphs: dict[str, _Graph] = attrs.Factory(dict)
    lock: threading.Condition = attrs.Factory(threading.Condition)  # notified of what is written


class MemoryStore:
    """A store that outlives the services it serves, but not the process.

    `clock` gives Unix seconds; `sleep` and `presence` are what a claim waits with and judges by.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
        presence: Callable[[Owner], Presence] = presence_of,
    ) -> None:
        self._clock, self._sleep, self._presence = clock, sleep, presence
        self._database = _Database()
        self._mine: Held | None = None

    def another(self) -> MemoryStore:
        """A second handle on the same graphs, with a claim of its own, as another process would have."""
        handle = MemoryStore(clock=self._clock, sleep=self._sleep, presence=self._presence)
        handle._database = self._database
        return handle

    @property
    def url(self) -> str:
        return "memory:"

    def claim(self, graph: str, *, take_over: bool = False) -> Claim:
        codec.check_name(graph)
        if self._mine is not None and self._mine.graph != graph:
            raise serves_another(self._mine.graph)
        return claim_in_turn(functools.partial(self._try_claim, graph, take_over), self._sleep).claim

    def _try_claim(self, graph: str, take_over: bool, outlasted: Held | None) -> Held | Wait:
        with self._database.lock:
            now, stored = self._clock(), self._database.graphs.setdefault(graph, _Graph())
            wait = None if take_over else hindrance(stored.held, now, self._presence, outlasted)
            if wait is not None:
                return wait
            stored.held = self._mine = succession(graph, stored.held, this_process(), now)
            self._database.lock.notify_all()
            return stored.held

    def load(self) -> Contents:
        with self._database.lock:
            stored, _ = self._owned()
            return stored.contents()

    def write(self, changes: Changes) -> None:
        codec.check(changes)
        with self._database.lock:
            stored, _ = self._owned()
            stored.check_attempts(changes)
            stored.apply(changes)
            self._database.lock.notify_all()

    def renew(self) -> None:
        with self._database.lock:
            stored, held = self._owned()
            stored.held = attrs.evolve(held, expires_at=self._clock() + CLAIM_S)

    def release(self) -> None:
        with self._database.lock, contextlib.suppress(OwnershipLostError):  # then there is nothing to give up
            stored, held = self._owned()
            stored.held = attrs.evolve(held, expires_at=0.0)
            self._database.lock.notify_all()
        self._mine = None

    def peek(self, graph: str) -> tuple[Contents, Claim | None]:
        codec.check_name(graph)
        with self._database.lock:
            stored = self._database.graphs.get(graph, _Graph())
            return stored.contents(), live_claim(stored.held, self._clock(), self._presence)

    def follow(self, graph: str) -> Follower:
        """`graph`, for any thread of this process."""
        codec.check_name(graph)
        return Follower(lambda: _Look(self._database, graph, self._clock, self._presence))

    def history(self) -> MemoryHistory:
        return MemoryHistory(self._database, self._clock, self._presence)

    def _owned(self) -> tuple[_Graph, Held]:
        if self._mine is None:
            raise unclaimed()
        mine, stored = self._mine, self._database.graphs[self._mine.graph]
        if stored.held is None or not mine.is_same(stored.held):
            self._mine = None
            raise lost(mine.graph)
        return stored, stored.held


@attrs.define
class _Look:
    """One graph of those that handles share."""

    _database: _Database
    _graph: str
    _clock: Callable[[], float]
    _presence: Callable[[Owner], Presence]
    _asked: Position = attrs.field(factory=Position)

    def position(self) -> Position:
        with self._database.lock:
            self._asked = self._position()[0]
            return self._asked

    def read(self) -> tuple[Position, Contents, Claim | None]:
        with self._database.lock:
            position, claim = self._position()
            return position, self._stored().contents(), claim

    def pause(self, seconds: float) -> None:
        with self._database.lock:
            self._database.lock.wait_for(lambda: self._position()[0] != self._asked, seconds)

    def close(self) -> None:
        """There is nothing open."""

    def _position(self) -> tuple[Position, Claim | None]:
        stored = self._stored()
        claim = live_claim(stored.held, self._clock(), self._presence)
        last, epoch = stored.last(), stored.held.epoch if stored.held is not None else 0
        return Position(last, epoch, claim is not None), claim

    def _stored(self) -> _Graph:
        return self._database.graphs.get(self._graph, _Graph())


@attrs.frozen
class _Reading:
    """Copies: what it was made of goes on."""

    contents: Contents
    claim: Claim | None
    log: tuple[LogRow, ...]
    keyframes: dict[int, KeyframeRow]

    def entries(self, after: int, limit: int, kind: str = "") -> list[LogRow]:
        wanted = (row for row in self.log if row.seq > after and kind in ("", row.kind))
        return list(itertools.islice(wanted, limit))

    def keyframe(self, seq: int) -> KeyframeRow:
        return self.keyframes[seq]


@attrs.frozen
class MemoryHistory:
    """The log of the graphs that a `MemoryStore` shares with other handles."""

    _database: _Database
    _clock: Callable[[], float]
    _presence: Callable[[Owner], Presence]

    @contextlib.contextmanager
    def reading(self, graph: str) -> Iterator[_Reading]:
        codec.check_name(graph)
        with self._database.lock:
            stored = self._database.graphs.get(graph, _Graph())
            claim = live_claim(stored.held, self._clock(), self._presence)
            log = tuple(stored.log[seq] for seq in sorted(stored.log))
            reading = _Reading(stored.contents(), claim, log, dict(stored.keyframes))
        yield reading

    def keep(self, graph: str, keyframe: KeyframeRow) -> None:
        with self._database.lock:
            self._database.graphs[graph].keyframes.setdefault(keyframe.seq, keyframe)

    def prune(self, graph: str, keyframe: int, limit: int) -> int:
        with self._database.lock:
            stored = self._database.graphs[graph]
            if keyframe not in stored.keyframes:
                return 0
            going = sorted(seq for seq in stored.log if seq <= keyframe)[:limit]
            for seq in going:
                del stored.log[seq]
            if all(seq > keyframe for seq in stored.log):
                for seq in [seq for seq in stored.keyframes if seq < keyframe]:
                    del stored.keyframes[seq]
            return len(going)
