"""Where an answer goes: to a thread that waits, or to a task of an event loop that does."""

from __future__ import annotations

import asyncio
import queue
import sys
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

    __slots__ = ("_call_soon", "_done", "_error", "_value")

    def __init__(self) -> None:
        self._done = anyio.Event()
        self._value: Any = None
        self._error: BaseException | None = None
        self._call_soon = _call_soon()

    def answer(self, value: Any) -> None:
        self._value = value
        self._call_soon(self._done.set)

    def refuse(self, error: BaseException) -> None:
        self._error = error
        self._call_soon(self._done.set)

    async def wait(self, timeout: float | None) -> Any:
        if not self._done.is_set():
            with anyio.move_on_after(timeout):
                await self._done.wait()
        if not self._done.is_set():
            raise NoAnswerYet
        if self._error is not None:
            raise self._error
        return self._value


def _call_soon() -> Callable[[Callable[[], object]], None]:
    """How another thread gets a call run in the current event loop; dropped if that loop has ended."""
    trio = sys.modules.get("trio")  # not there: then this can't be a trio task
    if trio is not None and trio.lowlevel.in_trio_task():
        token = trio.lowlevel.current_trio_token()
        return _unless(trio.RunFinishedError, token.run_sync_soon)
    return _unless(RuntimeError, asyncio.get_running_loop().call_soon_threadsafe)


def _unless(
    ended: type[BaseException], schedule: Callable[[Callable[[], object]], object]
) -> Callable[[Callable[[], object]], None]:
    def call(function: Callable[[], object]) -> None:
        try:
            schedule(function)
        except ended:
            return  # nobody waits any more

    return call
