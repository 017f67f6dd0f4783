"""Limits of control groups, from recorded trees: both versions, nested groups, containers, broken files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import attrs
import pytest

from harness import cgroup

V2_MOUNT = "31 23 0:28 / /sys/fs/cgroup rw,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
V1_CPU = "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct\n"
V1_MEMORY = "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
OTHERS = "22 27 0:21 / /proc rw,relatime - proc proc rw\n27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard\n"
DOCKER_V1 = "32 31 0:29 /docker/ab12 /sys/fs/cgroup/cpu,cpuacct ro master:9 - cgroup cgroup rw,cpu,cpuacct\n"
TOP = "sys/fs/cgroup"
CPU = f"{TOP}/cpu,cpuacct"


def v1_quota(folder: str, quota_us: int, period_us: int = 100_000) -> dict[str, str]:
    return {f"{folder}/cpu.cfs_quota_us": f"{quota_us}\n", f"{folder}/cpu.cfs_period_us": f"{period_us}\n"}


@attrs.frozen
class Case:
    name: str
    membership: str
    mounts: str
    files: Mapping[str, str]
    expected: float | None


def tree(root: Path, files: Mapping[str, str], membership: str = "", mounts: str = "") -> Path:
    for name, text in {**files, "proc/self/cgroup": membership, "proc/self/mountinfo": OTHERS + mounts}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


QUOTAS = [
    Case("v2, none set", "0::/user/me\n", V2_MOUNT, {f"{TOP}/user/me/cpu.max": "max 100000\n"}, None),
    Case("v2, one and a half", "0::/user/me\n", V2_MOUNT, {f"{TOP}/user/me/cpu.max": "150000 100000\n"}, 1.5),
    Case("v2, no period", "0::/user/me\n", V2_MOUNT, {f"{TOP}/user/me/cpu.max": "250000\n"}, 2.5),
    Case(
        "v2, an ancestor's is the least",
        "0::/user/me/here\n",
        V2_MOUNT,
        {
            f"{TOP}/user/me/here/cpu.max": "400000 100000\n",
            f"{TOP}/user/me/cpu.max": "max 100000\n",
            f"{TOP}/user/cpu.max": "10000 5000\n",
        },
        2.0,
    ),
    Case("v2, a container's own namespace", "0::/\n", V2_MOUNT, {f"{TOP}/cpu.max": "50000 100000\n"}, 0.5),
    Case("v2, above the namespace", "0::/../../sibling\n", V2_MOUNT, {f"{TOP}/cpu.max": "300000 100000\n"}, 3.0),
    Case("v2, the top has no such file", "0::/\n", V2_MOUNT, {f"{TOP}/cgroup.procs": ""}, None),
    Case("v2, not mounted", "0::/user\n", "", {f"{TOP}/user/cpu.max": "100000 100000\n"}, None),
    Case("v1, none set", "4:cpu,cpuacct:/me\n", V1_CPU, v1_quota(f"{CPU}/me", -1), None),
    Case("v1, three", "4:cpu,cpuacct:/me\n", V1_CPU, v1_quota(f"{CPU}/me", 300_000), 3.0),
    Case(
        "v1, an ancestor's is the least",
        "4:cpu,cpuacct:/a/b\n",
        V1_CPU,
        {**v1_quota(f"{CPU}/a/b", 400_000), **v1_quota(f"{CPU}/a", 120_000), **v1_quota(CPU, -1)},
        1.2,
    ),
    Case(
        "v1, a container sees its group as the top",
        "4:cpu,cpuacct:/docker/ab12\n",
        DOCKER_V1,
        v1_quota(CPU, 200_000),
        2.0,
    ),
    Case("v1, a group that isn't mounted", "4:cpu,cpuacct:/elsewhere\n", DOCKER_V1, v1_quota(CPU, 200_000), 2.0),
    Case("v1, without a period", "4:cpu:/\n", V1_CPU, {f"{CPU}/cpu.cfs_quota_us": "100000\n"}, None),
    Case(
        "both at once",
        "4:cpu,cpuacct:/me\n1:name=systemd:/\n0::/me\n",
        V1_CPU + "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
        {**v1_quota(f"{CPU}/me", 250_000), f"{TOP}/unified/me/cgroup.procs": ""},
        2.5,
    ),
    Case(
        "a mount point with a blank",
        "0::/me\n",
        "31 23 0:28 / /mnt/control\\040groups rw - cgroup2 none rw\n",
        {"mnt/control groups/me/cpu.max": "100000 100000\n"},
        1.0,
    ),
    Case("no control groups at all", "", "", {}, None),
]


@pytest.mark.parametrize("case", QUOTAS, ids=lambda case: case.name)
def test_the_least_cpu_quota(tmp_path: Path, case: Case) -> None:
    root = tree(tmp_path, case.files, case.membership, case.mounts)
    quota = cgroup.cpu_quota(cgroup.folders("cpu", root))
    assert (quota.cores if quota else None) == case.expected


def test_without_proc_there_are_no_groups(tmp_path: Path) -> None:
    assert cgroup.folders("cpu", tmp_path) == ()


def test_groups_are_innermost_first(tmp_path: Path) -> None:
    root = tree(tmp_path, {}, "0::/a/b\n", V2_MOUNT)
    assert cgroup.folders("memory", root) == (root / TOP / "a/b", root / TOP / "a", root / TOP)


@pytest.mark.parametrize(
    ("files", "used_s"),
    [
        ({"cpu.stat": "usage_usec 2500000\nuser_usec 1\n"}, 2.5),
        ({"cpu.stat": "nr_periods 0\n", "cpuacct.usage": "1500000000\n"}, 1.5),
        ({"cpu.stat": "nr_periods 0\n"}, None),
        ({}, None),
    ],
)
def test_processor_time_of_a_group(tmp_path: Path, files: dict[str, str], used_s: float | None) -> None:
    assert cgroup.cpu_used_s(tree(tmp_path, files)) == used_s


MEMORY = f"{TOP}/memory"
ROOMS = [
    Case(
        "v2, what can be dropped is free",
        "0::/me\n",
        V2_MOUNT,
        {
            f"{TOP}/me/memory.max": "1000\n",
            f"{TOP}/me/memory.current": "700\n",
            f"{TOP}/me/memory.stat": "anon 500\ninactive_file 150\nactive_file 50\n",
        },
        450,
    ),
    Case(
        "v2, throttled before the limit",
        "0::/me\n",
        V2_MOUNT,
        {f"{TOP}/me/memory.max": "1000\n", f"{TOP}/me/memory.high": "900\n", f"{TOP}/me/memory.current": "700\n"},
        200,
    ),
    Case(
        "v2, none set",
        "0::/me\n",
        V2_MOUNT,
        {f"{TOP}/me/memory.max": "max\n", f"{TOP}/me/memory.high": "max\n", f"{TOP}/me/memory.current": "700\n"},
        None,
    ),
    Case(
        "v2, an ancestor has the least left",
        "0::/a/b\n",
        V2_MOUNT,
        {
            f"{TOP}/a/b/memory.max": "5000\n",
            f"{TOP}/a/b/memory.current": "100\n",
            f"{TOP}/a/memory.max": "9000\n",
            f"{TOP}/a/memory.current": "8990\n",
        },
        10,
    ),
    Case(
        "v1",
        "4:memory:/me\n",
        V1_MEMORY,
        {
            f"{MEMORY}/me/memory.limit_in_bytes": "1000\n",
            f"{MEMORY}/me/memory.usage_in_bytes": "800\n",
            f"{MEMORY}/me/memory.stat": "inactive_file 1\ntotal_inactive_file 300\n",
        },
        500,
    ),
    Case("v1, without a use", "4:memory:/me\n", V1_MEMORY, {f"{MEMORY}/me/memory.limit_in_bytes": "1000\n"}, None),
    Case(
        "over the limit",
        "0::/me\n",
        V2_MOUNT,
        {f"{TOP}/me/memory.max": "1000\n", f"{TOP}/me/memory.current": "1200\n"},
        -200,
    ),
]


@pytest.mark.parametrize("case", ROOMS, ids=lambda case: case.name)
def test_the_least_room_in_memory(tmp_path: Path, case: Case) -> None:
    root = tree(tmp_path, case.files, case.membership, case.mounts)
    room = cgroup.memory_room(cgroup.folders("memory", root))
    assert (room.free_bytes if room else None) == case.expected
