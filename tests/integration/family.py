"""Real children for the tests of processes: started, waited for, and looked for when they should be gone."""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Set
from pathlib import Path

import attrs

from harness import procfs
from harness.local.process import Child, Exit, ProcessWatcher, Running

LIMIT_S = 60.0  #: for what takes milliseconds on a machine that isn't overloaded


class Ended:
    """The exit of one child, once it is reported; more than one report is remembered, too."""

    def __init__(self) -> None:
        self.exits: list[Exit] = []
        self._reported = threading.Event()

    def __call__(self, exit_: Exit) -> None:
        self.exits.append(exit_)
        self._reported.set()

    def wait(self) -> Exit:
        assert self._reported.wait(LIMIT_S), "no exit was reported"
        return self.exits[0]


class Lines:
    """What a child said, line by line; tests wait for one that tells how far it is."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._changed = threading.Condition()

    def __call__(self, line: str) -> None:
        with self._changed:
            self.lines.append(line)
            self._changed.notify_all()

    def wait(self, line: str) -> None:
        with self._changed:
            said = self._changed.wait_for(lambda: line in self.lines, LIMIT_S)
        assert said, f"{line!r} was not said, only {self.lines}"


@attrs.define
class Family:
    """Starts children, each with a token of its own."""

    watcher: ProcessWatcher
    folder: Path
    tokens: list[str] = attrs.field(factory=list)

    @property
    def log(self) -> Path:
        return self.folder / "log"

    def child(self, *argv: str, **fields: object) -> Child:
        self.tokens.append(f"test-{uuid.uuid4().hex}")
        env = {**os.environ, "DISPATCH_SESSION": self.tokens[-1]}
        given: Mapping[str, object] = {"cwd": self.folder, "env": env, "log": self.log, **fields}
        return Child(argv, **given)  # type: ignore[arg-type]

    def run(self, *argv: str, **fields: object) -> Exit:
        """To its end."""
        ended = Ended()
        self.watcher.spawn(self.child(*argv, **fields), ended)
        return ended.wait()

    def start(self, *argv: str, **fields: object) -> tuple[Running, Ended, Lines]:
        """Under way, and listened to."""
        ended, lines = Ended(), Lines()
        return self.watcher.spawn(self.child(*argv, on_line=lines, **fields), ended), ended, lines

    def left(self) -> list[int]:
        """The pids of those that still run."""
        tokens = {f"DISPATCH_SESSION={token}".encode() for token in self.tokens}
        return [pid for pid in procfs.pids() if is_alive_with(pid, tokens)]


def is_alive_with(pid: int, variables: Set[bytes]) -> bool:
    """Whether it runs and was started with one of these in its environment."""
    stat = procfs.stat_of(pid)
    return stat is not None and not stat.ended and not variables.isdisjoint(procfs.environ_of(pid))


def eventually(condition: Callable[[], bool], what: str) -> None:
    """Waits for something in another process that tells nobody."""
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, f"not in time: {what}"
        time.sleep(0.01)
