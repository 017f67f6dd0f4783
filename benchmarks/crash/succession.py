"""A graph is taken over from a run that can't help it: one that is suspended, or that is cut off from its store."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from typing import Protocol

from benchmarks.crash.evidence import Takeover
from benchmarks.crash.fates import Fate, Means
from benchmarks.crash.faults import silence, suspended
from benchmarks.crash.stores import CLAIM_S, Kept, PostgresKept

#: What a run says whose store is out of reach when all is done, with what it could not write before.
OUT_OF_REACH = re.compile(r"(stopped before what had changed was written: .*\n)?error: .*(lost|out of reach).*\n")
HEIR_S = 20.0  #: within so many seconds an heir has claimed, unless it can't
NOTICED_S = 10.0  #: within so many seconds a server knows that a client was killed


class Runs(Protocol):
    """What is needed of a round. `said` is what a run has written to stderr."""

    limit_s: float
    patience_s: float

    def start(self, name: str, *more: str, direct: bool = False) -> subprocess.Popen[bytes]: ...

    def wait_for_agent(self, pid: int, pidfd: int, offset: int, limit_s: float) -> None: ...

    def alive(self) -> list[str]: ...

    def said(self, name: str) -> str: ...


class Succession:
    """Of one run; `problems` are what it and its heir did wrong."""

    def __init__(self, runs: Runs, kept: Kept, run: int, process: subprocess.Popen[bytes]) -> None:
        self._runs, self._kept, self._run, self._process = runs, kept, run, process
        self._heir: subprocess.Popen[bytes] | None = None
        self.problems: list[str] = []

    def happen(self, fate: Fate, offset: int) -> Takeover | None:
        """The heir is killed a while after its first agent began; and after the run that it succeeds has ended, unless
        that is to wake up `alone`. None if nothing was taken over: that one had come to its end already, and was about
        to exit; or it was suspended with a lock, for which its heir waits before it claims."""
        alone = fate.moment == "alone"
        with self._out_of_the_way(fate.means):
            idle, epoch = not self._runs.alive(), self._kept.epoch()
            if fate.way == "expired" and not self._kept.expire():
                return None
            self._heir = self._start_heir(fate)
            if fate.moment != "early":
                if not self._claims(epoch) and (alone or fate.way != "told"):
                    self._end_heir(1, blocked=True)
                    return None
                self._await_heir(offset, self._runs.patience_s)  # the other may hold what its sessions wait for
            if alone:
                self._end_heir(1)
            before = self._kept.dump() if alone else None
            refusals = self._refusals()
        code = self._process.wait(self._runs.limit_s)
        if not alone:
            self._await_heir(offset, self._runs.limit_s)
        self._end_heir(0)
        changed = alone and self._kept.dump() != before
        through = idle or fate.moment == "early"  # it may have been, by the time that its heir claimed
        return self._judged(code, through, changed, refusals)

    def _out_of_the_way(self, means: Means) -> contextlib.AbstractContextManager[None]:
        if means is Means.SUSPENDED:
            return suspended(self._process)
        assert isinstance(self._kept, PostgresKept), "a file can't be cut off"
        return silence(self._kept)

    def _start_heir(self, fate: Fate) -> subprocess.Popen[bytes]:
        if fate.way == "waited":
            time.sleep(CLAIM_S + 0.5)
        told = ("--take-over",) if fate.way == "told" else ()
        return self._runs.start(f"{self._run}-heir", *told, direct=True)

    def _claims(self, epoch: int) -> bool:
        """Whether the heir follows that epoch within its time. It tells nobody when it does."""
        assert self._heir is not None
        end = time.monotonic() + HEIR_S
        while self._heir.poll() is None and time.monotonic() < end:
            if self._kept.epoch() > epoch:
                return True
            time.sleep(0.05)
        return self._kept.epoch() > epoch

    def _await_heir(self, offset: int, limit_s: float) -> None:
        assert self._heir is not None
        pidfd = os.pidfd_open(self._heir.pid)
        try:
            self._runs.wait_for_agent(self._heir.pid, pidfd, offset, limit_s)
        finally:
            os.close(pidfd)

    def _end_heir(self, others: int, *, blocked: bool = False) -> None:
        """Killed, and no connection of it is left: only so many of others."""
        assert self._heir is not None
        self._heir.kill()
        code = self._heir.wait()
        said = self._runs.said(f"{self._run}-heir")
        if code not in (0, 1, -signal.SIGKILL) and not (blocked and said.startswith("error: ")):
            self.problems.append(f"the heir of run {self._run} ended with {code} and said {said[-2000:]!r}")
        end = time.monotonic() + NOTICED_S
        while isinstance(self._kept, PostgresKept) and self._kept.connected() > others and time.monotonic() < end:
            time.sleep(0.01)  # the server tells nobody

    def _refusals(self) -> int:
        return self._kept.refusals() if isinstance(self._kept, PostgresKept) else 0

    def _judged(self, code: int, through: bool, changed: bool, refusals: int) -> Takeover | None:
        said = self._runs.said(str(self._run))
        last = (said.splitlines() or [""])[-1]
        told = last.startswith("error: ") and "taken over by another process" in last
        if through and code in (0, 1) and not said:
            return None
        if code == 2 and OUT_OF_REACH.fullmatch(said):  # it came to its end while it was cut off
            return None
        if code != 2 or not told or "Traceback" in said:
            self.problems.append(f"run {self._run}, which was taken over, ended with {code} and said {said!r}")
        refused = self._refusals() - refusals if isinstance(self._kept, PostgresKept) else int(told)
        return Takeover(self._run, refused, changed)
