"""Which file system a path lies on, by recorded mount tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.database.filesystem import NETWORK_TYPES, network_type, type_of

MOUNTS = r"""
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 27 0:40 / /home rw,relatime shared:7 master:1 - nfs4 server:/export/home rw,vers=4.2
31 30 254:1 /x /home/local rw - xfs /dev/vdb rw
32 27 0:41 / /mnt/with\040blank\134slash rw - cifs //server/share rw
33 27 0:42 / /data rw - ext4 /dev/vdc rw
34 27 0:43 / /data rw - fuse.sshfs me@server:/ rw
35 27 0:44 / /homely rw - tmpfs tmpfs rw
""".strip()


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/graphs.db", "ext4"),
        ("/home/me/state/graphs.db", "nfs4"),
        ("/home", "nfs4"),
        ("/home/local/graphs.db", "xfs"),
        ("/homely/graphs.db", "tmpfs"),
        ("/homes/graphs.db", "ext4"),
        ("/mnt/with blank\\slash/graphs.db", "cifs"),
        ("/mnt/graphs.db", "ext4"),
        ("/data/graphs.db", "fuse.sshfs"),
    ],
)
def test_the_deepest_and_last_mount_above_a_path_counts(path: str, kind: str) -> None:
    assert type_of(Path(path), MOUNTS) == kind


def test_where_nothing_is_mounted_nothing_is_known() -> None:
    assert type_of(Path("/graphs.db"), "") == ""


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "9p", "smb3", "fuse.sshfs", "ceph"])
def test_network_file_systems_are_known_by_name(kind: str) -> None:
    assert kind in NETWORK_TYPES


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs", "zfs", "tmpfs", "overlay"])
def test_local_file_systems_are_not_among_them(kind: str) -> None:
    assert kind not in NETWORK_TYPES


def test_a_link_leads_to_the_place_it_points_to(tmp_path: Path) -> None:
    (tmp_path / "here").symlink_to("/proc")
    assert network_type(tmp_path / "here" / "graphs.db") == ""
    mounts = Path("/proc/self/mountinfo").read_text("utf-8")
    assert type_of((tmp_path / "here" / "graphs.db").resolve(), mounts) == "proc"
