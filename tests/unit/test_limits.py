"""Memory and disk allow what runs and as many more as there is room for, and say why."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from harness.limits import GIB, MIB, DiskLimit, LimitReading, MemoryLimit, default_limits

UNIFIED_MOUNT = "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"


def host(root: Path, available_kib: int | None, group: dict[str, int] | None = None) -> Path:
    """A recorded tree: what the kernel calls available, and the group's limit and use."""
    own = root / "sys/fs/cgroup/me"
    own.mkdir(parents=True)
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text("0::/me\n")
    (root / "proc/self/mountinfo").write_text(UNIFIED_MOUNT)
    if available_kib is not None:
        meminfo = f"MemTotal:  99999999 kB\nMemFree:  1 kB\nMemAvailable:  {available_kib} kB\n"
        (root / "proc/meminfo").write_text(meminfo)
    for name, value in (group or {}).items():
        (own / name).write_text(f"{value}\n")
    return root


@pytest.mark.parametrize(
    ("available_mib", "running", "cap"),
    [(4096, 0, 7), (4096, 3, 10), (1024, 3, 4), (1023, 3, 3), (512, 3, 3), (100, 3, 3), (0, 0, 0)],
)
def test_memory_allows_what_runs_and_what_there_is_room_for(
    tmp_path: Path, available_mib: int, running: int, cap: int
) -> None:
    limit = MemoryLimit(host(tmp_path, available_mib * 1024), reserve_bytes=512 * MIB, per_session_bytes=512 * MIB)
    assert limit.cap(running).cap == cap


def test_memory_says_why(tmp_path: Path) -> None:
    limit = MemoryLimit(host(tmp_path, 4 * 1024 * 1024), reserve_bytes=512 * MIB, per_session_bytes=GIB)
    assert limit.cap(2) == LimitReading(
        "memory",
        5,
        "memory: 2 running + 3 more, as 4.0 GiB are free, 512 MiB are kept back and a session is given 1.0 GiB",
    )


def test_a_group_with_less_room_than_the_host_counts(tmp_path: Path) -> None:
    group = {"memory.max": 3 * GIB, "memory.current": GIB}
    reading = MemoryLimit(host(tmp_path, 8 * 1024 * 1024, group), reserve_bytes=0, per_session_bytes=GIB).cap(0)
    assert reading.cap == 2
    assert "2.0 GiB are free in the cgroup (host 8.0 GiB)" in reading.derivation


def test_a_group_with_more_room_than_the_host_does_not(tmp_path: Path) -> None:
    group = {"memory.max": 64 * GIB, "memory.current": GIB}
    reading = MemoryLimit(host(tmp_path, 2 * 1024 * 1024, group), reserve_bytes=0, per_session_bytes=GIB).cap(0)
    assert reading.cap == 2
    assert "cgroup" not in reading.derivation


@pytest.mark.parametrize("meminfo", [None, "", "MemTotal: 5 kB\n"])
def test_memory_that_can_t_be_measured_allows_none_beside_what_runs(tmp_path: Path, meminfo: str | None) -> None:
    root = host(tmp_path, None)
    if meminfo is not None:
        (root / "proc/meminfo").write_text(meminfo)
    assert MemoryLimit(root).cap(3) == LimitReading(
        "memory", 3, "memory: can't be measured, so none beside the 3 running"
    )


def free_bytes(path: Path) -> int:
    status = os.statvfs(path)
    return status.f_bavail * status.f_frsize


def test_disk_allows_what_runs_and_what_there_is_room_for(tmp_path: Path) -> None:
    third = free_bytes(tmp_path) // 3 - 64 * MIB  # others write to the disk while this runs
    assert DiskLimit(tmp_path, reserve_bytes=0, per_session_bytes=third).cap(5).cap == 8
    assert DiskLimit(tmp_path, reserve_bytes=2 * third, per_session_bytes=third).cap(5).cap == 6


def test_a_full_disk_allows_what_runs(tmp_path: Path) -> None:
    reading = DiskLimit(tmp_path, reserve_bytes=2 * free_bytes(tmp_path)).cap(4)
    assert reading.cap == 4
    assert "disk: 4 running + 0 more" in reading.derivation


def test_a_folder_that_is_yet_to_be_made_is_on_the_disk_of_the_one_above(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "a" / "b", tmp_path / "file" / "c"):
        assert DiskLimit(path, reserve_bytes=0, per_session_bytes=MIB).cap(0).cap


def test_a_disk_that_can_t_be_measured_allows_none_beside_what_runs(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    assert DiskLimit(loop / "x").cap(2) == LimitReading(
        "disk", 2, "disk: can't be measured, so none beside the 2 running"
    )


def test_the_default_limits_are_measured_here(tmp_path: Path) -> None:
    readings = [limit.cap(1) for limit in default_limits(tmp_path)]
    assert [reading.name for reading in readings] == ["memory", "disk"]
    assert all("running +" in reading.derivation for reading in readings)
