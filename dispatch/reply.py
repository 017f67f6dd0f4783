"""Where an answer goes: to a thread that waits, or to a task of an event loop that does."""

from __future__ import annotations

import asyncio
import queue
import sys
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

import anyio


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

    __slots__ = ("_bell", "_done", "_error", "_value")

    def __init__(self) -> None:
        self._done = anyio.Event()
        self._value: Any = None
        self._error: BaseException | None = None
        self._bell = _bell_here()

    def answer(self, value: Any) -> None:
        self._value = value
        self._bell.ring(self._done)

    def refuse(self, error: BaseException) -> None:
        self._error = error
        self._bell.ring(self._done)

    async def wait(self, timeout: float | None) -> Any:
        if not self._done.is_set():
            with anyio.move_on_after(timeout):
                await self._done.wait()
        if not self._done.is_set():
            raise NoAnswerYet
        if self._error is not None:
            raise self._error
        return self._value


class _Bell:
    """Sets events of one event loop, from other threads. Waking a loop costs ten times what setting an event does, so
    that one waking serves all that is set before the loop gets to it."""

    __slots__ = ("_due", "_ended", "_rung", "_schedule", "loop")

    def __init__(
        self, loop: object, schedule: Callable[[Callable[[], object]], object], ended: type[BaseException]
    ) -> None:
        self.loop, self._schedule, self._ended = loop, schedule, ended
        self._due: deque[anyio.Event] = deque()
        self._rung = False

    def ring(self, event: anyio.Event) -> None:
        self._due.append(event)
        if not self._rung:
            self._rung = True
            try:
                self._schedule(self._set)
            except self._ended:  # nobody waits any more
                self._rung = False
                self._due.clear()

    def _set(self) -> None:
        self._rung = False  # before anything is taken: what is added from now on rings anew
        while self._due:
            self._due.popleft().set()


_bells = threading.local()


def _bell_here() -> _Bell:
    """The bell of the event loop that runs in this thread."""
    trio = sys.modules.get("trio")  # not there: then this can't be a trio task
    in_trio = trio is not None and trio.lowlevel.in_trio_task()
    loop: Any = trio.lowlevel.current_trio_token() if trio is not None and in_trio else asyncio.get_running_loop()
    bell: _Bell | None = getattr(_bells, "here", None)
    if bell is not None and bell.loop is loop:
        return bell
    if trio is not None and in_trio:
        _bells.here = _Bell(loop, loop.run_sync_soon, trio.RunFinishedError)
    else:
        _bells.here = _Bell(loop, loop.call_soon_threadsafe, RuntimeError)
    here: _Bell = _bells.here
    return here
