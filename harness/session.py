"""What passes between a scheduler and the host that runs its sessions.

Pure values and one port. A *session* is one attempt at a piece of work: it is submitted as an `Assignment`, may be sent
messages and asked to stop, and reports what became of it as `SessionState`s. Nothing here knows a graph.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from typing import Protocol, runtime_checkable

import attrs


class SessionPhase(enum.Enum):
    """Where a session stands. Every phase but `RUNNING` ends it."""

    RUNNING = "running"  #: at work
    MERGED = "merged"  #: its work is on main
    CLOSED = "closed"  #: it ended without merging: try again, or wait for its pull request
    FAILED = "failed"  #: it ended in a way that another attempt would not mend
    CANCELED = "canceled"  #: it stopped because it was asked to


@attrs.frozen
class Recipe:
    """How a session does its work.

    `command` is the argument vector of the agent (never a shell string); `prompt` the task in words, handed to the
    command as a file. `kind` groups recipes whose durations resemble one another; weights are learned by kind.
    `verify` is run on the merged tree before main moves. After `max_attempts` closes without a merge the work has
    failed. `grace_s`: seconds between SIGTERM and SIGKILL. `quiet_limit_s`: an attempt that writes nothing for so long
    is ended as closed; 0 sets no limit. `env` is added to the child's environment.
    """

    command: tuple[str, ...] = ()
    prompt: str = ""
    kind: str = ""
    verify: tuple[str, ...] = ()
    max_attempts: int = 3
    grace_s: float = 10.0
    quiet_limit_s: float = 3600.0
    env: tuple[tuple[str, str], ...] = ()


@attrs.frozen
class Assignment:
    """One attempt, as handed to a host.

    `assignment_id` is `<slice id>@<attempt>`. `graph_id` is the random identity a graph got when it was made: two
    graphs that use the same slice ids in one repository are told apart by it. `checkpoint` is what the previous attempt
    left behind, already part of `task`; `attempt` counts from 1.
    """

    assignment_id: str
    slice_id: str
    attempt: int
    recipe: Recipe
    title: str
    task: str
    checkpoint: str
    branch: str
    graph_id: str


@attrs.frozen
class SessionState:
    """A report. `turns` counts the turns begun; `error` and `detail` are one line each, printable.

    `detail` says what happened in words (a conflict, a failed verify); a host that wants the next attempt to go on
    where this one stopped puts the text into `checkpoint`.
    """

    assignment_id: str
    phase: SessionPhase
    turns: int = 0
    branch: str = ""
    pull_request_url: str = ""
    error: str = ""
    detail: str = ""
    checkpoint: str = ""


class HostClosedError(Exception):
    """The host was closed and opens no more sessions. One that is submitted to it counts as under way all the same: as
    those that were ended by the closing, it is for the next host of its scheduler to go on with."""


class SessionHost(Protocol):
    """Runs sessions. Every method may be called again with the same arguments and must then do no harm.

    `submit` returns once the session is on its way, and raises if it can't be, which fails the slice, unless it is a
    `HostClosedError`; how it went comes back as reports.
    `send` delivers a message into a running session and returns the id of the turn that takes it. `cancel` asks the
    session to stop at its next safepoint and returns at once; the report that follows says that it did.
    """

    async def submit(self, assignment: Assignment) -> None: ...

    async def send(self, assignment_id: str, message: str) -> str: ...

    async def cancel(self, assignment_id: str) -> None: ...


@runtime_checkable
class PromptHost(Protocol):
    """A host that only passes an assignment on: to a thread, a queue, a process that is there already.

    `submit_nowait` is `submit` without an event loop. It is called in place of it, in the scheduler's own thread, which
    decides nothing meanwhile: it must return within microseconds, and wait for no disk, no network and no lock that is
    held for longer. It may report at once.
    """

    def submit_nowait(self, assignment: Assignment) -> None: ...


@runtime_checkable
class ReportingHost(Protocol):
    """A host that is told where to report instead of being wired up by its caller.

    `connect` is called once before the first `submit`, from the thread that starts the scheduler; `report` may be
    called from any thread and never blocks.
    """

    def connect(self, report: Callable[[SessionState], None]) -> None: ...


@runtime_checkable
class FencedHost(Protocol):
    """A host that asks, right before an effect that can't be taken back, whether it may still have it.

    `owned()` says whether the graph is certainly still its scheduler's; it is cheap, and may be called from any thread.
    While it says no, the host has to wait: either it will say yes again, or the session will be asked to stop. `fence`
    is called once before the first `submit`.
    """

    def fence(self, owned: Callable[[], bool]) -> None: ...


@runtime_checkable
class AdoptingHost(Protocol):
    """A host whose sessions outlive the scheduler: asked on start which of them still run."""

    async def adopt(self, assignment_ids: Iterable[str]) -> Iterable[str]: ...
