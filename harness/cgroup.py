"""What the control groups around this process allow it: processor time and memory, in version 1 and version 2.

A limit may be set on any group from this process's own up to the top, and the least of them holds. From inside a
container only the part of the tree that is mounted there can be seen; what lies above it can't be told. Folders are
innermost first. Every function takes the root of the file system, so that a recorded tree can stand in for the machine.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

import attrs

from harness import procfs

UNIFIED = ""  #: the controller name that stands for all of version 2
DEFAULT_PERIOD_US = 100_000  #: of a cpu.max that names none
OCTAL = re.compile(r"\\([0-7]{3})")  #: how mountinfo writes blanks and the like


@attrs.frozen
class Mount:
    """A mounted hierarchy: the group at its top as the kernel names it, where it is, and what it controls."""

    top: PurePosixPath
    folder: PurePosixPath
    controllers: frozenset[str]


@attrs.frozen
class CpuQuota:
    """Processor time allowed, in cores, and the folder of the group that says so."""

    cores: float
    folder: Path


@attrs.frozen
class MemoryRoom:
    """Bytes that may still be used before the group's limit is met; pages that can be dropped count as free."""

    free_bytes: int
    folder: Path


def folders(controller: str, root: Path = procfs.ROOT) -> tuple[Path, ...]:
    """The groups that hold this process for `controller` ("cpu", "memory"), innermost first; () without any."""
    memberships = dict(_memberships(_text(root / "proc/self/cgroup")))
    found: list[Path] = []
    for mount in _mounts(_text(root / "proc/self/mountinfo")):
        name = UNIFIED if UNIFIED in mount.controllers else controller
        if name in mount.controllers and name in memberships:
            found += [root / str(folder).lstrip("/") for folder in _upward(mount, memberships[name])]
    return tuple(dict.fromkeys(found))


def cpu_quota(groups: Sequence[Path]) -> CpuQuota | None:
    """The least quota of these groups; None if none is set."""
    quotas = [CpuQuota(cores, folder) for folder in groups if (cores := _quota(folder)) is not None]
    return min(quotas, key=lambda quota: quota.cores, default=None)


def cpu_used_s(folder: Path) -> float | None:
    """Processor time, in core seconds, that a group has used so far; None if it doesn't say."""
    used_us = _entry(folder / "cpu.stat", "usage_usec")
    if used_us is not None:
        return used_us / 1e6
    used_ns = _number(folder / "cpuacct.usage")
    return None if used_ns is None else used_ns / 1e9


def memory_room(groups: Sequence[Path]) -> MemoryRoom | None:
    """The group with the least left; None if none is limited."""
    rooms = [MemoryRoom(free, folder) for folder in groups if (free := _free_bytes(folder)) is not None]
    return min(rooms, key=lambda room: room.free_bytes, default=None)


def _memberships(text: str) -> Iterator[tuple[str, PurePosixPath]]:
    """From lines like `4:cpu,cpuacct:/a/b`, and `0::/a/b` for version 2."""
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            yield controller, PurePosixPath(path)


def _mounts(text: str) -> Iterator[Mount]:
    """From lines like `32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct`."""
    for line in text.splitlines():
        left, _, right = line.partition(" - ")
        fields, (kind, _, options) = left.split(" "), right.split(" ", 2)
        if kind not in ("cgroup", "cgroup2"):
            continue
        top, folder = (PurePosixPath(OCTAL.sub(lambda m: chr(int(m[1], 8)), field)) for field in fields[3:5])
        yield Mount(top, folder, frozenset({UNIFIED} if kind == "cgroup2" else options.split(",")))


def _upward(mount: Mount, path: PurePosixPath) -> list[PurePosixPath]:
    """From the group at `path` up to the top of the mount. One that isn't below the top is seen as the top itself."""
    if ".." in path.parts or not path.is_relative_to(mount.top):
        return [mount.folder]
    within = path.relative_to(mount.top)
    return [mount.folder / part for part in (within, *within.parents)]


def _quota(folder: Path) -> float | None:
    words = _text(folder / "cpu.max").split()
    if words:
        quota, period = words[0], int(words[1]) if len(words) > 1 else DEFAULT_PERIOD_US
        return None if quota == "max" or period <= 0 else int(quota) / period
    quota_us, period_us = _number(folder / "cpu.cfs_quota_us"), _number(folder / "cpu.cfs_period_us")
    if quota_us is None or not period_us or quota_us <= 0:
        return None
    return quota_us / period_us


def _free_bytes(folder: Path) -> int | None:
    """`memory.high` counts as a limit, too: beyond it a group is not killed but throttled to a standstill."""
    limits = [_number(folder / name) for name in ("memory.max", "memory.high", "memory.limit_in_bytes")]
    known = [limit for limit in limits if limit is not None]
    used = _number(folder / "memory.current")
    droppable = _entry(folder / "memory.stat", "inactive_file")
    if used is None:
        used = _number(folder / "memory.usage_in_bytes")
        droppable = _entry(folder / "memory.stat", "total_inactive_file")
    if not known or used is None:
        return None
    return min(known) - used + (droppable or 0)


def _text(path: Path) -> str:
    """Empty if there is no such file."""
    return (procfs.read(str(path)) or b"").decode("utf-8", errors="replace")


def _number(path: Path) -> int | None:
    """None without the file, and for what isn't a number, such as `max`."""
    try:
        return int(_text(path))
    except ValueError:
        return None


def _entry(path: Path, name: str) -> int | None:
    """From a file of lines like `name 123`."""
    for line in _text(path).splitlines():
        key, _, value = line.partition(" ")
        if key == name:
            return int(value)
    return None
