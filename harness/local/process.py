"""Children in process groups of their own, watched until nothing of them is left.

One daemon thread watches all of them: an event loop that waits on each child's output pipe and on its pidfd, a
coroutine a child. A child is started by the thread that asks for it, which is cheaper than to hand that over. It leads
a session, so that its pid is the number of its process group, too; it is reaped last of all, so that until then this
number can't become anybody else's. It ends in four steps: the leader exits; what it left behind is ended; the output is
drained, for a second at most, since an inherited pipe may stay open for ever; the leader is reaped, its exit reported.

Neither the thread nor the children keep the program from exiting. Children that outlive it are for `end_group`.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import errno
import functools
import logging
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable

import anyio

from harness.local.log import CappedLog
from harness.local.orphans import (
    OrphanError,
    ProcessMark,
    end_group,
    find_by_token,
    is_alive,
    mark_of,
    open_pidfd,
)
from harness.local.running import Child, Exit, Running
from harness.procfs import ProcessTable

__all__ = [
    "Child",
    "Exit",
    "OrphanError",
    "ProcessMark",
    "ProcessWatcher",
    "Running",
    "end_group",
    "find_by_token",
    "is_alive",
    "mark_of",
]

logger = logging.getLogger(__name__)

THREAD_NAME = "dispatch-processes"


class ProcessWatcher:
    """Starts children and watches them. Every method may be called from any thread, `on_exit` included."""

    def __init__(self, table: ProcessTable | None = None) -> None:
        self._table = table or ProcessTable()
        self._thread = threading.Thread(target=self._run, name=THREAD_NAME, daemon=True)
        self._ready = threading.Event()
        # Guards the next two: whether there is a loop to tell something. A signal handler may come back to it.
        self._lock = threading.RLock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._context = contextvars.Context()  # of the loop; a caller's own would name the caller's loop to anyio
        self._accepting = False
        # These belong to the thread.
        self._children: set[Running] = set()
        self._killing = False

    def start(self) -> None:
        """Raises `RuntimeError` the second time, and where SIGCHLD is ignored, since exits then can't be learned."""
        if signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN:
            raise RuntimeError("SIGCHLD is ignored, so exits can't be learned: set it to SIG_DFL before the start")
        self._thread.start()
        self._ready.wait()

    def stop(self, *, kill: bool = False) -> None:
        """Returns once the thread has ended; again, it does nothing.

        With `kill`, children under way are killed and their exits reported first. Without, they are left alone: nobody
        reads their output any more or reports their exit, and what `Running.stop` does to them ends with SIGTERM.
        """
        with self._lock:
            if self._accepting and self._loop is not None:
                self._loop.call_soon_threadsafe(self._begin_end, kill, context=self._context)
            self._accepting = False
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join()

    def spawn(self, child: Child, on_exit: Callable[[Exit], None]) -> Running:
        """Starts the child; `on_exit` is called once, from the watcher's thread, when nothing of it is left; be quick.

        Raises `OSError` if its log can't be opened or its command not be started (not found, not executable, no such
        folder, an argument that can't be passed), and `RuntimeError` if the watcher doesn't run.
        """
        if not self._accepting:
            raise RuntimeError("the process watcher isn't running: start() it, or after stop() another one")
        running = _started(child, self._tell)
        if not self._post(functools.partial(self._adopt, running, on_exit)):
            running.kill()
            os.waitpid(running.pid, 0)
            running.close(())
            raise RuntimeError("the process watcher was stopped while a child was being started")
        return running

    def later(self, delay_s: float, call: Callable[[], None]) -> None:
        """Calls it from the watcher's thread after so many seconds, or never, if the thread has ended by then."""

        def begin() -> None:
            asyncio.get_running_loop().call_later(delay_s, call, context=contextvars.Context())

        self._post(begin)

    def _run(self) -> None:
        try:
            anyio.run(self._serve)
        finally:
            self._retire()
            self._ready.set()

    async def _serve(self) -> None:
        async with anyio.create_task_group() as self._tasks:
            with self._lock:
                self._context = contextvars.copy_context()
                self._loop, self._accepting = asyncio.get_running_loop(), True
            self._ready.set()
            await anyio.sleep_forever()
        self._retire()

    def _retire(self) -> None:
        """From here on nothing is posted to a loop that won't look."""
        with self._lock:
            self._loop, self._accepting = None, False

    def _post(self, message: Callable[[], None]) -> bool:
        with self._lock:
            if self._loop is None:
                return False
            self._loop.call_soon_threadsafe(message, context=self._context)
            return True

    def _tell(self, message: Callable[[], None]) -> None:
        """Has it done in the thread, or with no thread left, here."""
        if not self._post(message):
            message()

    def _adopt(self, running: Running, on_exit: Callable[[Exit], None]) -> None:
        self._children.add(running)
        self._tasks.start_soon(self._attend, running, on_exit)
        if self._killing:
            running.begin_kill()

    def _begin_end(self, kill: bool) -> None:
        if not kill or not self._children:
            self._tasks.cancel_scope.cancel()
            return
        self._killing = True
        for running in self._children:
            running.begin_kill()

    async def _attend(self, running: Running, on_exit: Callable[[Exit], None]) -> None:
        try:
            survivors = await running.attend(self._table)
        except Exception:
            logger.exception("process %d can't be watched any more and is killed", running.pid)
            survivors = await running.give_up()
        exit_ = running.close(survivors)
        self._children.discard(running)
        try:
            on_exit(exit_)
        except Exception:
            logger.exception("nobody took the exit of process %d: %r", running.pid, exit_)
        if self._killing and not self._children:
            self._tasks.cancel_scope.cancel()


def _started(child: Child, tell: Callable[[Callable[[], None]], None]) -> Running:
    """The child, started, with nothing left open if it can't be."""
    with contextlib.ExitStack() as undo:
        log = CappedLog.open(child.log, child.log_limit_bytes)
        undo.callback(log.close)
        pipe, write_end = os.pipe2(os.O_CLOEXEC)
        undo.callback(os.close, pipe)
        os.set_blocking(pipe, False)
        started_at = time.monotonic()
        try:
            pid = _launch(child, write_end)
        finally:
            os.close(write_end)
        try:
            pidfd: int | None = open_pidfd(pid)
        except OSError:  # an old kernel, or one that is told to refuse: its exit is looked for now and then
            pidfd = None
        running = Running(child, mark_of(pid), started_at, tell, pipe, pidfd, log)
        undo.pop_all()
    return running


def _launch(child: Child, output: int) -> int:
    """The pid of the child, which leads a session of its own and writes both streams to `output`."""
    try:
        popen = subprocess.Popen(
            child.argv,
            cwd=child.cwd,
            env=child.env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    except ValueError as error:  # a NUL byte, or a character the file system's encoding has no bytes for
        raise OSError(errno.EINVAL, f"an argument can't be passed: {error}", child.argv[0]) from error
    popen.returncode = 0  # the watcher reaps; a Popen that knows no end would warn, and reap behind its back
    return popen.pid
