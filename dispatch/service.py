"""`DispatchService`: the slice graph as an embedding program sees it."""

from __future__ import annotations

import contextlib
import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from dispatch import commands as c
from dispatch import keyframe
from dispatch.aio import AwaitableCalls
from dispatch.calls import DEFAULT_TIMEOUT_S, Deadline, Line
from dispatch.capping import CapGauge, Measures
from dispatch.collector import collector_paused
from dispatch.commands import Proof
from dispatch.errors import DispatchError, NotRunningError, StoreUnavailableError, TimedOutError
from dispatch.health import claim_clock
from dispatch.intent import Intent
from dispatch.journal import Journal
from dispatch.machine import Machine, Unproven
from dispatch.outbox import Call, Outbox
from dispatch.owner import TICK_S, GraphOwner, Settle, Stop, Tick
from dispatch.reply import BlockingReply, NoAnswerYet
from dispatch.retention import Pruner, Retention
from dispatch.slice import OCCUPYING, Slice
from dispatch.store import Store, open_store
from dispatch.store.ownership import CLAIM_S
from dispatch.store.port import NOTHING_LOGGED, Contents, KeyframeRow, history_of
from dispatch.views import Explanation, Merge, RouteResult, SliceView, Snapshot
from dispatch.weights import LearnedWeights, Weights, kind_of
from harness import (
    AdoptingHost,
    FencedHost,
    HostMeasures,
    Limit,
    LocalSessionHost,
    ReportingHost,
    SessionHost,
    SessionState,
    default_limits,
)

logger = logging.getLogger(__name__)

_STOP_S = 5.0  # how long stop() waits for requests to the host that are under way


class Checks(Protocol):
    """Finds out whether an intent is fulfilled already: by a glossary, by a gate run against main."""

    async def prove(self, intent: Intent) -> Proof: ...


class DispatchService:
    """One graph, its owner, and the sessions it is scheduled onto.

    `sessions` runs them. `store`: a URL (`sqlite:///path`, `memory:`) or a `Store`; without one the graph lives in
    memory. `graph` names it in the store. `measures` has `cores` and `load`; without it the host is measured, and
    memory and disk are limits too; `limits` names further ones. `weights` default to `LearnedWeights`. `clock` returns
    Unix seconds. `take_over` fences another process that owns the graph. `checks` let `route` see that all is done.
    `history_days` says for how long the log of what came in and was decided is kept; by default for as many days as the
    variable `DISPATCH_HISTORY_DAYS` says, or 30.

    Calls block until what they ask for is durable, at most `timeout` seconds; `aio` has an awaitable twin of each. All
    of them may raise `NotRunningError` and `StoreUnavailableError`. A call may be made from any thread but the
    service's own; from an event loop use `aio`. A service is started once. Its threads are daemons: a program that
    forgets `stop()` can exit.
    """

    def __init__(
        self,
        sessions: SessionHost,
        store: str | Store | None = None,
        graph: str = "default",
        measures: Measures | None = None,
        limits: Sequence[Limit] | None = None,
        weights: Weights | None = None,
        clock: Callable[[], float] | None = None,
        *,
        take_over: bool = False,
        checks: Checks | None = None,
        history_days: float | None = None,
    ) -> None:
        self._sessions, self._graph, self._take_over, self._checks = sessions, graph, take_over, checks
        self._store = open_store(store) if isinstance(store, str) else store
        self._gauge = _gauge(sessions, measures, limits)
        self._weights = weights or LearnedWeights()
        self._clock = clock or time.time
        self._line = Line()
        self._outbox = Outbox(sessions, self._line.tell)
        self._stopping = threading.Event()
        self._life = threading.RLock()  # start() and stop() are not for two threads at once
        self._started = self._claimed = False
        self._retention = Retention.of(history_days)
        self._pruner: Pruner | None = None
        self._epoch = 0
        self.aio = AwaitableCalls(self._line, self._prove)

    # --- life ------------------------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Claim the graph, read it back, take up its sessions, and begin to dispatch. Returns the service.

        Raises `OwnedElsewhereError`, `StoreError`, `StoreUnavailableError`; then nothing is left behind.
        """
        with self._life:
            if self._started:
                raise NotRunningError("a service is started once; make another one")
            self._started = True
            self._claim()
            try:
                with collector_paused():  # from the first row on: each pass would look at all that was made before
                    self._begin()
            except BaseException:
                self.stop()
                raise
        return self

    def stop(self) -> None:
        """Write what is left and end the owner. No session is asked to stop: sessions are the host's. Idempotent."""
        self._line.check_thread()
        with self._life:
            self._stopping.set()
            if not self._claimed:
                return
            self._claimed = False
            over = self._end_owner()
            self._line.close()
            if self._outbox.thread.is_alive():
                self._outbox.stop(_STOP_S)
            if self._pruner is not None:
                self._pruner.stop(_STOP_S)
            if self._store is not None and over:
                self._store.release()

    def _end_owner(self) -> bool:
        """Whether the owner has ended. One that still waits for its store keeps the claim, which runs out by itself."""
        try:
            if self._line.is_open:
                self._line.ask(Stop(), timeout=_STOP_S)
        except (TimedOutError, StoreUnavailableError):
            logger.error("the owner is still at work on its store after %g s; left to itself", _STOP_S)  # noqa: TRY400
            return not self._line.is_alive
        except DispatchError:
            return True  # it had ended by itself; why, every other call says
        return True

    def __enter__(self) -> Self:
        return self if self._started else self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _claim(self) -> None:
        if self._store is not None:
            self._epoch = self._store.claim(self._graph, take_over=self._take_over).epoch
            self._line.health.owned_until = claim_clock() + CLAIM_S - 1  # claimed a moment ago; renewed within three
        self._claimed = True

    def _begin(self) -> None:
        contents = Contents() if self._store is None else self._store.load()
        if isinstance(self._sessions, FencedHost):
            self._sessions.fence(self._line.health.owned)
        self._line.expect()  # an adopted session may end before the graph knows that it lives
        if isinstance(self._sessions, ReportingHost):
            self._sessions.connect(self.observe_session)
        self._outbox.start()
        self._line.health.own.add(self._outbox.thread)
        machine = Machine(self._graph, secrets.token_hex(8), self._weights, self._journal(contents))
        alive = self._adopt(contents)
        machine.restore(contents, alive, self._clock())
        self._pruner = self._pruner_of(contents)
        owner = GraphOwner.start(
            machine, self._gauge, self._outbox, self._store, self._clock, self._line.health, self._pruner
        )
        self._line.open(owner)
        threading.Thread(target=self._tick, name="dispatch-ticker", daemon=True).start()
        self.remeasure()

    def _journal(self, contents: Contents) -> Journal | None:
        """Where the log goes on; None if the store keeps none. What is there without a log becomes its beginning."""
        if history_of(self._store) is None:
            return None
        journal = Journal(self._epoch, contents.logged.last, _version())
        if contents.graph is not None and contents.logged == NOTHING_LOGGED:
            content = keyframe.encoded(keyframe.Keyframe(contents, weights=kind_of(self._weights)))
            journal.keyframe = KeyframeRow(0, self._clock(), content)
        return journal

    def _pruner_of(self, contents: Contents) -> Pruner | None:
        history = history_of(self._store)
        if history is None:
            return None
        began = min((row.enqueued_at for row in contents.slices), default=self._clock())
        return Pruner(history, self._graph, self._retention, contents.logged, began)

    def _adopt(self, contents: Contents) -> Iterable[str]:
        """Which of the stored sessions still run, as their host says."""
        if not isinstance(self._sessions, AdoptingHost):
            return ()
        held = [f"{row.slice.id}@{row.attempt}" for row in contents.slices if row.state in OCCUPYING]
        host, reply = self._sessions, BlockingReply()
        self._outbox.post([Call(lambda: host.adopt(held), reply)])
        try:
            return tuple(reply.wait(DEFAULT_TIMEOUT_S))
        except NoAnswerYet:
            raise TimedOutError(f"the host did not say within {DEFAULT_TIMEOUT_S:g} s which sessions live") from None

    def _tick(self) -> None:
        while not self._stopping.wait(TICK_S):
            try:
                self._line.tell(Tick())
            except NotRunningError:
                return

    async def _prove(self, intent: Intent) -> Proof:
        """What the checks say; an empty proof without checks, a finding if they can't be made."""
        if self._checks is None:
            return Proof()
        try:
            return await self._checks.prove(intent)
        except Exception as error:
            logger.exception("checking whether %s is done failed", intent.id)
            return Proof(findings=(f"whether it is done already can't be checked: {error}",))

    # --- commands --------------------------------------------------------------------------------------------------

    def enqueue(self, slice: Slice, *, timeout: float | None = DEFAULT_TIMEOUT_S) -> None:
        """Add one slice. Refuses with `InvalidSliceError`, `SliceExistsError`, `UnknownSliceError`, `CycleError`,
        `SliceFinishedError`."""
        self._line.ask(c.Enqueue((slice,)), timeout)

    def enqueue_many(self, slices: Iterable[Slice], *, timeout: float | None = None) -> None:
        """Add all or none, in any order among themselves; their enqueue order is the order given."""
        self._line.ask(c.Enqueue(tuple(slices)), timeout)

    def mark_merged(
        self, slice_id: str, pull_request_url: str = "", *, timeout: float | None = DEFAULT_TIMEOUT_S
    ) -> Merge:
        """Say that the slice's work is on main. Returns it and the slices that this released into the frontier."""
        merge: Merge = self._line.ask(c.MarkMerged(slice_id, pull_request_url), timeout)
        return merge

    def cancel(self, slice_id: str, *, timeout: float | None = DEFAULT_TIMEOUT_S) -> None:
        """End the slice; one that runs is asked to stop and is canceled at its session's report."""
        self._line.ask(c.Cancel(slice_id), timeout)

    def retry(self, slice_id: str, *, timeout: float | None = DEFAULT_TIMEOUT_S) -> None:
        """Queue a failed slice, or one in review, again; its closes and pull request are forgotten."""
        self._line.ask(c.Retry(slice_id), timeout)

    def revise(self, slice: Slice, *, timeout: float | None = DEFAULT_TIMEOUT_S) -> None:
        """Give a queued or failed slice another title, recipe, touch-set and provenance, those of `slice`.

        Its edges must be the ones it was enqueued with (`InvalidSliceError`); its hold stays as it is.
        """
        self._line.ask(c.Revise(slice), timeout)

    def hold(self, slice_id: str, reason: str = "", *, timeout: float | None = DEFAULT_TIMEOUT_S) -> None:
        """Keep the slice from starting until it is released; what runs goes on."""
        self._line.ask(c.Hold(slice_id, reason), timeout)

    def release(self, slice_id: str, reason: str = "", *, timeout: float | None = DEFAULT_TIMEOUT_S) -> None:
        """Hold the slice no more."""
        self._line.ask(c.Release(slice_id, reason), timeout)

    def pause(self, reason: str = "", *, timeout: float | None = DEFAULT_TIMEOUT_S) -> None:
        """Start nothing more and preempt nobody until `resume`."""
        self._line.ask(c.Pause(reason), timeout)

    def resume(self, reason: str = "", *, timeout: float | None = DEFAULT_TIMEOUT_S) -> None:
        """Dispatch again."""
        self._line.ask(c.Resume(reason), timeout)

    def declare_intent(self, intent: Intent, *, timeout: float | None = DEFAULT_TIMEOUT_S) -> list[SliceView]:
        """Register an intent and attach it to its targets; returns them, in enqueue order."""
        attached: list[SliceView] = self._line.ask(c.DeclareIntent(intent), timeout)
        return attached

    def reprioritize(self, intent: Intent, *, timeout: float | None = DEFAULT_TIMEOUT_S) -> list[SliceView]:
        """The same for an id that is registered; else `UnknownIntentError`."""
        attached: list[SliceView] = self._line.ask(c.DeclareIntent(intent, known=True), timeout)
        return attached

    def route(
        self,
        intent: Intent,
        message: str = "",
        new_slice: Slice | None = None,
        *,
        timeout: float | None = DEFAULT_TIMEOUT_S,
    ) -> RouteResult:
        """Bring a message to the slice that covers its intent: into its session, onto its queue, or as a new slice."""
        deadline, reply = Deadline(timeout), BlockingReply()
        result = self._line.ask_by(c.Route(intent, message, new_slice), deadline)
        if isinstance(result, Unproven):
            self._outbox.post([Call(lambda: self._prove(intent), reply)])
            proof = self._line.wait(reply, deadline)
            result = self._line.ask_by(c.Route(intent, message, new_slice, proof), deadline)
        assert isinstance(result, RouteResult)
        return result

    def observe_session(self, state: SessionState) -> None:
        """Take a session's report. Returns once it is in the owner's inbox: hosts call this from their event loops.

        Raises `TypeError` or `ValueError` for what is no report.
        """
        self._line.tell(c.Observe(state))

    def remeasure(self, *, timeout: float | None = DEFAULT_TIMEOUT_S) -> None:
        """Measure the host now, and start what a higher cap lets start."""
        self._line.ask(c.Remeasure(), timeout)

    # --- questions -------------------------------------------------------------------------------------------------

    def frontier(self, *, timeout: float | None = DEFAULT_TIMEOUT_S) -> list[SliceView]:
        """The slices that wait for nothing but a place, in dispatch order, held ones included."""
        frontier: list[SliceView] = self._line.ask(c.Frontier(), timeout)
        return frontier

    def get(self, slice_id: str, *, timeout: float | None = DEFAULT_TIMEOUT_S) -> SliceView:
        """One slice; `UnknownSliceError` if there is none of that id."""
        found: SliceView = self._line.ask(c.Get(slice_id), timeout)
        return found

    def explain(self, slice_id: str, *, timeout: float | None = DEFAULT_TIMEOUT_S) -> Explanation:
        """Why the slice doesn't run now."""
        explanation: Explanation = self._line.ask(c.Explain(slice_id), timeout)
        return explanation

    def snapshot(self, *, timeout: float | None = DEFAULT_TIMEOUT_S) -> Snapshot:
        """The whole graph at one moment."""
        snapshot: Snapshot = self._line.ask(c.TakeSnapshot(), timeout)
        return snapshot

    def wait_for_change(self, since: int, timeout: float = DEFAULT_TIMEOUT_S) -> int:
        """The number of changes the graph has seen, as soon as it is beyond `since` or the service has ended; after
        `timeout` seconds anyhow."""
        self._line.check_thread()
        self._line.check_begun()
        return self._line.health.wait(since, timeout)

    def settle(self, timeout: float | None = DEFAULT_TIMEOUT_S) -> None:
        """Return once all that was sent before is applied and every session request that followed is with the host."""
        deadline = Deadline(timeout)
        before, after = -1, self._line.ask_by(Settle(), deadline)
        while before != after:  # a request that failed came back as a report, which may have led to further ones
            before, after = after, self._line.ask_by(Settle(), deadline)

    def check(self, *, timeout: float | None = None) -> None:
        """Recompute everything the owner derives from its slices and assert that it agrees: for tests."""
        self._line.ask(c.Check(), timeout)

    def list(self, *, timeout: float | None = DEFAULT_TIMEOUT_S) -> list[SliceView]:  # last: it hides the type
        """All slices, in enqueue order."""
        slices: list[SliceView] = self._line.ask(c.ListSlices(), timeout)
        return slices


def _version() -> str:
    """The program's, as installed; empty if it runs without having been."""
    with contextlib.suppress(PackageNotFoundError):
        return version("slice-dispatch")
    return ""


def _gauge(sessions: SessionHost, measures: Measures | None, limits: Sequence[Limit] | None) -> CapGauge:
    """Measures given alone stand alone; without any, the host's cores, memory and disk all count."""
    if measures is not None:
        return CapGauge(measures, limits or ())
    own = HostMeasures(sessions.groups) if isinstance(sessions, LocalSessionHost) else HostMeasures()
    return CapGauge(own, default_limits(Path.cwd()) if limits is None else limits)
