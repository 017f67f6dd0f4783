"""Which file system a path lies on, to keep a database off those that several machines share.

SQLite's write-ahead log needs memory shared by all who have the file open, which no network file system gives: with
two machines at it the database is damaged. Source: sqlite.org/wal.html.
"""

from __future__ import annotations

import re
from pathlib import Path

#: Types as /proc/self/mountinfo names them. Folders that a virtual machine shares with its host count too.
NETWORK_TYPES = frozenset(
    {
        *(
            "9p",
            "acfs",
            "afs",
            "beegfs",
            "ceph",
            "cifs",
            "coda",
            "davfs",
            "fhgfs",
            "gfs2",
            "glusterfs",
            "gpfs",
            "lustre",
        ),
        *("ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "prl_fs", "pvfs2", "smb2", "smb3", "smbfs", "vboxsf", "vmhgfs"),
        *("fuse.ceph", "fuse.davfs2", "fuse.gcsfuse", "fuse.glusterfs", "fuse.grpcfuse", "fuse.juicefs", "fuse.mfs"),
        *("fuse.osxfs", "fuse.rclone", "fuse.s3fs", "fuse.smbnetfs", "fuse.sshfs", "fuse.vmhgfs-fuse"),
    }
)
_ESCAPE = re.compile(r"\\([0-7]{3})")


def network_type(path: Path) -> str:
    """The type of the network file system that `path` lies on; empty if it is local or the system doesn't tell."""
    try:
        mounts = Path("/proc/self/mountinfo").read_text("utf-8", "surrogateescape")
    except OSError:
        return ""
    found = type_of(path.resolve(), mounts)
    return found if found in NETWORK_TYPES else ""


def type_of(path: Path, mounts: str) -> str:
    """The type of the file system of `path`, which is absolute and free of links, by the lines of a mountinfo.

    The deepest mount point above the path counts; of several on one point, the last. Source: proc(5).
    """
    deepest, found = -1, ""
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        mounted_at = Path(_ESCAPE.sub(lambda match: chr(int(match[1], 8)), before.split()[4]))
        if len(mounted_at.parts) >= deepest and path.is_relative_to(mounted_at):
            deepest, found = len(mounted_at.parts), after.split()[0]
    return found
