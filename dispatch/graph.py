"""The slice graph: nodes and edges, who waits, who runs, in which order.

Pure state and its bookkeeping; which command may do what is `machine.py`'s. A node's status is its `state` field alone.
What is kept beside it (unmet predecessors, containers of waiting nodes, claims, ranks) is derived, kept because it is
needed at every step, and recomputed by `check()`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Self

from dispatch.contention import NO_CONTENDERS, Contention
from dispatch.errors import CycleError, UnknownSliceError
from dispatch.intent import Intent, Urgency
from dispatch.slice import EXCLUDING, FINISHED, NOTHING, OCCUPYING, Slice, SliceState, TouchSet
from dispatch.store.port import SliceRow
from dispatch.touch import Pattern
from dispatch.weights import Weights
from listsched import Ranked, UpwardRanks, Waiting

Key = tuple[float, int, int]
QUEUED, RUNNING, MERGED = SliceState.QUEUED, SliceState.RUNNING, SliceState.MERGED
_URGENT = Urgency.URGENT.value
_NO_INTENTS: tuple[Any, ...] = ()
_NO_PATTERNS: tuple[Pattern, ...] = ()


class SliceNode(Ranked):
    """A slice in the graph. `depends_on`, `dependents`, `contends` are nodes; `unmet` counts what hasn't merged yet."""

    __slots__ = (
        "assignment_id",
        "attempt",
        "branch",
        "canceling",
        "checkpoint",
        "closes",
        "contends",
        "ended_at",
        "enqueued_at",
        "error",
        "excluders",
        "hold",
        "intents",
        "patterns",
        "pull_request_url",
        "ran_s",
        "seq",
        "slice",
        "started_at",
        "state",
        "stopping",
        "turns",
        "unmet",
        "urgency",
    )

    depends_on: Sequence[SliceNode]
    dependents: Sequence[SliceNode]

    def __init__(self, slice_: Slice, seq: int, weight: float) -> None:
        super().__init__(weight)
        self.slice = slice_
        self.seq = seq
        self.state = QUEUED
        self.hold = slice_.hold
        self.assignment_id = ""  # the current session's, empty when it has none
        self.attempt = self.closes = self.turns = self.excluders = self.urgency = self.unmet = 0
        self.branch = self.pull_request_url = self.error = self.checkpoint = ""
        self.canceling = self.stopping = False
        self.ran_s = self.enqueued_at = self.started_at = self.ended_at = 0.0
        self.patterns = _patterns(slice_)
        self.contends: dict[SliceNode, None] = NO_CONTENDERS
        self.intents: Sequence[IntentEntry] = _NO_INTENTS

    @classmethod
    def stored(cls, row: SliceRow, weight: float) -> Self:
        """A slice as the store has it."""
        node = cls(row.slice, row.seq, weight)
        node.state, node.hold, node.checkpoint = row.state, row.hold, row.checkpoint
        node.attempt, node.closes, node.turns = row.attempt, row.closes, row.turns
        node.branch, node.pull_request_url, node.error = row.branch, row.pull_request_url, row.error
        node.canceling, node.stopping = row.canceling, row.stopping
        node.ran_s, node.enqueued_at = row.ran_s, row.enqueued_at
        node.started_at, node.ended_at = row.started_at, row.ended_at
        return node

    @property
    def id(self) -> str:
        return self.slice.id

    @property
    def in_frontier(self) -> bool:
        return self.state is QUEUED and not self.unmet

    @property
    def staying(self) -> bool:
        """Runs, and nobody has asked it to make place."""
        return self.state is RUNNING and not self.canceling

    @property
    def twin(self) -> TouchSet | None:
        """What makes it a twin of others: the same touch-set, and nothing else that could keep it waiting."""
        touch = self.slice.touch
        return None if self.contends or touch is NOTHING or not (touch.paths or touch.hotspots) else touch

    def key(self) -> Key:
        """What orders it: smaller ranks higher. Right only when its upward rank is not stale."""
        return (-self.upward, -self.urgency, self.seq)

    def row(self) -> SliceRow:
        """Its present state, as the store keeps it."""
        return SliceRow(
            self.slice,
            self.seq,
            self.state,
            self.attempt,
            self.closes,
            self.turns,
            self.branch,
            self.pull_request_url,
            self.error,
            self.checkpoint,
            self.hold,
            self.canceling,
            self.stopping,
            self.ran_s,
            self.enqueued_at,
            self.started_at,
            self.ended_at,
        )


class IntentEntry:
    """A registered intent and the nodes it is attached to."""

    __slots__ = ("attached", "intent", "seq")

    def __init__(self, intent: Intent, seq: int, attached: Iterable[SliceNode]) -> None:
        self.intent, self.seq, self.attached = intent, seq, tuple(attached)


class SliceGraph:
    """All slices of one graph, their edges, ranks, claims and waiting containers."""

    def __init__(self, weights: Weights) -> None:
        self.weights = weights
        self.nodes: dict[str, SliceNode] = {}  # in enqueue order
        self.intents: dict[str, IntentEntry] = {}
        self.sessions: dict[str, SliceNode] = {}  # by the current assignment's id: the slices that hold a place
        self.ranks: UpwardRanks[SliceNode] = UpwardRanks()
        self.waiting: Waiting[SliceNode] = Waiting()  # the frontier less the held and those in room
        self.roomed: Waiting[SliceNode] = Waiting()  # of those in room, the ones that may start
        self.room: dict[SliceNode, None] = {}
        self.urgent: set[SliceNode] = set()  # urgent slices: in the frontier, not held
        self.held: set[SliceNode] = set()  # the frontier's held ones
        self.claims = Contention(self._wake)
        self.staying = 0
        self._last_seq = 0
        self._unit = weights.base() or 1
        self._weight: dict[str, float] = {}  # of a slice, by kind, in units of what all weigh

    def _wake(self, resource: Any) -> None:
        self.waiting.wake(resource)
        if self.room:
            self.roomed.wake(resource)

    # --- nodes and edges -------------------------------------------------------------------------------------------

    def node(self, slice_id: str) -> SliceNode:
        try:
            return self.nodes[slice_id]
        except (KeyError, TypeError):
            raise UnknownSliceError(str(slice_id)) from None

    def add(self, slices: Sequence[Slice], now: float) -> list[SliceNode]:
        """Take in checked slices, whose references are known, in any order among themselves; then let them wait."""
        weigh, seq = self._weigh(slices), self.next_seq()
        added = []
        for slice_ in slices:
            node = SliceNode(slice_, seq, weigh[slice_.recipe.kind])
            node.enqueued_at = now
            added.append(node)
            seq += 1
        self._take_in(added)
        return added

    def restore(self, rows: Sequence[SliceRow]) -> list[SliceNode]:
        """The same for stored ones, as they stood."""
        self.reweigh()  # the weights may have been told of what merged before
        weigh = self._weigh(row.slice for row in rows)
        added = [SliceNode.stored(row, weigh[row.slice.recipe.kind]) for row in rows]
        self._take_in(added)
        return added

    def _take_in(self, added: list[SliceNode]) -> None:
        for node in added:
            self.nodes[node.slice.id] = node
        for node in added:
            self._connect(node)
        for node in added:
            if node.state is not QUEUED:
                self._resume(node)
            elif not node.unmet:
                self.settle(node)
        if added:
            self._last_seq = max(self._last_seq, added[-1].seq)

    def _resume(self, node: SliceNode) -> None:
        """Take in what a stored slice holds that a new one can't: a session, a claim, an end."""
        if node.state in OCCUPYING:
            self._open_session(node)
            self.staying += node.staying
        if node.state in EXCLUDING:
            self.claims.claim(node)
        if node.state in FINISHED:
            self.ranks.finish(node)

    def next_seq(self) -> int:
        return self._last_seq + 1

    def _connect(self, node: SliceNode) -> None:
        nodes, wanted = self.nodes, node.slice
        if wanted.depends_on:
            known = set(node.depends_on) if node.depends_on else ()  # declared by others of the batch, from their end
            for name in dict.fromkeys(wanted.depends_on):
                if (before := nodes[name]) not in known:
                    self._depend(node, before)
        if wanted.required_by:
            known = set(node.dependents) if node.dependents else ()
            for name in dict.fromkeys(wanted.required_by):
                if (after := nodes[name]) not in known:
                    self._depend(after, node)
        for name in wanted.contends:
            self.claims.declare(node, nodes[name])
            self._settle_old(nodes[name])

    def _depend(self, node: SliceNode, before: SliceNode) -> None:
        self.ranks.link(before, node)
        if before.state is not MERGED:
            node.unmet += 1
            if node.unmet == 1:
                self._settle_old(node)

    def _settle_old(self, node: SliceNode) -> None:
        """While slices are taken in: those that are new are put into their containers in the end, all at once."""
        if node.seq <= self._last_seq:
            self.settle(node)

    def revise(self, node: SliceNode, wanted: Slice) -> None:
        """Give a node that excludes nobody another declared part, with the same edges; it is looked at afresh."""
        if node in self.room:
            self.leave_room(node)  # it was made for what it touched before; the next pass makes it anew
        node.slice = wanted
        node.patterns = _patterns(wanted)
        self.ranks.reweigh(node, self._weigh((wanted,))[wanted.recipe.kind])
        self.settle(node)

    def _weigh(self, slices: Iterable[Slice]) -> dict[str, float]:
        """The weights of their kinds, and of all that were met before."""
        new = {kind for slice_ in slices if (kind := slice_.recipe.kind) not in self._weight}
        if new:
            self._weight |= self._weights_of(new)
        return self._weight

    def _weights_of(self, kinds: Iterable[str]) -> dict[str, float]:
        base, learned = self.weights.base(), self.weights.learned
        return {kind: (base + learned(kind)) / self._unit for kind in kinds}

    # --- state -----------------------------------------------------------------------------------------------------

    def move(self, node: SliceNode, state: SliceState) -> list[SliceNode]:
        """Put a node into another state, with all that follows from it; returns the slices it let into the frontier."""
        before, node.state = node.state, state
        occupying, occupied = state in OCCUPYING, before in OCCUPYING
        if occupied is not occupying:
            (self._open_session if occupying else self._close_session)(node)
        self.staying += (state is RUNNING) - (before is RUNNING and not node.canceling)
        if not occupying:
            node.canceling = node.stopping = False
        if state in EXCLUDING:
            self.claims.claim(node)
        elif occupied or before in EXCLUDING:
            self.claims.unclaim(node)
        if state in FINISHED:
            self.ranks.finish(node)
        if state is QUEUED:
            self.settle(node)
        elif before is QUEUED:
            self._withdraw(node)
        return self._release(node) if state is MERGED else []

    def _open_session(self, node: SliceNode) -> None:
        node.assignment_id = f"{node.slice.id}@{node.attempt}"
        self.sessions[node.assignment_id] = node

    def _close_session(self, node: SliceNode) -> None:
        del self.sessions[node.assignment_id]
        node.assignment_id = ""

    def ask_to_cancel(self, node: SliceNode) -> None:
        """Note that a cancel waits for the session's report: it stays no more."""
        self.staying -= node.staying
        node.canceling = True

    def _release(self, node: SliceNode) -> list[SliceNode]:
        released = []
        for dependent in node.dependents:
            dependent.unmet -= 1
            if not dependent.unmet and dependent.state is QUEUED:
                self.settle(dependent)
                released.append(dependent)
        return released

    def settle(self, node: SliceNode) -> None:
        """Put a node into the containers that its state, hold, urgency and place in room call for, and no others."""
        if not (node.state is QUEUED and not node.unmet):
            self._withdraw(node)
            return
        if node.hold:
            self._withdraw(node)
            self.held.add(node)
            return
        self.held.discard(node)
        if node.urgency == _URGENT:
            self.urgent.add(node)
        else:
            self.urgent.discard(node)
        if node in self.room:
            self.waiting.discard(node)
            self.roomed.put(node, node.key())
        else:
            self.waiting.put(node, node.key(), node.twin)

    def _withdraw(self, node: SliceNode) -> None:
        self.waiting.discard(node)
        if self.urgent or self.room or self.held:
            self.roomed.discard(node)
            self.urgent.discard(node)
            self.held.discard(node)

    # --- room ------------------------------------------------------------------------------------------------------

    def make_room(self, node: SliceNode) -> None:
        """Count `node` among those for which places are being vacated; its contenders wait for it from now on."""
        self.room[node] = None
        self.claims.claim(node)
        self.settle(node)

    def leave_room(self, node: SliceNode) -> None:
        """Take `node` out of room, whether it starts now or doesn't need the place any more."""
        del self.room[node]
        self.roomed.discard(node)
        if node.state not in EXCLUDING:
            self.claims.unclaim(node)
        self.settle(node)

    # --- rank ------------------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Bring ranks and the waiting order up to date."""
        for node in self.ranks.refresh():
            if node.state is QUEUED and not node.unmet:
                self.settle(node)

    def reweigh(self) -> None:
        """Give every live node its kind's present weight, and the waiting their new places.

        Ranks are kept in units of the weight that all slices have: what makes all of them heavier or lighter, as most
        measurements do, changes no node.
        """
        self._unit = self.weights.base() or 1
        weight = self._weights_of(self._weight)
        if weight == self._weight:
            return
        self._weight = weight
        for node in self.nodes.values():
            if node.live:
                self.ranks.reweigh(node, weight[node.slice.recipe.kind])
        self.ranks.refresh()
        self.waiting.rekey(SliceNode.key)
        self.roomed.rekey(SliceNode.key)

    def critical_path(self, node: SliceNode) -> float:
        """Its upward rank in seconds of work, own weight included. Right only when the rank is not stale."""
        return node.upward * self._unit

    def frontier(self) -> list[SliceNode]:
        """In dispatch order, held ones included."""
        self.refresh()
        return sorted([*self.waiting, *self.roomed, *self.held], key=SliceNode.key)

    def occupying(self) -> Iterable[SliceNode]:
        """The slices that hold a place, in the order in which they got it."""
        return self.sessions.values()

    # --- intents ---------------------------------------------------------------------------------------------------

    def register(self, intent: Intent, targets: Sequence[SliceNode]) -> IntentEntry:
        """Attach `intent` to `targets`, its earlier copy and what it supersedes detached and forgotten before."""
        self.forget(intent.supersedes)
        seq = max((entry.seq for entry in self.intents.values()), default=0) + 1
        self.forget(intent.id)
        return self.attach(IntentEntry(intent, seq, targets))

    def attach(self, entry: IntentEntry) -> IntentEntry:
        self.intents[entry.intent.id] = entry
        for node in entry.attached:
            node.intents = (*node.intents, entry)
            self._re_urge(node)
        return entry

    def forget(self, intent_id: str) -> None:
        """Detach an intent everywhere and forget it, if it is known."""
        entry = self.intents.pop(intent_id, None)
        for node in entry.attached if entry else ():
            node.intents = tuple(other for other in node.intents if other is not entry)
            self._re_urge(node)

    def _re_urge(self, node: SliceNode) -> None:
        node.urgency = max((entry.intent.urgency.value for entry in node.intents), default=0)
        if node.in_frontier:
            self.settle(node)

    # --- proof -----------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Recompute what is kept beside the states, and assert that it agrees."""
        self.refresh()
        for node in self.nodes.values():
            assert node.live == (node.state not in FINISHED), f"{node.id}: live"
            assert node.unmet == sum(n.state is not MERGED for n in node.depends_on), f"{node.id}: unmet"
            upward = node.weight + max((n.upward for n in node.dependents if n.live), default=0)
            assert not node.live or node.upward == upward, f"{node.id}: upward rank"
            assert not node.live or node.weight == self._weight[node.slice.recipe.kind], f"{node.id}: weight"
            claiming = node.state in EXCLUDING or node in self.room
            assert (node in self.claims) == claiming, f"{node.id}: claim"
            assert node.excluders == sum(n in self.claims for n in node.contends), f"{node.id}: excluders"
            free = node.in_frontier and not node.hold
            assert (node in self.waiting) == (free and node not in self.room), f"{node.id}: waiting"
            assert (node in self.roomed) == (free and node in self.room), f"{node.id}: roomed"
            assert (node in self.held) == (node.in_frontier and bool(node.hold)), f"{node.id}: held"
            assert (node in self.urgent) == (free and node.urgency == _URGENT), f"{node.id}: urgent"
            session = f"{node.id}@{node.attempt}" if node.state in OCCUPYING else ""
            assert node.assignment_id == session, f"{node.id}: session"
            assert (self.sessions.get(session) is node) == bool(session), f"{node.id}: sessions"
        assert self.staying == sum(node.staying for node in self.nodes.values()), "staying"
        assert len(self.sessions) == sum(node.state in OCCUPYING for node in self.nodes.values()), "sessions"
        running = list(self.sessions.values())
        for i, one in enumerate(running):
            for other in running[:i]:
                assert other not in self.claims.excluders(one), f"{one.id} and {other.id} contend and both run"


def _patterns(slice_: Slice) -> tuple[Pattern, ...]:
    paths = slice_.touch.paths
    return tuple(dict.fromkeys(map(Pattern.parse, paths))) if paths else _NO_PATTERNS


def find_cycle(new: dict[str, Slice], nodes: dict[str, SliceNode]) -> list[str] | None:
    """A cycle that the new slices would close, spelled out along depends_on, first and last the same; or None.

    Every such cycle goes through a new slice. Merged slices' edges count. Iterative depth-first search along
    "is required by", with the three colours as: absent, on the path, done.
    """
    required_by: dict[str, list[str]] = {}
    for name, slice_ in new.items():
        for before in slice_.depends_on:
            required_by.setdefault(before, []).append(name)
        required_by.setdefault(name, []).extend(slice_.required_by)

    def onward(name: str) -> Iterator[str]:
        yield from required_by.get(name, ())
        if name in nodes:
            yield from (node.id for node in nodes[name].dependents)

    done: set[str] = set()
    for root in new:
        path: dict[str, Iterator[str]] = {} if root in done else {root: onward(root)}
        while path:
            name, steps = next(reversed(path.items()))
            step = next((step for step in steps if step not in done), None)
            if step is None:
                done.add(name)
                del path[name]
            elif step in path:
                names = list(path)
                return [step, *reversed(names[names.index(step) :])]
            else:
                path[step] = onward(step)
    return None


def check_acyclic(new: dict[str, Slice], nodes: dict[str, SliceNode]) -> None:
    """Raise `CycleError` if the new slices close a cycle.

    Free of cost when each waits only for what came before it: one that waits for nothing is in no cycle, whatever
    requires it, and one that nothing new requires and nobody old waits for closes none.
    """
    seen: set[str] = set()
    waiting = {name for slice_ in new.values() for name in slice_.required_by if name in new}
    for name, slice_ in new.items():
        depends_on = slice_.depends_on
        closing = slice_.required_by and (depends_on or name in waiting)
        if closing or not (
            seen.issuperset(depends_on) or all(before in seen or before not in new for before in depends_on)
        ):
            cycle = find_cycle(new, nodes)
            if cycle:
                raise CycleError(cycle)
            return
        seen.add(name)
