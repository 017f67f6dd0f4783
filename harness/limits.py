"""How many sessions the host has room for, beside its processors: memory and disk.

A limit never stops what runs: with `n` sessions running it allows `n` and as many more as there is headroom for. What
running sessions use is gone from the headroom by itself. What can't be measured allows none beside those that run.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

import attrs

from harness import cgroup, procfs

MIB = 1024**2
GIB = 1024**3

# An agent's own process takes 200 to 500 MB before its builds and tests take theirs; less than the reserve left, and
# the kernel starts to throw out pages of the programs that run.
MEMORY_RESERVE_BYTES = 512 * MIB
MEMORY_PER_SESSION_BYTES = 512 * MIB
# A session takes a checkout, its build products and up to 64 MiB of log; git and the store must still be able to
# write with all sessions at their worst, since a commit that fails for want of space fails the work.
DISK_RESERVE_BYTES = GIB
DISK_PER_SESSION_BYTES = 512 * MIB


@attrs.frozen
class LimitReading:
    """How many sessions may run at once in all, and why, in words. A `cap` of None is no opinion."""

    name: str
    cap: int | None
    derivation: str


class Limit(Protocol):
    """Something else than processors that bounds how many sessions run."""

    def cap(self, running: int) -> LimitReading:
        """What holds now that so many run. Never raises."""
        ...


@attrs.frozen
class MemoryLimit:
    """The memory that the kernel calls available, or what the control groups leave of it if that is less."""

    root: Path = procfs.ROOT
    reserve_bytes: int = MEMORY_RESERVE_BYTES
    per_session_bytes: int = MEMORY_PER_SESSION_BYTES

    def cap(self, running: int) -> LimitReading:
        available = _available_memory(self.root)
        if available is None:
            return _unmeasured("memory", running)
        room = cgroup.memory_room(cgroup.folders("memory", self.root))
        if room is None or room.free_bytes >= available:
            return _allowed("memory", running, available, "", self.reserve_bytes, self.per_session_bytes)
        words = f" in the cgroup (host {_size(available)})"
        return _allowed("memory", running, room.free_bytes, words, self.reserve_bytes, self.per_session_bytes)


@attrs.frozen
class DiskLimit:
    """The space left on the file system of `path`, or of the nearest folder above that exists."""

    path: Path
    reserve_bytes: int = DISK_RESERVE_BYTES
    per_session_bytes: int = DISK_PER_SESSION_BYTES

    def cap(self, running: int) -> LimitReading:
        free = _free_disk(self.path)
        if free is None:
            return _unmeasured("disk", running)
        return _allowed("disk", running, free, "", self.reserve_bytes, self.per_session_bytes)


def default_limits(path: Path) -> tuple[Limit, ...]:
    """Memory, and the disk that holds `path`."""
    return MemoryLimit(), DiskLimit(path)


def _allowed(name: str, running: int, free: int, where: str, reserve: int, per_session: int) -> LimitReading:
    more = max(0, free - reserve) // per_session
    derivation = (
        f"{name}: {running} running + {more} more, as {_size(free)} are free{where}, "
        f"{_size(reserve)} are kept back and a session is given {_size(per_session)}"
    )
    return LimitReading(name, running + more, derivation)


def _unmeasured(name: str, running: int) -> LimitReading:
    return LimitReading(name, running, f"{name}: can't be measured, so none beside the {running} running")


def _available_memory(root: Path) -> int | None:
    """Bytes; None if it can't be told."""
    text = procfs.read(f"{root}/proc/meminfo")
    if text is None:
        import psutil  # not above: it takes long to load, and where there is /proc it is not needed

        return int(psutil.virtual_memory().available) if root == procfs.ROOT else None
    for line in text.splitlines():
        if line.startswith(b"MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def _free_disk(path: Path) -> int | None:
    """Bytes that a user without privileges can still write; None if it can't be told."""
    for folder in (path, *path.absolute().parents):
        try:
            status = os.statvfs(folder)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:
            return None
        return status.f_bavail * status.f_frsize
    return None


def _size(count: int) -> str:
    return f"{count / GIB:.1f} GiB" if abs(count) >= GIB else f"{count / MIB:.0f} MiB"
