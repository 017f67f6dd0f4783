"""A worker: takes turns from a transport, claims them, runs them, and says what became of them.

Four kinds of threads share it. The *feeder* receives as many deliveries as there are free slots. The *desk*, the only
one that claims and ends, takes what was received and what has ended, as much as has come, into one transaction of the
authority; after that, and only then, it acknowledges. *Slots* run turns. The *keeper* (`keeper`) renews leases, puts in
order what dead workers left, and sees to it that what is ready has a delivery.

What is received proves nothing; what the authority says to a claim decides. So a delivery that comes twice, or late, is
refused there, and acknowledged if its item has ended, given back if somebody works on it, or buried if it is nobody's.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import queue
import secrets
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias, TypeVar

import attrs

from harness.fleet.commands import Claim, Command, Defer, Fail, Holding, Retry
from harness.fleet.envelope import AgentTurnEnvelope, digest, encode
from harness.fleet.errors import (
    DrainRequestedError,
    FleetUnavailableError,
    HeldElsewhereError,
    LeaseLostError,
    UnknownItemError,
)
from harness.fleet.executors import Executor, run
from harness.fleet.keeper import REACH_S, Keeper
from harness.fleet.lease import WorkItemLeaseGuard
from harness.fleet.ports import (
    Authority,
    Buried,
    Delivery,
    Ending,
    Joint,
    Opening,
    Receipt,
    Result,
    Settlement,
    Transport,
    WorkerPresence,
)
from harness.fleet.pruner import Pruner
from harness.fleet.settings import FleetSettings, queue_token
from harness.fleet.settling import Settling
from harness.fleet.turn import Turn, Turns
from harness.fleet.work_item import WorkItem

logger = logging.getLogger(__name__)
Answer = TypeVar("Answer")

LOOK_S = 1.0  #: how long the feeder waits for a delivery before it looks whether it is still wanted
AGAIN_S = 1.0  #: before a delivery comes again whose item, or whose session, somebody works on
ELSEWHERE_S = 5.0  #: before a turn comes again that another worker may have the executor for
LAST_WORDS_S = 5.0  #: for turns that were asked to stop, and for what is still to be written down


@attrs.frozen
class _Received:
    deliveries: tuple[Delivery, ...]


@attrs.frozen
class _Ended:
    """`ending` is None where the lease was lost: there is nothing to say."""

    turn: Turn
    ending: Holding | None


@attrs.frozen
class _Mark:
    """Passed by when all that came before it was handled."""

    passed: threading.Event


@attrs.frozen
class _Closing:
    """Nothing comes after this."""


_Message: TypeAlias = _Received | _Ended | _Mark | _Closing


class _GivenUpError(Exception):
    """The worker is to end, and what it has to say can't be said."""


class Worker:
    """Runs turns in `slots` threads from `start` to `drain`.

    `owner` is a random name for this incarnation of a process, and says nothing of the machine. `joint` is of the same
    authority and transport, where there is one. They stay the caller's to close.
    """

    def __init__(
        self,
        authority: Authority,
        transport: Transport,
        executors: Mapping[str, Executor],
        settings: FleetSettings,
        slots: int,
        joint: Joint | None = None,
    ) -> None:
        self.owner = secrets.token_hex(8)
        self._authority, self._transport, self._settings = authority, transport, settings
        self._executors, self._slots, self._joint = dict(executors), slots, joint
        self._queue_token = queue_token(settings)
        self.counts: Counter[str] = Counter()  # of ended attempts by the state they left, and of "lease_lost"
        self._turns = Turns()
        self._inbox: queue.SimpleQueue[_Message] = queue.SimpleQueue()
        self._mutex = threading.Lock()
        self._freed = threading.Condition(self._mutex)
        self._free = slots
        self._draining, self._given_up = threading.Event(), threading.Event()
        self._pool = ThreadPoolExecutor(slots, thread_name_prefix="fleet-slot")
        self._keeper = Keeper(authority, transport, settings, self._turns, self._guarded, self._presence)
        self._pruner = Pruner(authority, settings.keep_days, self._guarded)
        self._feeder = threading.Thread(target=self._guarded, args=(self._feed,), name="fleet-feeder")
        self._desk = threading.Thread(target=self._guarded, args=(self._serve,), name="fleet-desk")
        self.problem: BaseException | None = None
        self._is_closed = False

    @property
    def slots(self) -> int:
        return self._slots

    @property
    def busy(self) -> int:
        return min(len(self._turns), self._slots)

    @property
    def is_draining(self) -> bool:
        """Whether it takes nothing more, since it was asked to drain or can't go on (`problem`)."""
        return self._draining.is_set()

    def _presence(self) -> WorkerPresence:
        kinds = tuple(sorted(self._executors))
        every_s = self._settings.renew_interval_s
        return WorkerPresence(self.owner, kinds, self._slots, self.busy, every_s, queue=self._queue_token)

    def start(self) -> None:
        self._desk.start()
        self._keeper.start()
        self._pruner.start()
        self._feeder.start()

    def wait(self, seconds: float | None = None) -> bool:
        """Until it takes nothing more; whether that is so."""
        return self._draining.wait(seconds)

    def drain(self, grace_s: float) -> bool:
        """Take nothing more, let turns end for `grace_s` seconds, ask the rest to stop; whether all have ended.

        What has not is left to its lease, and recovered by another worker when that runs out. Again, no change.
        """
        if self._is_closed:
            return not self._turns
        self._is_closed = True
        self._stop_feeding()
        self._feeder.join()
        if self.problem is not None:
            grace_s = 0.0
        mark = _Mark(threading.Event())
        self._inbox.put(mark)
        if self.problem is not None:  # there may be no desk any more
            mark.passed.set()
        all_ended = mark.passed.wait(grace_s) and self._turns.wait_for_none(grace_s)
        if not all_ended:
            for turn in self._turns.all():
                turn.guard.ask_to_stop(DrainRequestedError(turn.item_id, "its worker is ending"))
            all_ended = mark.passed.wait(LAST_WORDS_S) and self._turns.wait_for_none(LAST_WORDS_S)
        self._pruner.stop()
        self._keeper.stop()
        self._inbox.put(_Closing())
        self._desk.join(LAST_WORDS_S)
        self._given_up.set()
        self._desk.join()
        for turn in self._turns.all():
            turn.guard.lose()
        self._pool.shutdown(wait=all_ended, cancel_futures=True)
        return all_ended

    # -- the feeder ----------------------------------------------------------------------------------------------------

    def _feed(self) -> None:
        while (free := self._wait_for_a_slot()) > 0:
            try:
                deliveries = self._transport.receive(free, LOOK_S)
            except FleetUnavailableError as problem:
                logger.warning("no turns for now: %s", problem)
                self._draining.wait(REACH_S)
                continue
            if deliveries:
                with self._mutex:
                    self._free -= len(deliveries)
                self._inbox.put(_Received(deliveries))

    def _wait_for_a_slot(self) -> int:
        """How many are free; 0 when the worker takes nothing more."""
        with self._freed:
            self._freed.wait_for(lambda: self._free > 0 or self._draining.is_set())
            return 0 if self._draining.is_set() else self._free

    def _stop_feeding(self) -> None:
        with self._freed:
            self._draining.set()
            self._freed.notify_all()

    def _free_slots(self, count: int) -> None:
        if count:
            with self._freed:
                self._free += count
                self._freed.notify_all()

    # -- the desk ------------------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        while True:
            messages = self._drained()
            with contextlib.suppress(_GivenUpError):
                ended = [message for message in messages if isinstance(message, _Ended)]
                received = [message.deliveries for message in messages if isinstance(message, _Received)]
                self._handle(ended, self._known(list(itertools.chain(*received))))
            for message in messages:
                if isinstance(message, _Mark):
                    message.passed.set()
            if any(isinstance(message, _Closing) for message in messages):
                return

    def _drained(self) -> list[_Message]:
        """All that has come, at least one."""
        messages = [self._inbox.get()]
        with contextlib.suppress(queue.Empty):
            while True:
                messages.append(self._inbox.get_nowait())
        return messages

    def _known(self, deliveries: Sequence[Delivery]) -> list[tuple[Receipt, AgentTurnEnvelope]]:
        """Those that are envelopes. The others are buried, and done with."""
        strange = [each for each in deliveries if each.envelope is None]
        if strange:
            self._bury([Buried(digest(each.raw), each.problem) for each in strange])
            self._acknowledge([each.receipt for each in strange])
            self._free_slots(len(strange))
        return [(each.receipt, each.envelope) for each in deliveries if each.envelope is not None]

    def _handle(self, ended: Sequence[_Ended], arrived: Sequence[tuple[Receipt, AgentTurnEnvelope]]) -> None:
        """Slots are free as soon as their turns have ended: the next are received while that is written down."""
        self._free_slots(len(ended))
        if self.is_draining:
            self._give_back([receipt for receipt, _ in arrived], 0.0)
            arrived = ()
        said = [Ending(each.ending, each.turn.session, each.turn.receipt) for each in ended if each.ending is not None]
        openings = [Opening(self._claim(each), (each.tenant, each.session_id)) for _, each in arrived]
        if not (said or openings):
            settled = Settlement((), (), ())
        elif self._joint is not None:
            joint = self._joint
            settled = self._reached(lambda: joint.settle(said, openings))
        else:
            settled = self._settled(Settling(said, openings))
        self._end(ended, settled.endings)
        self._begin(arrived, settled)

    def _settled(self, settling: Settling) -> Settlement:
        """One after another what `Joint.settle` does at once."""
        sessions = settling.sessions
        locked = self._reached(lambda: self._authority.lock_sessions(sessions)) if sessions else ()
        results = self._perform(settling.commands)
        done_with = settling.done_with(results, locked)
        if done_with:
            self._reached(lambda: self._authority.unlock_sessions(done_with))
        self._acknowledge(settling.acknowledged(results))
        return settling.settlement(results, locked)

    def _claim(self, envelope: AgentTurnEnvelope) -> Claim:
        return Claim(envelope.job_id, envelope.tenant, self.owner, self._settings.claim_ttl_s, starts=True)

    def _end(self, ended: Sequence[_Ended], results: Sequence[Result]) -> None:
        """What somebody else took over stays unacknowledged, and comes again."""
        answers = iter(results)
        lost: list[Turn] = []
        for each in ended:
            result = next(answers) if each.ending is not None else LeaseLostError(each.turn.item_id, 0)
            if isinstance(result, WorkItem):
                self.counts[result.state.value] += 1
            else:
                self.counts["lease_lost"] += 1
                logger.warning("what became of %r can't be written down: %s", each.turn.item_id, result)
                lost.append(each.turn)
        unsaid = [each.turn.session for each in ended if each.ending is None]
        if unsaid:
            self._reached(lambda: self._authority.unlock_sessions(unsaid))
        self._give_back([turn.receipt for turn in lost])
        if ended:
            self._turns.remove([each.turn for each in ended])
            self._keeper.look()  # something may have become ready

    def _begin(self, arrived: Sequence[tuple[Receipt, AgentTurnEnvelope]], settled: Settlement) -> None:
        begun: list[Turn] = []
        for (receipt, envelope), is_locked, result in zip(arrived, settled.locked, settled.openings, strict=True):
            if isinstance(result, WorkItem):
                begun.append(self._turn(receipt, (envelope.tenant, envelope.session_id), result, is_locked))
            else:
                self._turn_away(receipt, envelope, result)
                self._free_slots(1)
        for turn in self._with_their_sessions(begun):
            self._turns.add(turn)
            self._pool.submit(self._work, turn)

    def _turn(self, receipt: Receipt, session: tuple[str, str], item: WorkItem, is_locked: bool) -> Turn:
        guard = WorkItemLeaseGuard(self._authority, self._authority, item, self._settings.claim_ttl_s)
        return Turn(receipt, session, guard, is_locked)

    def _with_their_sessions(self, turns: Sequence[Turn]) -> list[Turn]:
        """Those that hold their session's lock. Who holds one beside the lease is cut off; if that takes time, the turn
        is given back."""
        apart = [turn for turn in turns if not turn.is_locked]
        if not apart:
            return list(turns)
        seized = self._reached(lambda: self._authority.seize_sessions([turn.session for turn in apart]))
        rest = [turn for turn, is_ours in zip(apart, seized, strict=True) if not is_ours]
        if rest:
            self._perform([Defer(turn.guard.lease, "its session has not let go", AGAIN_S) for turn in rest])
            self._acknowledge([turn.receipt for turn in rest])
            self._free_slots(len(rest))
        return [turn for turn in turns if turn not in rest]

    def _turn_away(self, receipt: Receipt, envelope: AgentTurnEnvelope, refusal: Result) -> None:
        match refusal:
            case HeldElsewhereError(wait_s=wait_s):
                self._give_back([receipt], min(AGAIN_S, max(0.1, wait_s)))
            case UnknownItemError():
                cause = "it names no work item of its tenant"
                self._bury([Buried(digest(encode(envelope)), cause, envelope.job_id, envelope.tenant)])
                self._acknowledge([receipt])
            case _:  # it has ended, or waits for something: who makes it ready sees to a new delivery
                self._acknowledge([receipt])

    # -- a slot --------------------------------------------------------------------------------------------------------

    def _work(self, turn: Turn) -> None:
        """A slot's door: however the turn ends, the desk hears of it."""
        try:
            ending = self._ending(turn)
        except Exception as error:
            logger.exception("work item %r could not be run", turn.item_id)
            ending = Retry(turn.guard.lease, f"its worker raised {type(error).__name__}; see the worker's log")
        self._inbox.put(_Ended(turn, ending))

    def _ending(self, turn: Turn) -> Holding | None:
        item, lease = turn.guard.item, turn.guard.lease
        executor = self._executors.get(item.kind)
        if executor is None:
            return Defer(lease, f"this worker has no executor of kind {item.kind!r}", ELSEWHERE_S)
        try:
            payload = self._payload(item)
        except FleetUnavailableError:
            return Defer(lease, "its payload could not be read for now", AGAIN_S)
        if payload is None:
            return Fail(lease, "its payload is gone")
        return run(executor, payload, turn.guard)

    def _payload(self, item: WorkItem) -> bytes | None:
        """What the authority keeps under the reference; a reference to elsewhere is for the executor to follow."""
        if item.payload_ref.startswith("sha256:"):
            return self._authority.contents(item.payload_ref)
        return item.payload_ref.encode()

    # -- what may be out of reach --------------------------------------------------------------------------------------

    def _perform(self, commands: Sequence[Command]) -> tuple[Result, ...]:
        return self._reached(lambda: self._authority.perform(commands)) if commands else ()

    def _bury(self, found: Sequence[Buried]) -> None:
        self._reached(lambda: self._authority.bury(found))

    def _acknowledge(self, receipts: Sequence[Receipt]) -> None:
        """What can't be acknowledged comes again, and is turned away then."""
        if receipts:
            self._noted("acknowledged", lambda: self._transport.acknowledge(receipts))

    def _give_back(self, receipts: Sequence[Receipt], delay_s: float = AGAIN_S) -> None:
        if receipts:
            self._noted("given back", lambda: self._transport.give_back(receipts, delay_s))

    def _noted(self, what: str, call: Callable[[], Sequence[Exception | None]]) -> None:
        for problem in self._reached(call):
            if problem is not None:
                logger.info("a delivery was not %s: %s", what, problem)

    def _reached(self, call: Callable[[], Answer]) -> Answer:
        """Its answer, however long it is out of reach. Raises `_GivenUpError` if the worker is to end first."""
        while True:
            try:
                return call()
            except FleetUnavailableError as problem:
                logger.warning("%s", problem)
                if self._given_up.wait(REACH_S):
                    raise _GivenUpError from problem

    def _guarded(self, loop: Callable[[], None]) -> None:
        """A thread that can't go on takes the worker with it, which says so by `problem`."""
        try:
            loop()
        except Exception as error:
            logger.exception("the worker can't go on")
            self.problem = error
            self._given_up.set()
            self._stop_feeding()
