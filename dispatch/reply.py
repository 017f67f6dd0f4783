"""Where an answer goes: to a thread that waits, or to a task of an event loop that does."""

from __future__ import annotations

import abc
import asyncio
import queue
import sys
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol


class NoAnswerYet(Exception):  # noqa: N818 - no error: whoever waits may wait on
    """Raised by `wait` when its time is over."""


class Reply(Protocol):
    """Answered exactly once, from any thread, without blocking it."""

    def answer(self, value: Any) -> None: ...

    def refuse(self, error: BaseException) -> None: ...


class BlockingReply:
    """For a thread: `wait` returns the value, raises the refusal, or `NoAnswerYet`."""

    __slots__ = ("_box",)

    def __init__(self) -> None:
        self._box: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()

    def answer(self, value: Any) -> None:
        self._box.put((value, None))

    def refuse(self, error: BaseException) -> None:
        self._box.put((None, error))

    def wait(self, timeout: float | None) -> Any:
        try:
            value, error = self._box.get(timeout=timeout)
        except queue.Empty:
            raise NoAnswerYet from None
        if error is not None:
            raise error
        return value


class AwaitableReply:
    """For a task under asyncio or trio. One that was cancelled meanwhile, or whose loop has ended, misses nothing."""

    __slots__ = ("_bell", "_error", "_value", "answered", "wake")

    def __init__(self) -> None:
        self._value: Any = None
        self._error: BaseException | None = None
        self._bell = _bell_here()
        self.answered = False  #: written in the loop alone, as is `wake`
        self.wake: Callable[[], object] | None = None  #: of who waits, if anybody does

    def answer(self, value: Any) -> None:
        self._value = value
        self._bell.ring(self)

    def refuse(self, error: BaseException) -> None:
        self._error = error
        self._bell.ring(self)

    async def wait(self, timeout: float) -> Any:
        if not self.answered:
            await self._bell.wait(self, timeout)
        if not self.answered:
            raise NoAnswerYet
        if self._error is not None:
            raise self._error
        return self._value


class _Bell(abc.ABC):
    """Tells an event loop, from other threads, which replies have been answered. Waking a loop costs ten times what
    waking a task in it does, so that one waking serves all that is answered before the loop gets to it."""

    __slots__ = ("_due", "_ended", "_rung", "_schedule", "loop")

    def __init__(
        self, loop: Any, schedule: Callable[[Callable[[], object]], object], ended: type[BaseException]
    ) -> None:
        self.loop, self._schedule, self._ended = loop, schedule, ended
        self._due: deque[AwaitableReply] = deque()
        self._rung = False

    def ring(self, reply: AwaitableReply) -> None:
        self._due.append(reply)
        if not self._rung:
            self._rung = True
            try:
                self._schedule(self._wake)
            except self._ended:  # nobody waits any more
                self._rung = False
                self._due.clear()

    @abc.abstractmethod
    async def wait(self, reply: AwaitableReply, timeout: float) -> None:
        """Until it is answered, at most so many seconds."""

    def _wake(self) -> None:
        self._rung = False  # before anything is taken: what is added from now on rings anew
        while self._due:
            reply = self._due.popleft()
            reply.answered = True
            if reply.wake is not None:
                reply.wake()


class _AsyncioBell(_Bell):
    """Waits by a bare future: events and cancel scopes that fit every loop would cost more than the call itself."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop, loop.call_soon_threadsafe, RuntimeError)

    async def wait(self, reply: AwaitableReply, timeout: float) -> None:
        woken = self.loop.create_future()

        def wake() -> None:
            if not woken.done():  # else the task is being cancelled
                woken.set_result(None)

        reply.wake = wake
        timer = self.loop.call_later(timeout, wake)
        try:
            await woken
        finally:
            timer.cancel()
            reply.wake = None


class _TrioBell(_Bell):
    def __init__(self, trio: Any, token: Any) -> None:
        super().__init__(token, token.run_sync_soon, trio.RunFinishedError)

    async def wait(self, reply: AwaitableReply, timeout: float) -> None:
        trio = sys.modules["trio"]
        answered = trio.Event()
        reply.wake = answered.set
        with trio.move_on_after(timeout):
            await answered.wait()
        reply.wake = None


_bells = threading.local()


def _bell_here() -> _Bell:
    """The bell of the event loop that runs in this thread."""
    trio: Any = sys.modules.get("trio")  # not there: then this can't be a trio task
    token = trio.lowlevel.current_trio_token() if trio is not None and trio.lowlevel.in_trio_task() else None
    loop = asyncio.get_running_loop() if token is None else token
    bell: _Bell | None = getattr(_bells, "here", None)
    if bell is None or bell.loop is not loop:
        bell = _bells.here = _AsyncioBell(loop) if token is None else _TrioBell(trio, token)
    return bell
