"""Processor time used on this host, and how much of it was used by our own sessions.

A `Sample` holds running totals; what happened between two is their difference. Times are core seconds.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping, Set
from typing import TYPE_CHECKING

import attrs

from harness import procfs
from harness.procfs import TICKS_PER_S, ProcessStat, ProcessTable

if TYPE_CHECKING:
    import psutil

# Columns of a cpu line in /proc/stat: user, nice, system, irq, softirq, steal. What a hypervisor steals is taken from
# us like the rest; guest time, further on in the line, is part of user time already.
BUSY_COLUMNS = (1, 2, 3, 6, 7, 8)

ProcessKey = tuple[int, int]  #: pid and start time


@attrs.frozen
class Sample:
    """Totals at one moment. `at` is monotonic; `since_boot_s` counts like the start times of processes.

    `busy_s` is what was used of the processors that we may use. `members` are the processes of our sessions. `waited_s`
    is what this process' own children used, those that it has waited for. `group_s` is what was used within the control
    group whose quota binds us; None without one.
    """

    at: float
    since_boot_s: float
    busy_s: float
    members: Mapping[ProcessKey, ProcessStat]
    waited_s: float
    pid: int
    group_s: float | None = None

    def numbers(self) -> set[int]:
        """Of the process groups and sessions that have members."""
        return {number for stat in self.members.values() for number in (stat.group, stat.session)}


def own_s(before: Sample, after: Sample) -> float:
    """What our sessions used between the two; never negative.

    A process that ended took its total to the parent that waited for it, and the leader of a session to this process:
    there it is in the sum again, so it is taken off where it was. The total of an orphan is lost to init. A process
    that is new here but older than `before` was registered late; what it had used by then is not known.
    """
    ticks = 0
    for key, stat in after.members.items():
        if key in before.members:
            ticks += stat.cpu_ticks - before.members[key].cpu_ticks
        elif stat.start_ticks >= before.since_boot_s * TICKS_PER_S - 1:
            ticks += stat.cpu_ticks
    waiting = {before.pid, *(pid for pid, _ in before.members)}
    for key, stat in before.members.items():
        if key not in after.members and stat.parent in waiting:
            ticks -= stat.cpu_ticks
    return max(0.0, ticks / TICKS_PER_S + after.waited_s - before.waited_s)


def linux_sample(groups: Set[int], processors: Set[int], table: ProcessTable, at: float) -> Sample:
    """From `/proc`; `groups` are the numbers of our sessions' process groups. Raises `OSError` if it isn't there."""
    uptime, lines, caller = (procfs.read(f"{table.root}/proc/{name}") for name in ("uptime", "stat", "self/stat"))
    if not (uptime and lines and caller):
        raise FileNotFoundError(f"{table.root}/proc tells no processor times")
    this = procfs.parse_stat(caller)
    return Sample(
        at=at,
        since_boot_s=float(uptime.split()[0]),
        busy_s=busy_s(lines, processors),
        members=_members(groups, table),
        waited_s=this.waited_ticks / TICKS_PER_S,
        pid=this.pid,
    )


def busy_s(text: bytes, processors: Set[int]) -> float:
    """Of these processors, from the text of `/proc/stat`; of all, if it doesn't list every one of them."""
    lines = {line.split(None, 1)[0]: line.split() for line in text.splitlines() if line.startswith(b"cpu")}
    wanted = {b"cpu%d" % number for number in processors}
    if not wanted or not wanted <= lines.keys():
        wanted = {b"cpu"}
    return sum(int(lines[name][column]) for name in wanted for column in BUSY_COLUMNS) / TICKS_PER_S


def psutil_sample(groups: Set[int], at: float) -> Sample:
    """The same where there is no `/proc`, of all processors."""
    import psutil  # not above: it takes long to load, and where there is /proc it is not needed

    times = psutil.cpu_times()
    members = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, ProcessLookupError, PermissionError):
            if (group := os.getpgid(process.pid)) in groups:
                stat = _psutil_stat(process, group)
                members[stat.pid, stat.start_ticks] = stat
    own = os.times()
    return Sample(
        at=at,
        since_boot_s=time.time(),
        busy_s=times.user + times.system + getattr(times, "nice", 0.0),
        members=members,
        waited_s=own.children_user + own.children_system,
        pid=os.getpid(),
    )


def _members(groups: Set[int], table: ProcessTable) -> dict[ProcessKey, ProcessStat]:
    """None of them is older than its leader, so that the rest need not be opened while the leaders live."""
    if not groups:
        return {}
    leaders = [procfs.stat_of(number, table.root) for number in groups]
    oldest = min(0 if leader is None else leader.start_ticks for leader in leaders)
    stats = table.since(oldest).stats
    return {(stat.pid, stat.start_ticks): stat for stat in stats if stat.group in groups or stat.session in groups}


def _psutil_stat(process: psutil.Process, group: int) -> ProcessStat:
    """Times that count from the epoch, as `since_boot_s` does in `psutil_sample`."""
    with process.oneshot():
        times = process.cpu_times()
        waited_s = times.children_user + times.children_system
        return ProcessStat(
            pid=process.pid,
            state="R",
            parent=process.ppid(),
            group=group,
            session=group,
            threads=1,
            start_ticks=int(process.create_time() * TICKS_PER_S),
            cpu_ticks=int((times.user + times.system + waited_s) * TICKS_PER_S),
            waited_ticks=int(waited_s * TICKS_PER_S),
        )
