"""How many sessions this host has processors for.

The cap is the processors that we may use less the load on them that isn't our sessions'. Both may be bounded twice, by
affinity and by the quota of a control group, and what others use matters only as far as it takes from what we may use:
on 64 processors, half of them busy, a container with a quota of four has four. So the load told here is `cores` less
what is really left to us, the lesser of what is left of the processors and what is left of the quota. The load of this
process itself, being no session, counts as foreign.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

import attrs

from harness import cgroup, procfs
from harness.limits import DiskLimit, Limit, LimitReading, MemoryLimit, default_limits
from harness.processor_time import Sample, linux_sample, own_s, psutil_sample
from harness.procfs import ProcessTable

__all__ = [
    "Cores",
    "DiskLimit",
    "HostMeasures",
    "Limit",
    "LimitReading",
    "MemoryLimit",
    "default_limits",
    "worker_cap",
]

FRESH_S = 1.0  #: how long a reading is used; processor time is counted in hundredths of a second, so less says little
SMOOTHING_S = 2.0  #: a change of load is told to 63 % after so long
HUM = 0.25  #: cores
TRUST_S = 60.0  #: for the process table: a process mistaken for another in it spoils a reading, no more


def worker_cap(cores: float, load: float) -> int:
    """How many sessions may run at once: `max(1, floor(cores - load))`.

    Never more than the cores: a load below zero counts as none. What isn't finite is no measurement and allows one.
    """
    if not (math.isfinite(cores) and math.isfinite(load)):
        return 1
    return max(1, math.floor(cores - max(0.0, load)))


@attrs.frozen
class Cores:
    """The processors that this process may run on, and the quota it has of their time, in cores; None without one."""

    processors: frozenset[int]
    quota: cgroup.CpuQuota | None

    @property
    def usable(self) -> float:
        """The lesser of the two. May be a fraction."""
        count = float(len(self.processors))
        return count if self.quota is None else min(count, self.quota.cores)

    def left_of(self, busy: float, busy_in_group: float | None) -> float:
        """Cores that others leave us: `busy` on the processors, `busy_in_group` against the quota."""
        left = len(self.processors) - busy
        if self.quota is not None:
            left = min(left, self.quota.cores - (busy_in_group or 0.0))
        return left

    def words(self) -> str:
        bounds = [f"affinity {len(self.processors)}"]
        if self.quota is not None:
            bounds.append(f"cgroup quota {self.quota.cores:.3g}")
        return f"{self.usable:.3g} cores ({', '.join(bounds)})"


@attrs.frozen
class Reading:
    """What was measured at one moment; `origin` says from what."""

    cores: Cores
    load: float
    origin: str

    def derivation(self) -> str:
        cap = worker_cap(self.cores.usable, self.load)
        least = ", the least" if self.cores.usable - self.load < 1 else ""
        return f"{self.cores.words()} - load {self.load:.1f} {self.origin} = cap {cap}{least}"


class HostMeasures:
    """`cores` and `load` of this host, measured when asked for and then used for a second. For any thread.

    Our sessions are told apart by their process groups: those that `own_groups` returns at each measurement, and those
    given to `exclude`. The children that this process has waited for count as ours, too, whatever they were. The first
    reading, with no interval behind it yet, takes the load average of the last minute less one core for each group.
    """

    def __init__(
        self,
        own_groups: Callable[[], Iterable[int]] = tuple,
        *,
        root: Path = procfs.ROOT,
        clock: Callable[[], float] = time.monotonic,
        processors: Callable[[], Collection[int]] | None = None,
    ) -> None:
        self._own_groups, self._root, self._clock = own_groups, root, clock
        self._processors = processors or _affinity
        self._cpu_groups = cgroup.folders("cpu", root)
        self._table = ProcessTable(trust_s=TRUST_S, root=root, clock=clock)
        self._lock = threading.Lock()
        self._excluded: set[int] = set()
        self._before: Sample | None = None
        self._load: float | None = None
        self._reading: Reading | None = None
        self._stale_at = -math.inf
        self._refresh()

    @property
    def cores(self) -> float:
        """What this process may use: the processors of its affinity, or the least CPU quota around it. Above 0."""
        return self._refresh().cores.usable

    @property
    def load(self) -> float:
        """How much of `cores` others use, in cores, to a tenth and smoothed over a few seconds.

        What goes less than `HUM` over a whole number is left out. If it can't be measured it is taken to be all.
        """
        return self._refresh().load

    @property
    def derivation(self) -> str:
        """The numbers, where they come from, and the cap that follows."""
        return self._refresh().derivation()

    def exclude(self, group: int) -> None:
        """This process group is one of our sessions. It is forgotten when a measurement finds it gone."""
        with self._lock:
            self._excluded.add(group)

    def _refresh(self) -> Reading:
        with self._lock:
            now = self._clock()
            if self._reading is None or now >= self._stale_at:
                self._reading, self._stale_at = self._measure(now), now + FRESH_S
            return self._reading

    def _measure(self, now: float) -> Reading:
        cores = Cores(frozenset(self._processors()), cgroup.cpu_quota(self._cpu_groups))
        groups = self._excluded | set(self._own_groups())
        try:
            sample = self._sample(cores, groups, now)
            load, origin = self._load_since(self._before, sample, cores, len(groups))
        except (OSError, ValueError) as error:
            return Reading(cores, cores.usable, f"assumed, as it can't be measured ({error})")
        self._before = sample
        self._excluded &= sample.numbers()
        return Reading(cores, _without_hum(load), origin)

    def _sample(self, cores: Cores, groups: set[int], now: float) -> Sample:
        if not (self._root / "proc/stat").exists():
            return psutil_sample(groups, now)
        sample = linux_sample(groups, cores.processors, self._table, now)
        return attrs.evolve(sample, group_s=cgroup.cpu_used_s(cores.quota.folder)) if cores.quota else sample

    def _load_since(self, before: Sample | None, after: Sample, cores: Cores, sessions: int) -> tuple[float, str]:
        """Cores that others take from us, and in words, from what that was told."""
        if before is None:
            left = cores.left_of(_load_average(self._root) - sessions, None)
            return cores.usable - left, "not our sessions' (load average)"
        elapsed_s = after.at - before.at
        ours = own_s(before, after)
        others = max(0.0, after.busy_s - before.busy_s - ours) / elapsed_s
        in_group = None
        if before.group_s is not None and after.group_s is not None:
            in_group = max(0.0, after.group_s - before.group_s - ours) / elapsed_s
        load = cores.usable - cores.left_of(others, in_group)
        if self._load is not None:
            load += (self._load - load) * math.exp(-elapsed_s / SMOOTHING_S)
        self._load = load
        return load, "not our sessions'"


def _without_hum(load: float) -> float:
    """To a tenth, never negative, and with a fraction below `HUM` left out.

    No machine is ever quite idle, and rounding down would charge a whole core for that; likewise with every core more.
    """
    rounded = max(0.0, round(load, 1))
    whole = math.floor(rounded)
    return float(whole) if rounded - whole < HUM else rounded


def _load_average(root: Path) -> float:
    text = procfs.read(f"{root}/proc/loadavg")
    return float(text.split()[0]) if text else os.getloadavg()[0]


def _affinity() -> Collection[int]:
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return range(os.cpu_count() or 1)
