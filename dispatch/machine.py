"""Every rule of the slice graph, and nothing else.

Theory of operation. `handle(command, now, cap)` either refuses, by raising a `DispatchError` with nothing changed, or
changes the graph and returns the reply. What the shell has to do about it piles up here until it is taken: the rows
that changed (`changes`, kept until `written` says that they are durable) and the effects (`take_effects`: sessions to
launch, to ask to stop, to send a message into). The shell writes the rows first and performs the effects after. Time,
the cap and identities come in as values; nothing here blocks, reads a clock or knows a thread.

A command is checked in full before the first change. Every command and report is followed by one *pass*, which starts
what may start (`listsched.pick`) and makes room for what is urgent (`preemption.py`). While the graph is paused, or the
store is out of reach (`suspended`), a pass does nothing.

Which state may follow which is `TRANSITIONS`, and every move is held against it.

What comes in decides what goes out: the same commands, with the same times and caps, make the same decisions. A machine
with a `journal` writes both down, as rows that become durable with the others; `history.py` plays them again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import attrs

from dispatch.answers import view, views
from dispatch.attempts import CUT_OFF, ENDED, clean, outcome_of, task
from dispatch.commands import (
    AskToStop,
    Cancel,
    Command,
    DeclareIntent,
    Effect,
    Enqueue,
    Hold,
    Launch,
    MarkMerged,
    Observe,
    Pause,
    Proof,
    Release,
    Remeasure,
    RequestFailed,
    Resume,
    Retry,
    Revise,
    Route,
    Send,
)
from dispatch.errors import InvalidCommandError, InvalidSliceError, SliceFinishedError, UnknownIntentError
from dispatch.graph import IntentEntry, SliceGraph, SliceNode
from dispatch.intake import admit
from dispatch.intent import Intent, check_intent
from dispatch.intent import canonical as canonical_intent
from dispatch.journal import Journal
from dispatch.keyframe import Keyframe
from dispatch.preemption import make_room, prune_room
from dispatch.routing import best_target, targets
from dispatch.slice import FINISHED, OCCUPYING, Slice, SliceState, canonical, check_slice
from dispatch.store.port import Changes, Contents, GraphRow, SliceRow
from dispatch.unwritten import Unwritten, intent_row
from dispatch.views import Merge, RouteDecision, RouteResult, SliceView
from dispatch.weights import Weights, kind_of
from harness import Assignment, SessionPhase, SessionState
from harness.text import storable
from listsched import pick

QUEUED, RUNNING, PREEMPTED = SliceState.QUEUED, SliceState.RUNNING, SliceState.PREEMPTED
IN_REVIEW, MERGED, FAILED, CANCELED = SliceState.IN_REVIEW, SliceState.MERGED, SliceState.FAILED, SliceState.CANCELED

TRANSITIONS: dict[SliceState, frozenset[SliceState]] = {
    QUEUED: frozenset({RUNNING, MERGED, CANCELED}),
    RUNNING: frozenset({QUEUED, PREEMPTED, IN_REVIEW, FAILED, MERGED, CANCELED}),
    PREEMPTED: frozenset({QUEUED, IN_REVIEW, FAILED, MERGED, CANCELED}),
    IN_REVIEW: frozenset({QUEUED, MERGED, CANCELED}),
    FAILED: frozenset({QUEUED, MERGED, CANCELED}),
    MERGED: frozenset(),
    CANCELED: frozenset(),
}


@attrs.frozen
class Unproven:
    """The reply to a `Route` whose decision hangs on checks outside the graph: make them and send it again."""


@attrs.frozen
class NoNews:
    """What a handler returns that has changed nothing: its reply, and of the input only the pass counts."""

    reply: Any = None


UNPROVEN, NO_NEWS = Unproven(), NoNews()
REMEASURE = Remeasure()


class Machine:
    """One graph and its rules. `graph_id` is the random identity to give a graph that is new."""

    def __init__(self, name: str, graph_id: str, weights: Weights, journal: Journal | None = None) -> None:
        self.name = name
        self.graph_id = graph_id
        self.graph = SliceGraph(weights)
        self.journal = journal
        self.paused = ""
        self.suspended = False
        self.cap = 0
        self.now = 0.0
        self._effects: list[Effect] = []
        self._unwritten = Unwritten()
        self._merged_at = 0.0  # the last merge's time: no two have the same, as `restore` sorts by it

    # --- in and out ------------------------------------------------------------------------------------------------

    def handle(self, command: Command, now: float, cap: int) -> Any:
        """Apply one command at time `now` (Unix seconds) with `cap` places on the host; then run the pass."""
        self.now, self.cap = now, cap
        journal = self.journal
        if journal is not None:
            journal.begin(self.graph, self._effects)
        reply = _HANDLERS[type(command)](self, command)
        if type(reply) is NoNews:
            reply, command = reply.reply, REMEASURE
        self.run_pass()
        if callable(reply):
            reply = reply()
        if journal is not None:
            journal.note(self.graph, command, reply, self._effects, (now, cap, self.suspended))
        return reply

    @property
    def changed(self) -> bool:
        """Whether anything is not durable yet."""
        rows = self._unwritten
        if rows.slices or rows.attempts or rows.intents or rows.graph:
            return True
        return self.journal is not None and bool(self.journal.rows)

    def changes(self) -> Changes:
        """What is not durable yet: the last state of each row that changed."""
        return self._unwritten.changes(GraphRow(self.graph_id, self.paused), self.graph, self.journal)

    def contents(self) -> Contents:
        """The whole graph as a store has it once all is written, less its attempts."""
        graph = self.graph
        return Contents(
            graph=GraphRow(self.graph_id, self.paused),
            slices=tuple([node.row() for node in graph.nodes.values()]),
            intents=tuple(sorted(map(intent_row, graph.intents.values()), key=lambda row: row.seq)),
        )

    def keyframe(self) -> Keyframe:
        """All that decides what this machine will do next."""
        room = tuple([node.id for node in self.graph.room])
        epoch = 0 if self.journal is None else self.journal.epoch
        return Keyframe(self.contents(), room, self._merged_at, kind_of(self.graph.weights), epoch)

    def unwritten(self) -> tuple[str, ...]:
        """The ids of the slices whose changes are not durable yet."""
        return tuple(node.id for node in self._unwritten.slices)

    def written(self) -> None:
        """All that `changes` returned is durable."""
        self._unwritten.clear()
        if self.journal is not None:
            self.journal.written()

    def take_effects(self) -> list[Effect]:
        """The effects since the last call, in order; they may be performed once the changes are durable."""
        effects, self._effects = self._effects, []
        return effects

    def restore(self, contents: Contents, alive: Iterable[str], now: float) -> None:
        """Take in a stored graph. What held a session not in `alive` (assignment ids) goes back to the queue.

        A session in `alive` that was to stop is asked again: the one request may have been lost with the last owner.
        """
        self.now = now
        self._take_in(contents)
        kept = frozenset(alive)
        sessions = list(self.graph.sessions.items())
        if self.journal is not None:
            self.journal.begin(self.graph, self._effects)
        for session, node in sessions:
            self._take_up(node, session in kept)
        if self.journal is not None:
            still = [session for session, _ in sessions if session in kept]
            self.journal.note_opening(self.graph, still, self._effects, now)

    def resume(self, keyframe: Keyframe) -> None:
        """Be the machine that `keyframe` was taken of."""
        self._take_in(keyframe.contents)
        for name in keyframe.room:
            self.graph.make_room(self.graph.nodes[name])
        self._merged_at = keyframe.merged_at
        if self.journal is not None:
            self.journal.room = keyframe.room

    def _take_in(self, contents: Contents) -> None:
        if contents.graph is not None:
            self.graph_id, self.paused = contents.graph.graph_id, contents.graph.paused
            self._unwritten.graph = False
        self._recall(contents.slices)
        self.graph.restore(contents.slices)
        for row in contents.intents:
            attached = [self.graph.nodes[name] for name in row.attached]
            self.graph.attach(IntentEntry(row.intent, row.seq, attached))

    def _take_up(self, node: SliceNode, alive: bool) -> None:
        if not alive:
            # When it ended nobody knows: no time is kept, nothing learned from it.
            self._unwritten.attempt(node, "lost", CUT_OFF)
            node.checkpoint = node.checkpoint or CUT_OFF
            self._move(node, CANCELED if node.canceling else QUEUED)
        elif node.canceling or node.state is PREEMPTED:
            node.stopping = False
            self._ask_to_stop(node)

    def _recall(self, rows: Iterable[SliceRow]) -> None:
        """Let the weights see the durations in the order in which they were measured."""
        ended = sorted((row for row in rows if row.state is MERGED and row.ran_s), key=lambda row: row.ended_at)
        for row in ended:
            self.graph.weights.measured(row.slice.recipe.kind, row.ran_s)
            self._merged_at = row.ended_at

    # --- the pass --------------------------------------------------------------------------------------------------

    def run_pass(self) -> None:
        """Start what may start; make room for what is urgent; if that changed anything, walk once more."""
        graph = self.graph
        if self.paused or self.suspended or not (graph.waiting or graph.room):
            return
        if graph.room:
            prune_room(graph)
        if self.cap <= len(graph.sessions) and not graph.urgent:
            return
        graph.refresh()
        self._walk()
        if graph.urgent and make_room(graph, self.cap, self._preempt):
            self._walk()

    def _walk(self) -> None:
        graph, blocker = self.graph, self.graph.claims.blocker
        free = self.cap - len(graph.sessions)
        if graph.room:
            pick(graph.roomed, free, blocker, self._launch)
            free = self.cap - len(graph.sessions)
        pick(graph.waiting, min(free, self.cap - graph.staying - len(graph.room)), blocker, self._launch)

    def _launch(self, node: SliceNode) -> None:
        graph = self.graph
        node.attempt += 1
        node.started_at, node.ended_at = self.now, 0.0
        node.turns = 0
        node.branch = f"dispatch/{node.slice.id}/{node.attempt}"
        self._move(node, RUNNING)
        if node in graph.room:
            graph.leave_room(node)
        self._unwritten.attempt(node)
        self._effects.append(Launch(self._assignment(node)))

    def _assignment(self, node: SliceNode) -> Assignment:
        wanted = node.slice
        return Assignment(
            assignment_id=node.assignment_id,
            slice_id=wanted.id,
            attempt=node.attempt,
            recipe=wanted.recipe,
            title=wanted.title,
            task=task(wanted, node.checkpoint),
            checkpoint=node.checkpoint,
            branch=node.branch,
            graph_id=self.graph_id,
        )

    def _preempt(self, node: SliceNode, urgent: SliceNode) -> None:
        if self.journal is not None:
            self.journal.preempted(node.assignment_id, urgent.id)
        self._ask_to_stop(node)
        self._move(node, PREEMPTED)

    def _ask_to_stop(self, node: SliceNode) -> None:
        """Once a session: a second request would tell it nothing."""
        if not node.stopping:
            node.stopping = True
            self._effects.append(AskToStop(node.assignment_id))

    def _move(self, node: SliceNode, state: SliceState) -> list[SliceNode]:
        assert state in TRANSITIONS[node.state], f"{node.id}: {node.state} -> {state}"
        self._unwritten.slices[node] = None
        if self.journal is not None:
            self.journal.moved(node.slice.id, state)
        return self.graph.move(node, state)

    def _merge(self, node: SliceNode) -> list[SliceNode]:
        """Let a slice be merged, and the weights learn from it; returns what it released."""
        self._merged_at = node.ended_at = max(self.now, math.nextafter(self._merged_at, math.inf))
        released = self._move(node, MERGED)
        if node.ran_s and self.graph.weights.measured(node.slice.recipe.kind, node.ran_s):
            self.graph.reweigh()
        return released

    def _end_attempt(self, node: SliceNode, outcome: str, detail: str, checkpoint: str = "") -> None:
        node.ended_at = self.now
        node.ran_s += max(0.0, self.now - node.started_at)
        self._unwritten.attempt(node, outcome, detail, checkpoint)

    # --- enqueue ---------------------------------------------------------------------------------------------------

    def _enqueue(self, command: Enqueue) -> None:
        self._add(command.slices)

    def _add(self, slices: tuple[Slice, ...]) -> list[SliceNode]:
        admit(self.graph, slices)
        nodes = self.graph.add([canonical(slice_) for slice_ in slices], self.now)
        self._unwritten.slices.update(dict.fromkeys(nodes))
        return nodes

    # --- the operator's commands -----------------------------------------------------------------------------------

    def _mark_merged(self, command: MarkMerged) -> Callable[[], Merge] | NoNews:
        node = self._unless(CANCELED, command.slice_id, "mark as merged")
        if node.state is MERGED:
            return NoNews(lambda: Merge(view(self.graph, node), ()))
        if node.state in OCCUPYING:
            self._ask_to_stop(node)
            self._end_attempt(node, "merged", "marked as merged")
        node.pull_request_url = storable(command.pull_request_url) or node.pull_request_url
        node.error = ""
        released = self._merge(node)
        return lambda: Merge(view(self.graph, node), tuple(views(self.graph, released)))

    def _cancel(self, command: Cancel) -> None:
        node = self._unless(MERGED, command.slice_id, "cancel")
        if node.state is CANCELED:
            raise SliceFinishedError(node.id, "canceled", "cancel")
        if node.state in OCCUPYING:
            self._ask_to_stop(node)
            self.graph.ask_to_cancel(node)
            self._unwritten.slices[node] = None
        else:
            node.ended_at = self.now
            self._move(node, CANCELED)

    def _retry(self, command: Retry) -> None:
        node = self._unfinished(command.slice_id, "retry")
        if node.state not in (IN_REVIEW, FAILED):
            raise InvalidCommandError("retry", node.id, node.state.value)
        node.closes, node.pull_request_url, node.error = 0, "", ""
        self._move(node, QUEUED)

    def _revise(self, command: Revise) -> None:
        wanted = command.slice
        check_slice(wanted)
        node = self._unfinished(wanted.id, "revise")
        if node.state not in (QUEUED, FAILED):
            raise InvalidCommandError("revise", node.id, node.state.value)
        for field in ("depends_on", "required_by", "contends"):
            if set(getattr(wanted, field)) != set(getattr(node.slice, field)):
                raise InvalidSliceError(field, "can't be revised: a slice keeps the edges it was enqueued with")
        if self.journal is not None:
            self.journal.revised = node.slice
        self.graph.revise(node, canonical(wanted))
        self._unwritten.slices[node] = self._unwritten.revised[node] = None

    def _hold(self, command: Hold) -> NoNews | None:
        node = self._unfinished(command.slice_id, "hold")
        if node.hold:
            return NO_NEWS
        self._set_hold(node, storable(command.reason) or "held")
        return None

    def _release(self, command: Release) -> NoNews | None:
        node = self._unfinished(command.slice_id, "release")
        if not node.hold:
            return NO_NEWS
        self._set_hold(node, "")
        return None

    def _set_hold(self, node: SliceNode, reason: str) -> None:
        node.hold = reason
        self._unwritten.slices[node] = None
        self.graph.settle(node)

    def _pause(self, command: Pause) -> NoNews | None:
        if self.paused:
            return NO_NEWS
        self._set_pause(storable(command.reason) or "paused")
        return None

    def _resume(self, command: Resume) -> NoNews | None:
        if not self.paused:
            return NO_NEWS
        self._set_pause("")
        return None

    def _set_pause(self, reason: str) -> None:
        self.paused = reason
        self._unwritten.graph = True

    def _unfinished(self, slice_id: str, wanted: str) -> SliceNode:
        node = self.graph.node(slice_id)
        if node.state in FINISHED:
            raise SliceFinishedError(node.id, node.state.value, wanted)
        return node

    def _unless(self, state: SliceState, slice_id: str, wanted: str) -> SliceNode:
        node = self.graph.node(slice_id)
        if node.state is state:
            raise SliceFinishedError(node.id, state.value, wanted)
        return node

    # --- intents and routing ---------------------------------------------------------------------------------------

    def _declare(self, command: DeclareIntent) -> Callable[[], list[SliceView]]:
        intent = command.intent
        check_intent(intent)
        if command.known and intent.id not in self.graph.intents:
            raise UnknownIntentError(intent.id)
        attached = targets(self.graph, intent)
        self._register(canonical_intent(intent), attached)
        return lambda: views(self.graph, attached)

    def _register(self, intent: Intent, attached: list[SliceNode]) -> None:
        if intent.supersedes in self.graph.intents:
            self._unwritten.intents[intent.supersedes] = None
        self._unwritten.intents[intent.id] = None
        self.graph.register(intent, attached)

    def _route(self, command: Route) -> Callable[[], RouteResult] | RouteResult | NoNews:
        intent = command.intent
        check_intent(intent)
        node = best_target(self.graph, intent)
        if node is not None and node.state is not MERGED:
            return self._route_to(node, command)
        if node is not None:
            reference = node.pull_request_url or f"slice {node.id} has merged"
            return RouteResult(RouteDecision.ALREADY_DONE, node.id, reference=reference, view=view(self.graph, node))
        proof = command.proof
        if proof is None:
            return NoNews(UNPROVEN)
        if proof.reference:
            return RouteResult(RouteDecision.ALREADY_DONE, reference=proof.reference, findings=proof.findings)
        return self._route_new(command, proof)

    def _route_to(self, node: SliceNode, command: Route) -> Callable[[], RouteResult]:
        self._register(canonical_intent(command.intent), [node])
        if node.state is not RUNNING:
            return lambda: RouteResult(RouteDecision.QUEUE, node.id, node.assignment_id, view=view(self.graph, node))
        session = node.assignment_id
        self._effects.append(Send(session, command.message or command.intent.statement))
        return lambda: RouteResult(RouteDecision.STEER, node.id, session, view=view(self.graph, node))

    def _route_new(self, command: Route, proof: Proof) -> Callable[[], RouteResult] | RouteResult:
        if command.new_slice is None:
            missing = "no slice covers this; give a new slice to be enqueued for it"
            return RouteResult(RouteDecision.NEW, findings=(*proof.findings, missing))
        (node,) = self._add((command.new_slice,))
        self._register(canonical_intent(command.intent), [node])
        return lambda: RouteResult(
            RouteDecision.NEW, node.id, node.assignment_id, findings=proof.findings, view=view(self.graph, node)
        )

    # --- reports ---------------------------------------------------------------------------------------------------

    def _observe(self, command: Observe) -> NoNews | None:
        report = clean(command.report)
        node = self.graph.sessions.get(report.assignment_id)
        if node is None:
            return NO_NEWS
        if report.phase is SessionPhase.RUNNING and _known(report, node):
            return NO_NEWS
        node.turns = max(node.turns, report.turns)
        node.branch = report.branch or node.branch
        node.pull_request_url = report.pull_request_url or node.pull_request_url
        if report.phase is not SessionPhase.RUNNING:
            self._end(node, report)
        self._unwritten.slices[node] = None
        return None

    def _end(self, node: SliceNode, report: SessionState) -> None:
        state, counts = outcome_of(node, report.phase)
        outcome = "preempted" if node.state is PREEMPTED and state is QUEUED else report.phase.value
        self._end_attempt(node, outcome, report.error or report.detail, report.checkpoint)
        node.error = "" if state is MERGED else report.error or report.detail
        if state in (QUEUED, FAILED, IN_REVIEW):
            node.checkpoint = report.checkpoint or report.detail or report.error or node.checkpoint or ENDED
        if counts:
            node.closes += 1
            if node.closes >= node.slice.recipe.max_attempts:
                state = FAILED
                node.error = node.error or f"closed {node.closes} times without a merge"
        if state is MERGED:
            self._merge(node)
        else:
            self._move(node, state)

    def _request_failed(self, command: RequestFailed) -> NoNews | None:
        node = self.graph.sessions.get(command.assignment_id)
        if node is None:
            return NO_NEWS
        node.error = storable(command.problem)
        node.stopping = False  # nobody was asked: another cancel asks again
        self._unwritten.slices[node] = None
        return None

    def _remeasure(self, command: Remeasure) -> NoNews:
        """Nothing of its own: the pass that follows sees the new cap."""
        return NO_NEWS


def _known(report: SessionState, node: SliceNode) -> bool:
    """Whether the report of a session that goes on says nothing that its slice doesn't."""
    return (
        report.turns <= node.turns
        and report.branch in ("", node.branch)
        and report.pull_request_url in ("", node.pull_request_url)
    )


_HANDLERS: dict[type, Callable[[Machine, Any], Any]] = {
    Enqueue: Machine._enqueue,
    MarkMerged: Machine._mark_merged,
    Cancel: Machine._cancel,
    Retry: Machine._retry,
    Revise: Machine._revise,
    Hold: Machine._hold,
    Release: Machine._release,
    Pause: Machine._pause,
    Resume: Machine._resume,
    DeclareIntent: Machine._declare,
    Route: Machine._route,
    Observe: Machine._observe,
    Remeasure: Machine._remeasure,
    RequestFailed: Machine._request_failed,
}
