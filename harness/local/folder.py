"""A session's files, outside its worktree: what it is told, and what it leaves to say.

| file           | written by   | what it is                                                   |
| -------------- | ------------ | ------------------------------------------------------------ |
| `task`         | the host     | the task in words, with the checkpoint of the attempt before |
| `inbox`        | the host     | steering messages, one JSON object a line, appended          |
| `checkpoint`   | the agent    | what the next attempt should know                            |
| `pull_request` | the agent    | the address of a pull request that now waits for review      |
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
import threading
from collections.abc import Mapping
from pathlib import Path

import attrs

from harness.local.errors import NoSessionError
from harness.local.outcome import CHECKPOINT_LIMIT, last_url, readable
from harness.session import Assignment

REVIEW_LIMIT = 256 * 1024  #: of the file that has a pull request's address: what a program that made it has to say


@attrs.frozen
class SessionFolder:
    """The files of one session."""

    path: Path

    def make(self, assignment: Assignment, addition: str) -> None:
        """Makes it anew, with the task; `addition` is what the host knows about the attempt before beyond the task."""
        self.remove()
        self.path.mkdir(parents=True)
        parts = (assignment.title, assignment.task, addition)
        text = "\n\n".join(part.strip("\n") for part in parts if part.strip())
        (self.path / "task").write_text(text + "\n", encoding="utf-8", errors="replace")
        (self.path / "inbox").touch()

    def remove(self) -> None:
        """It is gone, with all that is in it."""
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self.path)

    def checkpoint(self) -> str:
        """What the agent left for the next attempt; empty if nothing."""
        return readable(read_start(self.path / "checkpoint", CHECKPOINT_LIMIT))

    def pull_request_url(self) -> str:
        """The address the agent left, which may be the last of several lines; empty if there is none."""
        return last_url(read_start(self.path / "pull_request", REVIEW_LIMIT).decode("utf-8", errors="replace"))

    def asks_for_review(self) -> bool:
        """Whether the agent left anything where a pull request's address goes: then its work is not to be merged."""
        try:
            status = (self.path / "pull_request").lstat()
        except FileNotFoundError:
            return False
        return status.st_size > 0 or not stat.S_ISREG(status.st_mode)

    def environment(self, assignment: Assignment, branch: str, token: str) -> Mapping[str, str]:
        """The variables of the child's contract (docs/agents.md)."""
        return {
            "DISPATCH_SESSION": token,
            "DISPATCH_SLICE": assignment.slice_id,
            "DISPATCH_ATTEMPT": str(assignment.attempt),
            "DISPATCH_TITLE": assignment.title,
            "DISPATCH_BRANCH": branch,
            "DISPATCH_DIR": str(self.path),
            "DISPATCH_TASK": str(self.path / "task"),
            "DISPATCH_INBOX": str(self.path / "inbox"),
            "DISPATCH_CHECKPOINT": str(self.path / "checkpoint"),
        }


class Inbox:
    """Steering messages on their way to an agent. Safe to use from many threads."""

    def __init__(self, assignment_id: str) -> None:
        self._assignment_id = assignment_id
        self._mutex = threading.Lock()
        self._path: Path | None = None
        self.turns = 0  #: begun so far; the task itself is the first

    def open(self, path: Path) -> None:
        """The agent runs and will read `path`."""
        with self._mutex:
            self._path, self.turns = path, 1

    def close(self) -> None:
        """The agent runs no more: a message would reach nobody."""
        with self._mutex:
            self._path = None

    def append(self, message: str) -> int:
        """Writes the message down for the agent, on the disk when it returns; answers which turn takes it.

        Raises `NoSessionError` if no agent runs.
        """
        with self._mutex:
            if self._path is None:
                raise NoSessionError(self._assignment_id)
            line = json.dumps({"turn": f"turn-{self.turns + 1}", "message": message}) + "\n"
            descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                os.write(descriptor, line.encode())
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            self.turns += 1
            return self.turns


def read_start(path: Path, limit: int) -> bytes:
    """The first `limit` bytes of a regular file; nothing if there is none. An agent may put anything there."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(descriptor, limit) if stat.S_ISREG(os.fstat(descriptor).st_mode) else b""
    finally:
        os.close(descriptor)
