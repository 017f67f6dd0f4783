"""A graph's past, played again from its log.

The log holds every input that was taken in and what was decided upon it. What decides is pure: a machine that is given
the same inputs, times and caps makes the same decisions and ends as the same graph. `check` plays the whole log and
says where that isn't so; `moment` plays it up to some entry, to see the graph as it was then.

A log begins with the graph, or with a keyframe: where it was pruned, or where a store that an older version had made
began to keep one. An owner's start is an entry too. There the machine is made anew, as it was then, from what the store
held, which is what had come out so far.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import attrs

from dispatch import keyframe as keyframes
from dispatch.errors import DispatchError
from dispatch.inputs import OPEN, REVISE, decoded
from dispatch.journal import Journal
from dispatch.keyframe import Keyframe
from dispatch.machine import Machine
from dispatch.slice import Slice
from dispatch.store import codec
from dispatch.store.port import AttemptRow, Contents, LogRow, Reading
from dispatch.weights import Weights, new_weights

Frame = tuple[int, float]  #: seq and time of a keyframe
_CHUNK = 500  #: entries that are read at once
_COUNTED = ("starts", "preempts", "stops", "sends")  #: what of an entry's decisions are decisions of their own


class UnplayableError(DispatchError):
    """The log can't be played here; the message says why, and what would help."""


@attrs.frozen
class Difference:
    """Where what comes out is not what the log holds. `seq` is the entry's, 0 for the graph as a whole.

    `stored` and `came_out` say what the two have, in a line each.
    """

    seq: int
    text: str
    stored: str = ""
    came_out: str = ""


@attrs.frozen
class Verdict:
    """What came of playing a log: how much of it there was, from when to when (Unix seconds), and the first difference.

    `begins`: why the log doesn't begin with the graph, in words; empty if it does.
    """

    inputs: int
    decisions: int
    since: float
    until: float
    begins: str = ""
    difference: Difference | None = None


@attrs.frozen(eq=False)
class Moment:
    """A graph as it was after the entry `seq`, at `at`; `epoch` and `since` are those of its owner at that time."""

    machine: Machine
    seq: int
    at: float
    epoch: int
    since: float


class Replay:
    """A machine that is given a log, entry by entry, from the keyframe `start` at entry `seq` on.

    Without `start` it is an empty graph with the identity `graph_id`. `declared`: the slices as they were enqueued, by
    their place in enqueue order. `weights` makes new ones of a kind.
    """

    def __init__(
        self,
        name: str,
        graph_id: str,
        start: Keyframe | None,
        seq: int,
        declared: Mapping[int, Slice],
        weights: Callable[[str], Weights | None] = new_weights,
    ) -> None:
        self.name, self.graph_id, self.seq = name, graph_id, seq
        self._declared, self._weights = declared, weights
        self.epoch = self.inputs = self.decisions = 0
        self.since = self.at = self.opened_at = 0.0
        self.attempts: dict[tuple[str, int], AttemptRow] = {}
        self.machine = self._new("", start.weights if start else "unit")
        if start is not None:
            self.machine.resume(start)
            self.epoch = start.epoch

    def play(self, row: LogRow) -> Difference | None:
        """Give it the next entry; tells in what it doesn't come out as it was written down. Then the replay is over.

        Raises `UnplayableError` for weights of a kind that nobody here can make.
        """
        if row.seq != self.seq + 1:
            missing = f"entry {self.seq + 1}" if row.seq == self.seq + 2 else f"entries {self.seq + 1} to {row.seq - 1}"
            return Difference(self.seq + 1, f"{missing} of the log can't be found")
        try:
            self._apply(row)
        except DispatchError as refusal:
            if isinstance(refusal, UnplayableError):
                raise
            return Difference(row.seq, f"entry {row.seq} was taken in, and is refused when it is played: {refusal}")
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            return Difference(row.seq, f"entry {row.seq} can't be read: {error!r}")
        return self._compare(row)

    def _apply(self, row: LogRow) -> None:
        fields = json.loads(row.input)
        if row.kind == OPEN:
            self._open(row, fields)
            return
        command = decoded(row.kind, fields, self._declared)
        self._expect(row)
        self.machine.suspended = row.suspended
        self.machine.handle(command, row.at, row.cap)

    def _open(self, row: LogRow, fields: dict[str, Any]) -> None:
        """An owner started: it read what the store held, and took up the sessions that lived."""
        contents = self.machine.contents()
        self.machine = self._new(fields["version"], fields["weights"])
        self._expect(row)
        self.opened_at = row.at
        self.machine.restore(contents, fields["alive"], row.at)

    def _new(self, version: str, kind: str) -> Machine:
        weights = self._weights(kind)
        if weights is None:
            raise UnplayableError(
                f"graph {self.name!r} was ranked with weights of the kind {kind!r}, which only the program that made"
                " them knows; replay it there, with those weights"
            )
        return Machine(self.name, self.graph_id, weights, Journal(0, version=version))

    def _expect(self, row: LogRow) -> None:
        journal = self.machine.journal
        assert journal is not None
        journal.epoch, journal.last = row.epoch, row.seq - 1

    def _compare(self, row: LogRow) -> Difference | None:
        changes = self.machine.changes()
        self.attempts.update({(attempt.slice_id, attempt.attempt): attempt for attempt in changes.attempts})
        self.machine.written()
        self.machine.take_effects()
        self.seq, self.at, self.epoch = row.seq, row.at, row.epoch
        self.since = self.since or row.at
        self.inputs += 1
        if changes.log != (row,):
            return _unlike(row, changes.log)
        self.decisions += sum(len(part) for name, part in json.loads(row.decisions).items() if name in _COUNTED)
        return None


def _unlike(row: LogRow, came_out: tuple[LogRow, ...]) -> Difference:
    if not came_out:
        text = f"entry {row.seq} ({row.kind}) changes nothing when it is played"
        return Difference(row.seq, text, row.decisions, "no entry")
    (other,) = came_out
    if other.decisions != row.decisions:
        text = f"entry {row.seq} ({row.kind}) led to other decisions than those that come out"
        return Difference(row.seq, text, row.decisions, other.decisions)
    return Difference(row.seq, f"entry {row.seq} is not the input that it was played as", repr(row), repr(other))


# -- whole logs ----------------------------------------------------------------------------------------------------


def check(name: str, reading: Reading, weights: Callable[[str], Weights | None] = new_weights) -> Verdict:
    """Play all of the log, and compare its decisions with those that come out, and the stored graph with the last.

    Raises `UnplayableError` if there is nothing to play, or no way to.
    """
    frame = starts(reading)[0]
    replay = _replay(name, reading, frame, weights)
    begins = "" if frame is None else _beginning(frame)
    for row in entries(reading, replay.seq):
        difference = replay.play(row)
        if difference is not None:
            return _verdict(replay, begins, difference)
    return _verdict(replay, begins, _last_difference(replay, reading.contents))


def _verdict(replay: Replay, begins: str, difference: Difference | None) -> Verdict:
    return Verdict(replay.inputs, replay.decisions, replay.since, replay.at, begins, difference)


def _beginning(frame: Frame | None) -> str:
    assert frame is not None, "a log that begins with its graph reaches back as far as there was anything"
    seq, _ = frame
    if seq:
        return f"what came before entry {seq + 1} is no longer kept"
    return "what came before was not written down: the store was made by an older version"


def moment(
    name: str,
    reading: Reading,
    reached: Callable[[int, float], bool],
    weights: Callable[[str], Weights | None] = new_weights,
) -> Moment:
    """The graph after the last entry that comes before the first of which `reached(seq, at)` is true.

    Raises `UnplayableError` for one that the log doesn't reach back to, or where what comes out isn't what was stored.
    """
    found = starts(reading)
    before = [frame for frame in found if frame is None or not reached(*frame)]
    if not before:
        raise UnplayableError(f"the log of graph {name!r} doesn't reach back so far; {_beginning(found[0])}")
    replay = _replay(name, reading, before[-1], weights)
    at = 0.0 if before[-1] is None else before[-1][1]
    for row in entries(reading, replay.seq):
        if reached(row.seq, row.at):
            break
        difference = replay.play(row)
        if difference is not None:
            raise UnplayableError(f"{difference.text}; `replay` tells more")
    if not replay.inputs and before[-1] is None:
        raise UnplayableError(f"graph {name!r} had not begun then")
    return Moment(replay.machine, replay.seq, replay.at or at, replay.epoch, replay.opened_at or at)


def starts(reading: Reading) -> list[Frame | None]:
    """The keyframes from which the log can be played, the oldest first; before them None, if it begins with the graph.

    Of those before the oldest entry only one that it follows on is any good: the entries in between are being pruned.
    """
    frames = reading.contents.logged.keyframes
    oldest = reading.entries(0, 1)
    first = oldest[0].seq if oldest else reading.contents.logged.last + 1
    found: list[Frame | None] = [frame for frame in frames if frame[0] >= first - 1]
    whole = first == 1 and not any(seq == 0 for seq, _ in frames)
    return [None, *found] if whole or not found else found


def entries(reading: Reading, after: int, kind: str = "") -> Iterator[LogRow]:
    """All entries beyond `after`, in order, read bit by bit."""
    while rows := reading.entries(after, _CHUNK, kind):
        yield from rows
        after = rows[-1].seq


def _replay(name: str, reading: Reading, frame: Frame | None, weights: Callable[[str], Weights | None]) -> Replay:
    graph = reading.contents.graph
    if graph is None or (frame is None and not reading.contents.logged.last):
        raise UnplayableError(f"no log is kept of graph {name!r}: nothing was written since its store can keep one")
    start = None if frame is None else keyframes.decoded(reading.keyframe(frame[0]))
    after = 0 if frame is None else frame[0]
    return Replay(name, graph.graph_id, start, after, declared(reading, after), weights)


def declared(reading: Reading, after: int) -> dict[int, Slice]:
    """By their places in enqueue order, the slices as they were declared when the entries beyond `after` began.

    The store has them as they are now; the first revision of one says what it was before.
    """
    rows = reading.contents.slices
    slices = {row.seq: row.slice for row in rows}
    places = {row.slice.id: row.seq for row in rows}
    seen = set[str]()
    for row in entries(reading, after, REVISE):
        fields = json.loads(row.input)
        name = fields["slice"]
        if name in places and name not in seen:
            seen.add(name)
            slices[places[name]] = codec.slice_of(name, fields["was"])
    return slices


def _last_difference(replay: Replay, stored: Contents) -> Difference | None:
    """The first row in which the stored graph isn't what came out in the end."""
    came_out = replay.machine.contents()
    pairs: list[tuple[str, Any, Any]] = [("the graph", stored.graph, came_out.graph)]
    pairs += _paired("slice", stored.slices, came_out.slices, lambda row: row.slice.id)
    pairs += _paired("intent", stored.intents, came_out.intents, lambda row: row.intent.id)
    made = [row for row in stored.attempts if (row.slice_id, row.attempt) in replay.attempts]
    pairs += _paired("attempt", made, replay.attempts.values(), lambda row: f"{row.slice_id}@{row.attempt}")
    for name, one, other in pairs:
        if one != other:
            return Difference(0, f"{name} is stored otherwise than it comes out", *_fields_apart(one, other))
    return None


def _paired(kind: str, stored: Any, came_out: Any, key: Callable[[Any], str]) -> list[tuple[str, Any, Any]]:
    ones, others = {key(row): row for row in stored}, {key(row): row for row in came_out}
    return [(f"{kind} {name}", ones.get(name), others.get(name)) for name in ones | others]


def _fields_apart(one: Any, other: Any) -> tuple[str, str]:
    """The fields that differ, of both."""
    if one is None or other is None:
        return ("nothing", "there") if one is None else ("there", "nothing")
    names = [field.name for field in attrs.fields(type(one)) if getattr(one, field.name) != getattr(other, field.name)]
    return _named(one, names), _named(other, names)


def _named(row: Any, names: list[str]) -> str:
    return ", ".join(f"{name}={getattr(row, name)!r}" for name in names)
