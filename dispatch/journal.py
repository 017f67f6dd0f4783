"""What a machine writes down: each input that was taken in, and what was decided upon it.

An entry is a row of the log (`LogRow`). Every command that was accepted makes one, and every report that says
something new of a session that lives. A pass that was not asked for makes one only if it decided something; what was
refused makes none. The decisions, as a JSON object without what is empty:

- `moved`: pairs of a slice's id and the state it was put into, in order; but not by a start or a preemption.
- `starts`: the sessions that were started, in order: assignment id, upward rank in seconds of work, urgency (0 without
  an intent), and which of the places it took, from 1.
- `preempts`: pairs of a session that was asked to stop and the urgent slice that needs its place.
- `stops`: the other sessions that were asked to stop, because of what came in.
- `sends`: the sessions that a message was sent into.
- `room`: the slices for which places are being vacated, if those are others than before.
- `attached`: the slices that an intent was attached to. `routed` and `to`: what became of a message, and its slice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dispatch.commands import AskToStop, Command, Effect, Launch, Remeasure, Send
from dispatch.graph import SliceGraph, SliceNode
from dispatch.inputs import OPEN, encoded
from dispatch.slice import Slice, SliceState
from dispatch.store.codec import dumps
from dispatch.store.port import KeyframeRow, LogRow
from dispatch.views import RouteResult
from dispatch.weights import kind_of

_BY_PASS = frozenset({SliceState.RUNNING, SliceState.PREEMPTED})  # told as starts and preemptions
_MOST = 2**31  #: a cap beyond it, which nothing measured, is none, and not every database could hold it
NOTHING = "{}"  #: the decisions of an entry that led to none


class Journal:
    """The entries that are not durable yet, in `rows`. `epoch` is the owner's, `last` the last entry's `seq`; `version`
    is the program's, for those who read the log."""

    def __init__(self, epoch: int, last: int = 0, version: str = "") -> None:
        self.epoch, self.last, self.version = epoch, last, version
        self.rows: list[LogRow] = []
        self.keyframe: KeyframeRow | None = None  # what the log begins with, if not with the graph
        self.room: tuple[str, ...] = ()  # as of the last entry
        self.revised: Slice | None = None  # what the slice that is being revised was declared as
        self._moved: list[tuple[str, str]] = []
        self._preempted: list[tuple[str, str]] = []
        self._next_seq = self._effects = 0

    # --- told by the machine, at each step -------------------------------------------------------------------------

    def begin(self, graph: SliceGraph, effects: Sequence[Effect]) -> None:
        """An input is looked at; these effects were there before."""
        self._next_seq, self._effects = graph.next_seq(), len(effects)
        if self._moved or self._preempted:
            self._moved, self._preempted = [], []

    def moved(self, slice_id: str, state: SliceState) -> None:
        if state not in _BY_PASS:
            self._moved.append((slice_id, state.value))

    def preempted(self, session: str, urgent: str) -> None:
        self._preempted.append((session, urgent))

    # --- entries ---------------------------------------------------------------------------------------------------

    def note(
        self,
        graph: SliceGraph,
        command: Command,
        reply: Any,
        effects: Sequence[Effect],
        given: tuple[float, int, bool],
    ) -> None:
        """The input was taken in, and the pass that followed is over. A `Remeasure` that led to nothing is no entry.

        `given`: the time, the cap, and whether the machine was suspended.
        """
        decided = self._decided(graph, effects, reply)
        if decided is NOTHING and type(command) is Remeasure:
            return
        first = self._next_seq
        kind, text = encoded(command, first, graph.next_seq() - first, self.revised)
        now, cap, suspended = given
        self.last += 1
        self.rows.append(LogRow(self.last, self.epoch, now, min(cap, _MOST), suspended, kind, text, decided))

    def note_opening(self, graph: SliceGraph, alive: Sequence[str], effects: Sequence[Effect], now: float) -> None:
        """A stored graph was taken in, with the sessions that live: every owner begins with it."""
        fields = {"weights": kind_of(graph.weights), "version": self.version, "alive": alive}
        self.room = ()
        decided = self._decided(graph, effects, None)
        self.last += 1
        self.rows.append(LogRow(self.last, self.epoch, now, 0, False, OPEN, dumps(fields), decided))

    def written(self) -> None:
        """All of it is durable."""
        self.rows.clear()
        self.keyframe = None

    def _decided(self, graph: SliceGraph, effects: Sequence[Effect], reply: Any) -> str:
        moved, room = self._moved, graph.room
        if reply is None and not (moved or room or self.room or len(effects) > self._effects):
            return NOTHING  # what a lone call most often leads to
        decided: dict[str, Any] = {}
        if moved:
            decided["moved"] = moved
        if len(effects) > self._effects:
            self._add_effects(decided, graph, effects[self._effects :])
        if room or self.room:
            vacated = tuple([node.id for node in room])
            if vacated != self.room:
                decided["room"] = self.room = vacated
        if type(reply) is RouteResult:
            decided["routed"] = reply.decision.value
            if reply.slice_id:
                decided["to"] = reply.slice_id
        elif type(reply) is list:
            decided["attached"] = [view.id for view in reply]
        return dumps(decided) if decided else NOTHING

    def _add_effects(self, decided: dict[str, Any], graph: SliceGraph, effects: Sequence[Effect]) -> None:
        starts, stops, sends = list[SliceNode](), list[str](), list[str]()
        for effect in effects:
            match effect:
                case Launch():
                    starts.append(graph.sessions[effect.assignment_id])
                case AskToStop():
                    stops.append(effect.assignment_id)
                case Send():
                    sends.append(effect.assignment_id)
        if starts:
            places = enumerate(starts, len(graph.sessions) - len(starts) + 1)  # no session ended since the first
            decided["starts"] = [_start(graph, node, place) for place, node in places]
        if self._preempted:
            decided["preempts"] = self._preempted
            victims = {session for session, _ in self._preempted}
            stops = [session for session in stops if session not in victims]
        if stops:
            decided["stops"] = stops
        if sends:
            decided["sends"] = sends


def _start(graph: SliceGraph, node: SliceNode, place: int) -> tuple[str, float, int, int]:
    return node.assignment_id, round(graph.critical_path(node), 3), node.urgency, place
