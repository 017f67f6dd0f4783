"""One child under way: what it was told to do, how it is doing, how it ended."""

from __future__ import annotations

import functools
import logging
import math
import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import anyio
import attrs

from harness import procfs
from harness.local.log import CappedLog, LastLine
from harness.local.orphans import (
    KILL_LIMIT_S,
    LOOK_AGAIN_S,
    TOKEN_VARIABLE,
    Ending,
    OrphanError,
    ProcessMark,
    is_alive,
    pidfd_of,
)
from harness.procfs import ProcessTable

logger = logging.getLogger(__name__)

LOG_LIMIT_BYTES = 64 * 1024 * 1024
READ_SIZE = 64 * 1024  #: what a pipe holds
READS_A_TURN = 16  #: then the other children have theirs
DRAIN_LIMIT_S = 1.0
LEFTOVER_GRACE_S = 2.0  #: for what is left behind by a child that ended by itself


def _argument_vector(_: object, __: object, argv: tuple[str, ...]) -> None:
    if not argv:
        raise ValueError("argv is empty: there is no command to run")


@attrs.frozen
class Child:
    """What to run, and where its output goes.

    `env` is the whole environment; the value of `DISPATCH_SESSION` in it is the token by which escaped processes are
    found, so that no other child that runs meanwhile may have the same. Both output streams are appended to `log`; see
    `CappedLog` for what becomes of more than `log_limit_bytes`. A child that writes nothing for `quiet_limit_s` seconds
    is ended, with `quiet_grace_s` between SIGTERM and SIGKILL; 0 sets no limit. `on_line` gets the last complete line
    of each piece of output, sanitised and cut; it is called from the watcher's thread and must be cheap.
    """

    argv: tuple[str, ...] = attrs.field(validator=_argument_vector)
    cwd: Path
    env: Mapping[str, str] = attrs.field(repr=False)
    log: Path
    log_limit_bytes: int = LOG_LIMIT_BYTES
    quiet_limit_s: float = 0.0
    quiet_grace_s: float = 10.0
    on_line: Callable[[str], None] | None = None


@attrs.frozen
class Exit:
    """How a child ended: with `code` or by `signal`; both are None if that can't be learned.

    `stopped`: it still ran when it was asked to stop. `quiet`: the quiet limit ended it. `killed`: it, or something it
    had started, took SIGKILL to end. `survivors` are the pids that even that didn't end; nothing is left if there are
    none. `ran_s` goes to the exit of the child itself.
    """

    code: int | None
    signal: int | None
    stopped: bool
    quiet: bool
    killed: bool
    output_bytes: int
    dropped_bytes: int
    last_line: str
    ran_s: float
    survivors: tuple[int, ...] = ()


@attrs.define(eq=False, repr=False)
class Running:
    """A child under way. What it tells may be read, and `stop` and `kill` called, from any thread and at any time.

    `last_output_at` is in seconds of the monotonic clock; until there is output, it is when the child was started.
    Everything private belongs to the thread of the watcher, which runs `attend`.
    """

    child: Child
    mark: ProcessMark
    started_at: float
    last_output_at: float = attrs.field(init=False)
    output_bytes: int = attrs.field(default=0, init=False)
    _tell: Callable[[Callable[[], None]], None]
    _pipe: int
    _pidfd: int | None
    _log: CappedLog
    _line: LastLine = attrs.field(factory=LastLine, init=False)
    _on_line: Callable[[str], None] | None = attrs.field(init=False)
    _scope: anyio.CancelScope | None = attrs.field(default=None, init=False)
    _ending: Ending | None = attrs.field(default=None, init=False)
    _kill_at: float = attrs.field(default=math.inf, init=False)
    _exited_at: float | None = attrs.field(default=None, init=False)
    _asked: bool = attrs.field(default=False, init=False)
    _stopped: bool = attrs.field(default=False, init=False)
    _quiet: bool = attrs.field(default=False, init=False)
    _killed: bool = attrs.field(default=False, init=False)
    _closed: bool = attrs.field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        self.last_output_at = self.started_at
        self._on_line = self.child.on_line

    @property
    def pid(self) -> int:
        """The leader's, and so the number of its process group and session."""
        return self.mark.pid

    @property
    def last_line(self) -> str:
        """The last complete line so far that isn't blank, sanitised and cut."""
        return self._line.text

    def stop(self, grace_s: float) -> None:
        """SIGTERM to the group, and `grace_s` seconds later SIGKILL. Again, it can only shorten the time left."""
        self._tell(functools.partial(self.begin_stop, grace_s))

    def kill(self) -> None:
        """SIGKILL to the group."""
        self._tell(self.begin_kill)

    def begin_stop(self, grace_s: float) -> None:
        """What `stop` asks for, in the watcher's thread."""
        self._stopped |= self._lives()
        if not self._asked:
            self._ask()
        self._hasten(time.monotonic() + max(0.0, grace_s))

    def begin_kill(self) -> None:
        """What `kill` asks for, in the watcher's thread."""
        self._stopped |= self._lives()
        self._asked = True
        self._kill()
        self._hasten(time.monotonic())

    async def attend(self, table: ProcessTable) -> tuple[int, ...]:
        """Returns once the child has exited and nothing of it is left, with the pids of what could not be ended.

        To be followed by `close`, also if it raises.
        """
        drained = anyio.Event()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._read_output, drained)
            await self._until_exit()
            self._exited_at = time.monotonic()
            survivors = await self._end_the_rest(table)
            with anyio.move_on_after(DRAIN_LIMIT_S):
                await drained.wait()
            tasks.cancel_scope.cancel()
        return survivors

    async def give_up(self) -> tuple[int, ...]:
        """Kills the group without looking for what escaped from it; for when `attend` has failed."""
        self.begin_kill()
        with anyio.move_on_after(KILL_LIMIT_S):
            await self._exit_of_leader()
            return ()
        return (self.pid,)

    def close(self, survivors: tuple[int, ...]) -> Exit:
        """Reaps the child, unless it survived, and closes what was open for it."""
        self._closed = True
        code, number = _reap(self.pid)
        self._line.finish()
        self._log.close()
        os.close(self._pipe)
        if self._pidfd is not None:
            os.close(self._pidfd)
        return Exit(
            code=code,
            signal=number,
            stopped=self._stopped,
            quiet=self._quiet,
            killed=self._killed or (self._ending is not None and self._ending.killed),
            output_bytes=self.output_bytes,
            dropped_bytes=self._log.dropped_bytes,
            last_line=self._line.text,
            ran_s=(self._exited_at or time.monotonic()) - self.started_at,
            survivors=survivors,
        )

    async def _read_output(self, drained: anyio.Event) -> None:
        while True:
            await anyio.wait_readable(self._pipe)
            for _ in range(READS_A_TURN):
                try:
                    chunk = os.read(self._pipe, READ_SIZE)
                except BlockingIOError:
                    break
                if not chunk:
                    drained.set()
                    return
                self._take(chunk)

    def _take(self, chunk: bytes) -> None:
        self.output_bytes += len(chunk)
        self.last_output_at = time.monotonic()
        self._log.write(chunk)
        if self._line.feed(chunk) and self._on_line is not None:
            try:
                self._on_line(self._line.text)
            except Exception:
                logger.exception("process %d: its lines are shown no more", self.pid)
                self._on_line = None

    async def _until_exit(self) -> None:
        """Until the leader has exited, or its group had to be sent SIGKILL."""
        while True:
            with anyio.CancelScope(deadline=self._next_deadline()) as self._scope:
                await self._exit_of_leader()
                return
            if time.monotonic() >= self._kill_at:
                self._kill()
                return
            if not self._asked and self._lives() and time.monotonic() >= self._next_deadline():
                self._quiet = True
                self._ask()
                self._hasten(time.monotonic() + self.child.quiet_grace_s)

    def _next_deadline(self) -> float:
        if self._asked or self.child.quiet_limit_s <= 0:
            return self._kill_at
        return self.last_output_at + self.child.quiet_limit_s

    async def _exit_of_leader(self) -> None:
        if self._pidfd is not None:
            await anyio.wait_readable(self._pidfd)
            return
        while is_alive(self.mark):
            await anyio.sleep(LOOK_AGAIN_S)

    async def _end_the_rest(self, table: ProcessTable) -> tuple[int, ...]:
        """Ends what is left of the group, and what escaped from it; a grace that was given holds for these, too."""
        kill_at = self._kill_at if self._asked else time.monotonic() + LEFTOVER_GRACE_S
        token = self.child.env.get(TOKEN_VARIABLE, "")
        self._ending = Ending(self.mark, token, kill_at, table, group_told=self._asked)
        try:
            while members := self._ending.round(time.monotonic()):
                with anyio.CancelScope(deadline=self._ending.wait_until) as self._scope:
                    await _gone(members)
        except OrphanError as error:
            return error.pids
        return ()

    def _lives(self) -> bool:
        return self._exited_at is None and is_alive(self.mark)

    def _ask(self) -> None:
        self._asked = True
        self._signal(signal.SIGTERM)
        self._signal(signal.SIGCONT)  # one that was suspended could not hear the other

    def _kill(self) -> None:
        self._killed |= self._lives() or self._left_behind()
        self._signal(signal.SIGKILL)

    def _left_behind(self) -> bool:
        """Whether anything of the group still runs, its leader or not."""
        stats = map(procfs.stat_of, procfs.pids())
        return any(stat is not None and stat.group == self.pid and not stat.ended for stat in stats)

    def _signal(self, number: signal.Signals) -> None:
        """To the group, whose number is ours until the leader is reaped. What isn't reached will be seen to survive."""
        if self._closed:
            return
        try:
            os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):
            return

    def _hasten(self, kill_at: float) -> None:
        self._kill_at = min(self._kill_at, kill_at)
        if self._ending is not None:
            self._ending.kill_at = min(self._ending.kill_at, kill_at)
        if self._scope is not None:
            self._scope.deadline = min(self._scope.deadline, kill_at)


async def _gone(members: Iterable[ProcessMark]) -> None:
    """Returns once all have ended."""
    for member in members:
        try:
            descriptor = pidfd_of(member)
        except ProcessLookupError:
            continue
        except OSError:
            while is_alive(member):
                await anyio.sleep(LOOK_AGAIN_S)
            continue
        try:
            await anyio.wait_readable(descriptor)
        finally:
            os.close(descriptor)


def _reap(pid: int) -> tuple[int | None, int | None]:
    """Exit code or signal; neither if it still runs, or somebody else in this program has reaped it."""
    try:
        reaped, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return None, None
    if not reaped:
        return None, None
    code = os.waitstatus_to_exitcode(status)
    return (code, None) if code >= 0 else (None, -code)
