"""The graph-owner actor: one inbox, one order. The only place here that knows Pykka.

Messages are `(item, reply)` pairs, told, never asked. Commands and questions are applied as they come; rows, replies
and effects pile up while the inbox has more. When it runs dry, or the batch is full, one transaction writes the rows,
then the replies go out and the effects start: a lone command costs one commit, a burst shares one, and nothing is
acknowledged or acted on before it is durable.

While the store is out of reach the batch stays, launching stops, reports and commands are taken in up to a bound, reads
are answered at once and say so, and each tick tries the write again. If the claim was lost, the sessions are asked to
stop and the owner ends: another process decides now.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import attrs
import pykka

from dispatch import answers
from dispatch.capping import CapGauge
from dispatch.collector import collector_paused
from dispatch.commands import AskToStop, Check, Enqueue, Explain, Frontier, Get, ListSlices, Send, TakeSnapshot
from dispatch.errors import (
    DispatchError,
    NotRunningError,
    OwnershipLostError,
    StoreError,
    StoreUnavailableError,
)
from dispatch.health import Health, claim_clock
from dispatch.machine import REMEASURE, Machine
from dispatch.outbox import Errand, Outbox, OutboxLost
from dispatch.reply import Reply
from dispatch.retention import Pruner
from dispatch.store import Store
from dispatch.store.ownership import CLAIM_S
from dispatch.text import listed
from dispatch.views import RouteDecision, RouteResult, StoreStatus

logger = logging.getLogger(__name__)
reach = logging.getLogger(f"{__name__}.reach")  # apart, for who shows it otherwise

_BATCH = 1024  # messages that share one commit at most
_BULK = 1000  # slices at once, from which on it pays not to look for garbage meanwhile
_MOST_NAMES = 12  # of slices in one line of the log
TICK_S = 1.0
_RENEW_TICKS = 3  # a claim lasts 10 s: two renewals may be missed
BACKLOG = 10_000  #: replies that wait for a store out of reach at most; further commands are refused at once


@attrs.frozen
class Tick:
    """Time has passed: measure the host again, renew the claim, retry a failed write."""


@attrs.frozen
class Settle:
    """Answered with the number of effects ever posted, once all of them have been performed."""


@attrs.frozen
class Stop:
    """Write what is left, answer, and end. The store is released by whoever stopped it."""


class GraphOwner(pykka.ThreadingActor):
    """Owns one `Machine`. It is handed over whole: nobody else touches it once the actor has started."""

    use_daemon_thread = True

    def __init__(
        self,
        machine: Machine,
        gauge: CapGauge,
        outbox: Outbox,
        store: Store | None,
        clock: Callable[[], float],
        health: Health,
        pruner: Pruner | None = None,
    ) -> None:
        super().__init__()
        self._machine, self._gauge, self._outbox, self._store = machine, gauge, outbox, store
        self._clock, self._health, self._pruner = clock, health, pruner
        self._status = StoreStatus(store.url if store else "")
        self._answers: list[_Answer] = []
        self._steers: list[tuple[Reply, RouteResult]] = []
        self._settlers: list[Reply] = []
        self._handled = self._posted = self._ticks = 0
        self._changed = self._ticked = False
        self._over: DispatchError | None = None

    @staticmethod
    def _create_actor_inbox() -> Any:
        return SimpleQueue()  # a third of the cost of the default queue, which adds a bound and task counting

    def on_start(self) -> None:
        self._health.own.add(threading.current_thread())

    def on_receive(self, message: tuple[Any, Reply | None]) -> None:
        if type(message[0]) is Enqueue and len(message[0].slices) >= _BULK:
            with collector_paused():
                self._receive(*message)
                self._flush()  # whatever else has come in meanwhile: the rows are as many again
        else:
            self._receive(*message)

    def _receive(self, item: Any, reply: Reply | None) -> None:
        self._handled += 1
        if self._over is not None:
            _deliver(reply, None, self._health.gone())
            return
        if reply is not None and self._refuses(item):
            reply.refuse(self._unavailable())
        elif type(item) in _INTERNAL:
            _INTERNAL[type(item)](self, item, reply)
        else:
            self._take(item, reply)
        if self.actor_inbox.empty() or self._handled >= _BATCH:
            self._flush()

    def _refuses(self, item: Any) -> bool:
        """Whether the backlog is full. Reports want no reply and are always taken in: a session ends but once."""
        if self._status.reachable or type(item) in _QUESTIONS or type(item) is Stop:
            return False
        return len(self._answers) + len(self._steers) + len(self._settlers) >= BACKLOG

    def _take(self, item: Any, reply: Reply | None) -> None:
        """Apply a command or answer a question; the answer waits for the batch, as does a refusal: it tells of it."""
        question = _QUESTIONS.get(type(item))
        value: Any = None
        refusal: DispatchError | None = None
        try:
            if question is not None:
                value = question(self, item)
            else:
                running = len(self._machine.graph.sessions)
                value = self._machine.handle(item, self._clock(), self._gauge.places(running))
        except DispatchError as error:
            refusal = error
        except Exception:
            if reply is not None:
                self._answers.append((reply, None, None, None))  # `on_failure` sees to it
            raise
        if reply is None:
            return
        if type(value) is RouteResult and value.decision is RouteDecision.STEER:
            self._steers.append((reply, value))
        elif question is not None and not self._status.reachable:
            _deliver(reply, value, refusal)
        else:
            self._answers.append((reply, value, refusal, item if question is not None else None))

    # --- writing through -------------------------------------------------------------------------------------------

    def _flush(self) -> None:
        self._handled = 0
        if self._over is None and self._status.reachable and self._write():
            self._let_go()

    def _write(self) -> bool:
        """Make the batch durable; False if that isn't possible now, and the batch stays."""
        if not self._machine.changed:
            return True
        self._changed = True
        if self._store is None:
            self._machine.written()
            return True
        changes = self._machine.changes()
        try:
            self._store.write(changes)
        except OwnershipLostError as lost:
            self._abdicate(lost)
            return False
        except (StoreUnavailableError, StoreError) as problem:
            self._lose_reach(problem)
            return False
        self._machine.written()
        return True

    def _let_go(self) -> None:
        """All is durable: show it, answer, and act."""
        if self._changed:
            self._changed = False
            self._health.change()
        if self._answers:
            batch, self._answers = self._answers, []
            for reply, value, refusal, _ in batch:
                _deliver(reply, value, refusal)
        effects = self._machine.take_effects()
        if effects:
            self._posted += len(effects)
            self._outbox.post(
                [Errand(effect, self._delivered() if type(effect) is Send else None) for effect in effects]
            )
        if self._settlers:
            settlers, self._settlers = self._settlers, []
            for reply in settlers:
                self._outbox.when_idle(lambda reply=reply, posted=self._posted: reply.answer(posted))  # type: ignore[misc]
        if self._ticked:
            self._look_after_the_log()

    def _look_after_the_log(self) -> None:
        """All is durable, and nobody waits: the moment to see whether some of it is too old."""
        self._ticked = False
        if self._pruner is not None:
            self._pruner.look(self._machine, self._clock())

    def _delivered(self) -> Callable[[str, str], None]:
        """For a message into a session: the route's answer waits for the id of the turn that takes it."""
        reply, result = self._steers.pop(0)

        def answer(turn_id: str, problem: str) -> None:
            findings = (f"the message could not be delivered: {problem}",) if problem else ()
            reply.answer(attrs.evolve(result, turn_id=turn_id, findings=result.findings + findings))

        return answer

    def _lose_reach(self, problem: DispatchError) -> None:
        was_reachable = self._status.reachable
        if was_reachable:
            reach.warning("the store is out of reach, launching stops: %s", problem)
        since = self._clock() if was_reachable else self._status.since
        unwritten = self._machine.unwritten()
        self._status = StoreStatus(self._status.url, False, since, str(problem), unwritten)
        self._health.store_problem = str(problem)
        self._health.change()
        self._machine.suspended = True
        if was_reachable:
            self._answer_questions()

    def _answer_questions(self) -> None:
        """Those of the batch that can't be written: nobody waits for a store to read, and the answer says how it is."""
        asked = [(item, reply) for reply, _, _, item in self._answers if item is not None]
        self._answers = [answer for answer in self._answers if answer[3] is None]
        for item, reply in asked:
            self._take(item, reply)

    def _regain_reach(self) -> None:
        reach.warning("the store is in reach again, after %.1f s", self._clock() - self._status.since)
        self._status = StoreStatus(self._status.url)
        self._health.store_problem = ""
        self._machine.suspended = False
        self._let_go()
        self._run_pass()
        self._flush()

    def _run_pass(self) -> None:
        """A pass of its own, by what the host measures now."""
        self._machine.handle(REMEASURE, self._clock(), self._gauge.places(len(self._machine.graph.sessions)))

    def _unavailable(self) -> StoreUnavailableError:
        return StoreUnavailableError(f"the store is out of reach: {self._status.problem}; try again later")

    def _abdicate(self, lost: OwnershipLostError) -> None:
        """Another process owns the graph: nothing was written. Stop the sessions, tell everybody, end."""
        logger.error("the graph was taken over by another process; its sessions here are asked to stop")
        sessions = [AskToStop(session) for session in self._machine.graph.sessions]
        self._outbox.post([Errand(effect) for effect in sessions])
        self._die(lost)

    # --- the owner's own messages ----------------------------------------------------------------------------------

    def _tick(self, _: Tick, __: Reply | None) -> None:
        self._ticks += 1
        self._ticked = True
        try:
            if self._store is not None and (self._ticks % _RENEW_TICKS == 0 or not self._status.reachable):
                until = claim_clock() + CLAIM_S  # from before the call: the store counts from a later moment
                self._store.renew()
                self._health.owned_until = until
        except OwnershipLostError as lost:
            self._abdicate(lost)
            return
        except (StoreUnavailableError, StoreError) as problem:
            self._lose_reach(problem)
            return
        if not self._status.reachable:
            if self._write():
                self._regain_reach()
            return
        self._run_pass()

    def _settle(self, _: Settle, reply: Reply | None) -> None:
        if reply is not None:
            self._settlers.append(reply)

    def _lose_outbox(self, lost: OutboxLost, _: Reply | None) -> None:
        """Nothing that is decided reaches the host any more: nothing may be decided."""
        logger.error("the thread that passes requests to the host has died of %s", lost.cause)
        self._die(NotRunningError(f"requests don't reach the host any more ({lost.cause}); start the service again"))

    def _end(self, _: Stop, reply: Reply | None) -> None:
        if self._write():  # also if it is out of reach: this is the last try
            self._let_go()
        elif self._over is None:
            logger.error(
                "stopped before what had changed was written: %s", listed(self._machine.unwritten(), _MOST_NAMES)
            )
        self._die(NotRunningError("the service was stopped"))
        _deliver(reply, None, None)

    def on_stop(self) -> None:
        """Pykka ends the actor: what came in after the end is told so too."""
        self._die(NotRunningError("the service was stopped"))

    def on_failure(self, exception_type: Any, exception_value: Any, traceback: Any) -> None:
        """A defect: nothing is dispatched any more, the store is the truth, and nobody waits for ever."""
        crash = NotRunningError(f"the graph's owner crashed ({exception_value!r}); start the service again")
        crash.__cause__ = exception_value
        self._die(crash)

    def _die(self, error: DispatchError) -> None:
        """Refuse everything that waits, here and in the inbox, and whatever still comes; then end the actor."""
        self._over = self._health.failure = self._health.failure or error
        waiting = [answer[0] for answer in self._answers] + [reply for reply, _ in self._steers] + self._settlers
        self._answers, self._steers, self._settlers = [], [], []
        while not self.actor_inbox.empty():
            message = self.actor_inbox.get().message
            if isinstance(message, tuple) and message[1] is not None:
                waiting.append(message[1])
        for reply in waiting:
            reply.refuse(self._health.gone())
        self._health.change()
        if not self.actor_stopped.is_set():
            self.stop()

    # --- questions -------------------------------------------------------------------------------------------------

    def _get(self, question: Get) -> Any:
        graph = self._machine.graph
        return answers.view(graph, graph.node(question.slice_id))

    def _list(self, _: ListSlices) -> Any:
        graph = self._machine.graph
        return answers.views(graph, tuple(graph.nodes.values()))

    def _frontier(self, _: Frontier) -> Any:
        graph = self._machine.graph
        return answers.views(graph, graph.frontier())

    def _explain(self, question: Explain) -> Any:
        machine = self._machine
        node = machine.graph.node(question.slice_id)
        return answers.explain(machine.graph, node, machine.paused, self._store_status(), self._cap())

    def _snapshot(self, _: TakeSnapshot) -> Any:
        machine = self._machine
        return answers.snapshot(
            machine.graph, machine.name, self._clock(), machine.paused, self._store_status(), self._cap()
        )

    def _check(self, _: Check) -> None:
        self._machine.graph.check()

    def _cap(self) -> Any:
        return self._gauge.reading(len(self._machine.graph.sessions))

    def _store_status(self) -> StoreStatus:
        if self._status.reachable:
            return self._status
        return attrs.evolve(self._status, unwritten=self._machine.unwritten())


_Answer = tuple[Reply, Any, DispatchError | None, Any]  # whose it is, value, refusal, and the question if it was one


def _deliver(reply: Reply | None, value: Any, refusal: BaseException | None) -> None:
    if reply is None:
        return
    if refusal is None:
        reply.answer(value)
    else:
        reply.refuse(refusal)


_INTERNAL: dict[type, Callable[[GraphOwner, Any, Reply | None], None]] = {
    Tick: GraphOwner._tick,
    Settle: GraphOwner._settle,
    Stop: GraphOwner._end,
    OutboxLost: GraphOwner._lose_outbox,
}
_QUESTIONS: dict[type, Callable[[GraphOwner, Any], Any]] = {
    Get: GraphOwner._get,
    ListSlices: GraphOwner._list,
    Frontier: GraphOwner._frontier,
    Explain: GraphOwner._explain,
    TakeSnapshot: GraphOwner._snapshot,
    Check: GraphOwner._check,
}
