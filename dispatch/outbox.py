"""Where effects leave the owner: one thread with an event loop that performs them, so that the owner never waits.

Requests for one session reach the host in the order in which they were decided; requests for different sessions go side
by side, however long one of them takes. What keeps a request cheap: effects pile up in a deque and one poke wakes the
loop for all of them; a *drainer* task awaits host calls straight away, and only when one of them really suspends does
another drainer go on with what is queued behind it. Waking a parked drainer costs some microseconds, a new task some
tens, a portal call some hundreds. A `PromptHost` is told of launches by the owner itself: handing over to the loop and
back wakes two threads, which costs several times what the graph does with a slice in all.

The thread is a daemon: a program that forgets to stop its service can still exit.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import anyio
import anyio.abc
import anyio.lowlevel
import attrs

from dispatch.commands import AskToStop, Effect, Launch, Observe, RequestFailed, Send
from dispatch.errors import NotRunningError
from dispatch.reply import Reply
from harness import Assignment, HostClosedError, PromptHost, SessionHost, SessionPhase, SessionState

logger = logging.getLogger(__name__)

_MOST_DRAINERS = 256
_PARKED = 8  # drainers kept for the next burst
_BREATH = 256  # effects between two checkpoints, so that a long queue doesn't starve the host's own tasks
_STOP_TRIES = 4
_FIRST_PAUSE_S = 0.4  # before a session is asked again to stop; then four times as long, each time
_STOPPED = "the service was stopped"


@attrs.frozen
class Call:
    """An async function to run in the loop, its result to be answered to `reply`."""

    function: Callable[[], Awaitable[Any]]
    reply: Reply


@attrs.frozen
class Errand:
    """An effect, and who is told the outcome (the turn's id or None, and the problem or an empty text)."""

    effect: Effect
    done: Callable[[str, str], None] | None = None


@attrs.frozen
class OutboxLost:
    """Told to the owner when the outbox's thread has ended by itself."""

    cause: str


class Outbox:
    """Performs effects against `host`; failures come back through `tell` as messages to the owner.

    Whatever a host's method raises is a failure of that one request, be it an `Exception`, a cancellation of its own
    making or worse.
    """

    def __init__(
        self,
        host: SessionHost,
        tell: Callable[[Observe | RequestFailed | OutboxLost], None],
        first_pause_s: float = _FIRST_PAUSE_S,
    ) -> None:
        self._host, self._tell, self._first_pause_s = host, tell, first_pause_s
        self._submit = host.submit_nowait if isinstance(host, PromptHost) else None
        self._queue: deque[Errand | Call] = deque()
        self._busy: dict[str, list[Errand]] = {}  # sessions with a request under way, and what waits behind it
        self._idle: list[asyncio.Future[None]] = []  # what parked drainers wait for
        self._drainers = 0
        self._outstanding = 0
        self._count = threading.Lock()  # guards what the owner and the loop both touch: _outstanding and these two
        self._when_idle: list[Callable[[], None]] = []
        self._closed = False
        self._failure: BaseException | None = None
        self._poked = self._relief = False
        self._ready = threading.Event()
        self.thread = threading.Thread(target=self._run, name="dispatch-outbox", daemon=True)

    def start(self) -> None:
        """Raises what keeps the thread or its event loop from being made, such as `OSError`."""
        self.thread.start()
        self._ready.wait()
        if self._failure is not None:
            raise self._failure

    def stop(self, timeout: float) -> None:
        """Perform what is queued, for at most `timeout` seconds, and end the thread. What is left is refused.

        Nothing if it has ended already. `start` may have been broken off: then the loop is still about to begin.
        """
        if self._closed or not self._ready.wait(timeout):
            return
        idle = threading.Event()
        self.when_idle(idle.set)
        idle.wait(timeout)
        self._call_soon(self._tasks.cancel_scope.cancel)
        self.thread.join(timeout)

    def post(self, errands: Sequence[Errand | Call]) -> None:
        """Queue them and wake the loop. Called once their changes are durable.

        What a prompt host is to launch, it is told here and now. Raises `NotRunningError` if the thread has ended.
        """
        left = errands if self._submit is None else self._told_at_once(self._submit, errands)
        if not left:
            return
        with self._count:
            if self._closed:
                raise NotRunningError(_STOPPED) from self._failure
            self._outstanding += len(left)
            self._queue.extend(left)
        if not self._poked:
            self._poked = True
            self._call_soon(self._relieve)

    def _told_at_once(
        self, submit: Callable[[Assignment], None], errands: Sequence[Errand | Call]
    ) -> Sequence[Errand | Call]:
        """Perform the launches among `errands`, and return the others. Launches are first of their session's requests:
        they overtake nothing."""
        left = []
        for errand in errands:
            if type(errand) is Errand and type(errand.effect) is Launch:
                try:
                    submit(errand.effect.assignment)
                except BaseException as error:  # noqa: BLE001 - a worker's door, as in `_perform`
                    self._report(errand.effect, error)
            else:
                left.append(errand)
        return left

    def when_idle(self, done: Callable[[], None]) -> None:
        """Call `done` as soon as nothing that was posted is left to do (at once if so now); from any thread."""
        with self._count:
            if self._outstanding:
                self._when_idle.append(done)
                return
        done()

    def _call_soon(self, function: Callable[[], object]) -> None:
        try:
            self._loop.call_soon_threadsafe(function)
        except RuntimeError:
            return  # the loop has ended: `_close` sees to what is left

    # --- in the loop -----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            anyio.run(self._serve, backend="asyncio")
        except BaseException as error:
            self._failure = error
            logger.critical("sessions can be asked for nothing any more", exc_info=error)
        finally:
            self._close()
            self._ready.set()
            if self._failure is not None:
                with contextlib.suppress(NotRunningError):  # then there is no owner that could be misled
                    self._tell(OutboxLost(_told(self._failure)))

    def _close(self) -> None:
        """Nothing is performed any more: nobody may wait for it."""
        with self._count:
            self._closed = True
            left = [*self._queue, *(errand for behind in self._busy.values() for errand in behind)]
        for errand in left:
            if isinstance(errand, Call):
                errand.reply.refuse(NotRunningError(_STOPPED))
            elif errand.done is not None:
                errand.done("", _STOPPED)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        async with anyio.create_task_group() as self._tasks:
            while True:  # tasks can't be started from a loop callback, so `_relieve` asks for them here
                self._wanted = anyio.Event()
                self._ready.set()
                await self._wanted.wait()
                self._drainers += 1
                self._tasks.start_soon(self._drain, name="drainer")

    def _relieve(self) -> None:
        """Let a drainer that is not waiting for the host take over what is queued."""
        self._poked = self._relief = False
        if not self._queue:
            return
        if self._idle:
            bell = self._idle.pop()
            if not bell.done():  # else the outbox is being stopped
                bell.set_result(None)
        elif self._drainers < _MOST_DRAINERS:
            self._wanted.set()

    async def _drain(self) -> None:
        done = 0
        while True:
            while self._queue:
                errand = self._queue.popleft()
                if self._queue and not self._relief:
                    self._relief = True
                    self._loop.call_soon(self._relieve)
                await (self._answer(errand) if isinstance(errand, Call) else self._in_order(errand))
                done += 1
                if done % _BREATH == 0:
                    await anyio.lowlevel.checkpoint()
            if len(self._idle) >= _PARKED:
                self._drainers -= 1
                return
            bell = self._loop.create_future()  # an event would cost a lone effect more than all the rest
            self._idle.append(bell)
            await bell

    async def _answer(self, call: Call) -> None:
        try:
            call.reply.answer(await call.function())
        except BaseException as error:  # a worker's door: whatever it was, its caller is told
            if self._ends_with(error):
                call.reply.refuse(NotRunningError(_STOPPED))
                raise
            call.reply.refuse(error)
        finally:
            self._finished()

    async def _in_order(self, errand: Errand) -> None:
        """Perform it, and after it what came for the same session meanwhile; unless one is under way already."""
        session = errand.effect.assignment_id
        if session in self._busy:
            self._busy[session].append(errand)
            return
        behind = self._busy[session] = []  # hardly ever more than one or two: a deque takes ten times the room
        await self._perform(errand)
        while behind:
            await self._perform(behind.pop(0))
        del self._busy[session]

    async def _perform(self, errand: Errand) -> None:
        turn, problem = "", _STOPPED
        try:
            match errand.effect:
                case Launch(assignment):
                    await self._host.submit(assignment)
                case AskToStop(session):
                    await self._ask_to_stop(session)
                case Send(session, message):
                    turn = await self._host.send(session, message)
            problem = ""
        except BaseException as error:  # a worker's door: the owner is told, and decides
            if self._ends_with(error):
                raise
            problem = _told(error)
            self._report(errand.effect, error)
        finally:
            if errand.done is not None:
                errand.done(turn, problem)
            self._finished()

    def _ends_with(self, error: BaseException) -> bool:
        """Whether it is this outbox that is being stopped, and not the host that failed."""
        return not isinstance(error, Exception) and self._tasks.cancel_scope.cancel_called

    async def _ask_to_stop(self, session: str) -> None:
        """A stop that did not get through is asked again, a few times: a session nobody can stop holds its place."""
        for attempt in range(_STOP_TRIES - 1):
            try:
                await self._host.cancel(session)
            except Exception as error:  # noqa: BLE001 - a worker's door: the last try's error goes to the owner
                logger.warning("asking %s to stop failed, trying again: %r", session, error)
                await anyio.sleep(self._first_pause_s * 4**attempt)
            else:
                return
        await self._host.cancel(session)

    def _report(self, effect: Effect, raised: BaseException) -> None:
        problem = _told(raised)
        try:
            match effect:
                case Launch() if isinstance(raised, HostClosedError):  # as with those that the closing has ended
                    logger.info("%s was not begun any more, and is for the next host", effect.assignment_id)
                case Launch(assignment):
                    error = f"the session could not be opened: {problem}"
                    self._tell(Observe(SessionState(assignment.assignment_id, SessionPhase.FAILED, error=error)))
                case AskToStop(session):
                    self._tell(RequestFailed(session, f"the session could not be asked to stop: {problem}"))
                case Send():
                    pass  # the caller who sent it is told by `done`
        except NotRunningError:
            logger.warning("nobody is left to tell that a request to %s failed: %s", effect.assignment_id, problem)

    def _finished(self) -> None:
        with self._count:
            self._outstanding -= 1
            due: list[Callable[[], None]] = []
            if not self._outstanding:
                due, self._when_idle = self._when_idle, due
        for done in due:
            done()


def _told(error: BaseException) -> str:
    """What an error of the host's says of itself, if it does."""
    try:
        words = str(error)
    except Exception:  # noqa: BLE001 - it is the host's code that runs here
        words = ""
    name = type(error).__name__
    return f"{name}: {words}" if words else name
