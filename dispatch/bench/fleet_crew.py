"""The processes that work turns off in a measurement, seen by whoever measures."""

from __future__ import annotations

import os
import selectors
import subprocess
import sys
import time
from types import TracebackType
from typing import Self

import attrs

from dispatch.bench.fleet_member import READY

LIMIT_S = 120.0  #: for what is waited for
LEAVE_S = 30.0  #: for a process to end when it is told to


@attrs.frozen
class Done:
    """So many turns, which were done at `at`. `started_at`: when the first began that did since the last `Done` of the
    same process; `at`, if none did."""

    count: int
    started_at: float
    at: float


class Crew:
    """`size` processes that run `work` (see `fleet_member`), from entering to leaving."""

    def __init__(self, work: str, place: str, batch: int, size: int) -> None:
        self._command = [sys.executable, "-m", "dispatch.bench.fleet_member", work, place, str(batch)]
        self._size = size
        self._processes: list[subprocess.Popen[bytes]] = []
        self._selector = selectors.DefaultSelector()
        self._halves: dict[int, bytes] = {}  # of lines, by descriptor
        self._told: list[str] = []  # by those who were ready before the others

    def __enter__(self) -> Self:
        """Returns when all are ready."""
        try:
            for _ in range(self._size):
                process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
                self._processes.append(process)
                assert process.stdout is not None
                self._selector.register(process.stdout, selectors.EVENT_READ)
            ready = 0
            deadline = time.monotonic() + LIMIT_S
            while ready < self._size:
                lines = self._lines(deadline)
                ready += lines.count(READY)
                self._told += [line for line in lines if line != READY]
        except BaseException:
            self._kill()
            raise
        return self

    def wait_for(self, count: int) -> list[Done]:
        """What has been told until so many turns were done, in the order of time. Raises `TimeoutError`."""
        found: list[Done] = []
        deadline = time.monotonic() + LIMIT_S
        while count > 0:
            lines, self._told = self._told or self._lines(deadline), []
            for line in lines:
                done, started_at, at = line.split()
                found.append(Done(int(done), float(started_at), float(at)))
                count -= int(done)
        assert count == 0, "a turn was done that was not asked for, or twice"
        return sorted(found, key=lambda done: done.at)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.close()
        try:
            for process in self._processes:
                process.wait(LEAVE_S)
        finally:
            self._kill()

    def _lines(self, deadline: float) -> list[str]:
        ready = self._selector.select(max(0.0, deadline - time.monotonic()))
        if not ready:
            raise TimeoutError(f"{' '.join(self._command)}: nothing more was done for {LIMIT_S:.0f} seconds")
        lines: list[str] = []
        for key, _ in ready:
            told = os.read(key.fd, 65536)
            if not told:
                raise ChildProcessError(f"{' '.join(self._command[2:4])} has ended before its time; see what it wrote")
            *whole, half = (self._halves.pop(key.fd, b"") + told).split(b"\n")
            self._halves[key.fd] = half
            lines += [line.decode() for line in whole]
        return lines

    def _kill(self) -> None:
        """Those that are left, and what there is of the others."""
        for process in self._processes:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                assert pipe is not None
                pipe.close()
        self._selector.close()
