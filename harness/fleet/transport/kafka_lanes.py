"""What a Kafka consumer has of each partition that is its own: what was fetched, and what of it is out. Pure.

Theory of operation: a partition is read in order, and its committed offset says that everything before it is done with.
So a *lane*, which is one partition, has one record out at a time: its first. When that one is done with, the offset
behind it is the lowest that is not, and can be committed; the lane's next record may go. Sessions are spread over the
partitions by their key: that a lane is serial makes a session serial.

A few records are kept beyond the first, so that the next turn need not wait for a fetch; the partition is paused while
its lane is full. A lane ends when its partition goes to another consumer, and takes along what was out of it: should
the partition come back, it comes as a new lane.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Iterable

import attrs

FULL = 64  #: records in a lane: then its partition is paused
LOW = 16  #: records in a lane: then it goes on
_REMEMBERED = 1_024  #: tickets of what was done last: whoever got no answer may ask again


@attrs.frozen
class Record:
    """One of a partition's: its offset there, its value, and when it was written (Unix seconds, 0 if not known)."""

    offset: int
    value: bytes
    at: float = 0.0


class Standing(enum.Enum):
    """What became of a record that was handed out."""

    OUT = "out"
    DONE = "done"  #: the offset behind it is committed
    BACK = "back"  #: it is the first of its lane again
    LOST = "lost"  #: its partition is another consumer's, or comes to this one anew


@attrs.define(eq=False)
class Out:
    """A record that was handed out. No two have the same `ticket`."""

    ticket: int
    partition: int
    record: Record
    standing: Standing = Standing.OUT


@attrs.define(eq=False)
class _Lane:
    """`due`: its first record is not handed out earlier."""

    records: deque[Record] = attrs.field(factory=deque)
    out: Out | None = None
    due: float = 0.0
    is_paused: bool = False

    @property
    def is_waiting(self) -> bool:
        return bool(self.records) and self.out is None


@attrs.define(eq=False)
class Lanes:
    """All of a consumer's. Times are whatever clock the caller has, as long as it is always the same."""

    _lanes: dict[int, _Lane] = attrs.field(factory=dict)
    _out: dict[int, Out] = attrs.field(factory=dict)
    _done: dict[int, None] = attrs.field(factory=dict)
    _tickets: int = 0

    @property
    def partitions(self) -> frozenset[int]:
        return frozenset(self._lanes)

    @property
    def is_idle(self) -> bool:
        """Whether there is no record here at all."""
        return not any(lane.records for lane in self._lanes.values())

    def open(self, partitions: Iterable[int]) -> None:
        """They are this consumer's now, from their committed offset on."""
        for partition in partitions:
            self.end([partition])
            self._lanes[partition] = _Lane()

    def end(self, partitions: Iterable[int]) -> None:
        """They are this consumer's no more."""
        for partition in partitions:
            lane = self._lanes.pop(partition, None)
            if lane is not None and lane.out is not None:
                self._settle(lane, Standing.LOST)

    def take_in(self, partition: int, record: Record) -> bool:
        """Whether the partition is to be paused. What comes of one that is no more here is left to whose it is."""
        lane = self._lanes.get(partition)
        if lane is None:
            return False
        lane.records.append(record)
        is_full = len(lane.records) >= FULL and not lane.is_paused
        lane.is_paused |= is_full
        return is_full

    def hand_out(self, limit: int, now: float) -> list[Out]:
        """At most one of each lane, those first that were written first."""
        ready = [number for number, lane in self._lanes.items() if lane.is_waiting and lane.due <= now]
        ready.sort(key=lambda number: (self._lanes[number].records[0].at, number))
        return [self._hand_out(number) for number in ready[: max(0, limit)]]

    def next_due(self) -> float | None:
        """When the first record that waits may be handed out; None if none waits."""
        return min((lane.due for lane in self._lanes.values() if lane.is_waiting), default=None)

    def find(self, ticket: int) -> Out | None:
        """The record that is out by that ticket."""
        return self._out.get(ticket)

    def is_done(self, ticket: int) -> bool:
        """Whether the record that was out by that ticket is done with, and not long ago."""
        return ticket in self._done

    def give_back(self, out: Out, due: float) -> None:
        """It is handed out again from `due` on, before what follows it."""
        lane = self._lanes[out.partition]
        lane.due = due
        self._settle(lane, Standing.BACK)

    def commit(self, partition: int, offset: int) -> bool:
        """So far the partition is committed. Whether it is to be resumed."""
        lane = self._lanes.get(partition)
        if lane is None or lane.out is None or lane.out.record.offset + 1 != offset:
            return False
        lane.records.popleft()
        self._done[lane.out.ticket] = None
        if len(self._done) > _REMEMBERED:
            del self._done[next(iter(self._done))]
        self._settle(lane, Standing.DONE)
        is_low = lane.is_paused and len(lane.records) <= LOW
        lane.is_paused &= not is_low
        return is_low

    def check(self) -> None:
        """Raises `AssertionError` if anything here does not fit the rest."""
        outs = {lane.out.ticket: lane.out for lane in self._lanes.values() if lane.out is not None}
        assert outs == self._out, "tickets and lanes differ"
        for number, lane in self._lanes.items():
            assert lane.out is None or (lane.out.partition, lane.out.record) == (number, lane.records[0])
            assert lane.out is None or lane.out.standing is Standing.OUT
            assert lane.is_paused or len(lane.records) < FULL, f"lane {number} is full and not paused"
            assert not lane.is_paused or len(lane.records) > LOW, f"lane {number} is paused and low"

    def _hand_out(self, number: int) -> Out:
        lane = self._lanes[number]
        self._tickets += 1
        lane.out = self._out[self._tickets] = Out(self._tickets, number, lane.records[0])
        return lane.out

    def _settle(self, lane: _Lane, standing: Standing) -> None:
        assert lane.out is not None
        lane.out.standing = standing
        del self._out[lane.out.ticket]
        lane.out = None
