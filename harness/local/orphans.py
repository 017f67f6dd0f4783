"""Finding and ending the processes of a session, and never any other.

A pid says nothing by itself: it is handed out again once its process is gone. A process is known here by its
`ProcessMark`; a session's processes by the process group or session id of its leader, for as long as something proves
that this number is still the leader's, and by the token in their environment, whatever they did since. A signal goes
through a pidfd that was opened before the last check, so that it can't reach a successor of the pid.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import select
import signal
import time
from collections.abc import Iterable, Sequence, Set

import attrs

from harness import procfs
from harness.procfs import ProcessStat, ProcessTable, Snapshot

TOKEN_VARIABLE = "DISPATCH_SESSION"
KILL_LIMIT_S = 5.0  #: after SIGKILL: what then still runs is stuck in the kernel, or another user's
KILL_AGAIN_S = 0.5  #: a tree that forks while it is being killed is looked up anew after so long
LOOKS_S = (0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032)  #: pauses while the process table is in motion
KERNEL = 2  #: the pid of kthreadd, the parent of all kernel threads; without arguments for good
LOOK_AGAIN_S = 0.02  #: between looks at a process where the kernel has no pidfd to wait on


class OrphanError(Exception):
    """Processes of a session could not be ended; `.pids` names them."""

    def __init__(self, pids: Sequence[int]) -> None:
        named = " ".join(map(str, pids))
        super().__init__(f"processes of an earlier session can't be ended; end them by hand: kill -9 {named}")
        self.pids = tuple(pids)


@attrs.frozen
class ProcessMark:
    """One process, told apart from every other that ever has its pid. `start_ticks`: clock ticks from that boot."""

    pid: int
    start_ticks: int
    boot_id: str


@functools.cache
def this_boot() -> str:
    """The `boot_id` of every process that runs now."""
    return procfs.boot_id()


def mark_of(pid: int) -> ProcessMark:
    """Raises `ProcessLookupError` if there is no such process."""
    stat = procfs.stat_of(pid)
    if stat is None:
        raise ProcessLookupError(errno.ESRCH, f"no process {pid}")
    return _mark(stat)


def is_alive(mark: ProcessMark) -> bool:
    """Whether that very process still runs; a zombie doesn't."""
    stat = procfs.stat_of(mark.pid)
    return stat is not None and not stat.ended and _mark(stat) == mark


def find_by_token(token: str) -> list[int]:
    """The running processes, ascending, that carry the token in `DISPATCH_SESSION`. An empty token finds none."""
    stats = ProcessTable().since(0).stats
    return sorted(stat.pid for stat in stats if not stat.ended and _carries(stat.pid, token))


def members_of(
    stats: Sequence[ProcessStat], leader: ProcessMark, token: str, known: Set[ProcessMark] = frozenset()
) -> list[ProcessStat]:
    """Those of a session among `stats` that run, its leader included if it does, the caller never.

    They were `known` before, carry the token, or are in the leader's group or session. The kernel gives that number to
    nobody else while the leader, be it a zombie, or any member is left: a group is taken whole if one of them is seen,
    else not at all.
    """
    running = [stat for stat in stats if not stat.ended and stat.pid != os.getpid()]
    led = [stat for stat in running if leader.pid > 1 and leader.pid in (stat.group, stat.session)]
    sure = any(_mark(stat) == leader for stat in stats)
    unsure = [stat for stat in running if stat not in led] if sure else running
    proven = [stat for stat in unsure if _mark(stat) in known or _carries(stat.pid, token)]
    if sure or any(stat in led for stat in proven):
        return led + [stat for stat in proven if stat not in led]
    return proven


def unclear_in(snapshot: Snapshot, leader: ProcessMark) -> set[object]:
    """What may hide a member of a session. Marks stand for what hides none if it is seen a second time.

    Who ended after the table was listed may have forked just before: a pid that has vanished, or a zombie, unless it
    was one before. And who is about to become another program shows no token for a moment.
    """
    zombies = {_mark(stat) for stat in snapshot.stats if stat.ended} - {leader}
    running = [stat for stat in snapshot.stats if not stat.ended and KERNEL not in (stat.pid, stat.parent)]
    return {*zombies, *snapshot.vanished, *(stat.pid for stat in running if procfs.is_blank(stat.pid))}


@attrs.define
class Ending:
    """How a session is ended, round by round; the caller does the waiting.

    Each `round` signals what is there and returns whom to wait for, at most until `.wait_until` (monotonic seconds).
    `kill_at` is when SIGTERM gives way to SIGKILL; it may be moved forward between rounds. `group_told`: SIGTERM went
    to the leader's group already.
    """

    leader: ProcessMark
    token: str
    kill_at: float
    table: ProcessTable
    group_told: bool = False
    wait_until: float = attrs.field(default=0.0, init=False)
    killed: bool = attrs.field(default=False, init=False)
    _told: set[ProcessMark] = attrs.field(factory=set, init=False)
    _known: set[ProcessMark] = attrs.field(factory=set, init=False)
    _give_up_at: float = attrs.field(default=float("inf"), init=False)

    def round(self, now: float) -> list[ProcessMark]:
        """Empty once nothing is left. Raises `OrphanError` when SIGKILL has had its time."""
        members = self._members()
        if not members or now < self.kill_at:
            self._ask(members)
            self.wait_until = self.kill_at
            return members
        self._give_up_at = min(self._give_up_at, now + KILL_LIMIT_S)
        if now >= self._give_up_at:
            raise OrphanError(sorted(member.pid for member in members))
        send(members, signal.SIGKILL)
        self.killed = True
        self.wait_until = min(self._give_up_at, now + KILL_AGAIN_S)
        return members

    def _members(self) -> list[ProcessMark]:
        found = self._found()
        self._known = {_mark(stat) for stat in found}
        if self.group_told:
            self._told |= {_mark(stat) for stat in found if stat.group == self.leader.pid}
        return list(self._known)

    def _found(self) -> list[ProcessStat]:
        """None only if the last look at the table can't have missed any."""
        since = self.leader.start_ticks if self.leader.boot_id == this_boot() else 0
        before: Set[object] = set()
        for pause_s in LOOKS_S:
            snapshot = self.table.since(since)
            found = members_of(snapshot.stats, self.leader, self.token, self._known)
            unclear = unclear_in(snapshot, self.leader)
            if found or unclear <= before:
                return found
            before = {each for each in unclear if isinstance(each, ProcessMark)}
            time.sleep(pause_s)
        return []

    def _ask(self, members: Iterable[ProcessMark]) -> None:
        """SIGTERM, once each, since many take a second one for impatience; SIGCONT lets a stopped one hear it."""
        new = [member for member in members if member not in self._told]
        self._told.update(new)
        send(new, signal.SIGTERM)
        send(new, signal.SIGCONT)


def end_group(mark: ProcessMark, token: str, grace_s: float) -> None:
    """Ends the session that `mark` leads or led, and returns when nothing of it runs any more.

    SIGTERM to each of its processes, SIGKILL `grace_s` seconds later. Doing it to a session that is gone is fine.
    Blocks for at most `grace_s` and `KILL_LIMIT_S`; raises `OrphanError` if some can't be ended.
    """
    ending = Ending(mark, token, kill_at=time.monotonic() + max(0.0, grace_s), table=ProcessTable())
    while members := ending.round(time.monotonic()):
        wait_gone(members, ending.wait_until)


def send(members: Iterable[ProcessMark], number: signal.Signals) -> None:
    """The signal to each that still runs. One that may not be signalled is left alone: it will be seen to survive."""
    for member in members:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            try:
                descriptor = pidfd_of(member)
            except ProcessLookupError:
                continue
            except OSError:  # no pidfd to be had; the time between check and signal is then a few microseconds
                if is_alive(member):
                    os.kill(member.pid, number)
                continue
            try:
                signal.pidfd_send_signal(descriptor, number)
            finally:
                os.close(descriptor)


def wait_gone(members: Iterable[ProcessMark], until: float) -> bool:
    """Whether all have ended by then (monotonic seconds). Blocks."""
    for member in members:
        try:
            descriptor = pidfd_of(member)
        except ProcessLookupError:
            continue
        except OSError:
            while is_alive(member):
                if time.monotonic() >= until:
                    return False
                time.sleep(LOOK_AGAIN_S)
            continue
        try:
            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            if not poll.poll(max(0.0, until - time.monotonic()) * 1000):
                return False
        finally:
            os.close(descriptor)
    return True


def pidfd_of(mark: ProcessMark) -> int:
    """A descriptor for that very process, readable once it has ended; close it.

    Raises `ProcessLookupError` if it runs no more, and another `OSError` if the kernel has no pidfd to give.
    """
    descriptor = open_pidfd(mark.pid)
    if is_alive(mark):
        return descriptor
    os.close(descriptor)
    raise ProcessLookupError(errno.ESRCH, f"process {mark.pid} has ended")


def open_pidfd(pid: int) -> int:
    """Like `os.pidfd_open`, with an `OSError` also where Python was built without it."""
    if not hasattr(os, "pidfd_open"):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    return os.pidfd_open(pid)


def _mark(stat: ProcessStat) -> ProcessMark:
    return ProcessMark(stat.pid, stat.start_ticks, this_boot())


def _carries(pid: int, token: str) -> bool:
    return bool(token) and f"{TOKEN_VARIABLE}={token}".encode() in procfs.environ_of(pid)
