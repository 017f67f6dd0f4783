"""The process table, as Linux tells it in `/proc`.

Every function takes the root of the file system, so that a recorded tree can stand in for the machine. A process that
ends while it is being read is no error: it is not there any more.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import attrs

ROOT = Path("/")
READ_SIZE = 1 << 16
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
# EACCES and EPERM: another user's, and none of ours. ESRCH: it ended between open and read.
GONE = (FileNotFoundError, NotADirectoryError, PermissionError, ProcessLookupError)


@attrs.frozen
class ProcessStat:
    """One line of `/proc/<pid>/stat`. `start_ticks` counts clock ticks from boot.

    `cpu_ticks` is the processor time, user and system, of the process and of the children it has waited for;
    `waited_ticks` is the part of those children.
    """

    pid: int
    state: str
    parent: int
    group: int
    session: int
    threads: int
    start_ticks: int
    cpu_ticks: int
    waited_ticks: int

    @property
    def ended(self) -> bool:
        """A zombie: nothing of it runs, only its parent hasn't asked yet how it ended.

        A process whose first thread has ended looks like one, but for the threads it still counts.
        """
        return self.state in ("Z", "X", "x") and self.threads <= 1


def parse_stat(line: bytes) -> ProcessStat:
    """The fields as proc(5) numbers them. The name, in parentheses, may itself hold blanks and parentheses."""
    fields = line[line.rindex(b")") + 2 :].split()
    return ProcessStat(
        pid=int(line[: line.index(b" ")]),
        state=fields[0].decode("ascii"),
        parent=int(fields[1]),
        group=int(fields[2]),
        session=int(fields[3]),
        threads=int(fields[17]),
        start_ticks=int(fields[19]),
        cpu_ticks=sum(map(int, fields[11:15])),
        waited_ticks=sum(map(int, fields[13:15])),
    )


def read(path: str) -> bytes | None:
    """The whole file in few system calls; None if it isn't there, or not ours to read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except GONE:
        return None
    try:
        parts = []
        while part := os.read(descriptor, READ_SIZE):
            parts.append(part)
        return b"".join(parts)
    except GONE:
        return None
    finally:
        os.close(descriptor)


def stat_of(pid: int, root: Path = ROOT) -> ProcessStat | None:
    """The process, also if it is a zombie; None if there is none."""
    line = read(f"{root}/proc/{pid}/stat")
    return parse_stat(line) if line else None


def pids(root: Path = ROOT) -> list[int]:
    """Every process there is. Raises `OSError` where there is no `/proc`."""
    return [int(name) for name in os.listdir(f"{root}/proc") if name.isdigit()]  # noqa: PTH208 - 5x the speed


def environ_of(pid: int, root: Path = ROOT) -> frozenset[bytes]:
    """The `NAME=value` strings the process was started with; empty if it is gone, or not ours to read."""
    return frozenset((read(f"{root}/proc/{pid}/environ") or b"").split(b"\0"))


def is_blank(pid: int, root: Path = ROOT) -> bool:
    """Whether it has neither arguments nor environment: it is about to become another program, or to end.

    Kernel threads, children of 2, never have any.
    """
    return not any(read(f"{root}/proc/{pid}/{name}") for name in ("environ", "cmdline"))


def boot_id(root: Path = ROOT) -> str:
    """What tells this boot from every other: the kernel's random id, else the time of the boot."""
    identity = read(f"{root}/proc/sys/kernel/random/boot_id")
    if identity:
        return identity.decode("ascii").strip()
    for line in (read(f"{root}/proc/stat") or b"").splitlines():
        if line.startswith(b"btime "):
            return line.decode("ascii")
    return ""


@attrs.frozen
class Snapshot:
    """What was seen of the process table, in no order, zombies included. `vanished`: listed, but gone when looked at.

    The table isn't read in one instant: a child that was forked after the listing by a process that ended before it was
    looked at is not in it.
    """

    stats: Sequence[ProcessStat]
    vanished: Sequence[int] = ()


@attrs.define
class ProcessTable:
    """The processes that started at or after a moment, read without opening those known to be older.

    What is known of a pid is believed for `trust_s` seconds. The kernel hands out every other pid, 32,768 at the
    least, before it uses one again, so that for a second that is certain. Not for use by several threads at once.
    """

    trust_s: float = 1.0
    root: Path = ROOT
    clock: Callable[[], float] = time.monotonic
    _started: dict[int, int] = attrs.field(factory=dict, init=False)
    _forget_at: float = attrs.field(default=float("-inf"), init=False)

    def since(self, start_ticks: int) -> Snapshot:
        """The processes started at that tick after the boot, or later."""
        now = self.clock()
        if now >= self._forget_at:
            self._started, self._forget_at = {}, now + self.trust_s
        known = self._started
        found: list[ProcessStat] = []
        vanished: list[int] = []
        self._started = {}
        for pid in pids(self.root):
            if (started := known.get(pid, start_ticks)) >= start_ticks:
                stat = stat_of(pid, self.root)
                if stat is None:
                    vanished.append(pid)
                    continue
                started = stat.start_ticks
                if started >= start_ticks:
                    found.append(stat)
            self._started[pid] = started
        return Snapshot(found, vanished)
