"""A lock between threads and between processes: flock on a file that stays.

The kernel gives such a lock up when the last copy of the descriptor is closed, whatever becomes of the process, so it
is never stale and its file is never removed. A child that inherits the descriptor keeps the lock until it ends too.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path

from harness.local.errors import LocalHostError
from harness.procfs import stat_of

logger = logging.getLogger(__name__)

TELL_S = 5.0  #: how long one waits in silence; what holds these locks, a few git commands, takes less
_LOCKS = Path("/proc/locks")


class LockTimeoutError(LocalHostError):
    """Another process holds the lock and didn't give it up in time."""

    def __init__(self, path: Path, waited_s: float) -> None:
        super().__init__(f"{path} is held by another process for {waited_s:.0f} s: {_holder_in_words(path)}")
        self.path = path


class FileLock:
    """Held by one thread of one process at a time. Not reentrant."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._threads = threading.Lock()
        self._closing = weakref.finalize(self, os.close, self.descriptor)

    @contextlib.contextmanager
    def held(self, timeout_s: float = 600.0) -> Iterator[int]:
        """Holds it for the block, whose value is the descriptor to hand to children that must outlast us.

        Raises `LockTimeoutError` if another process keeps it longer than `timeout_s`.
        """
        with self._threads:
            self._wait(timeout_s)
            try:
                yield self.descriptor
            finally:
                fcntl.flock(self.descriptor, fcntl.LOCK_UN)

    def try_hold(self) -> bool:
        """Holds it until `release` if nobody does; says whether it does now."""
        try:
            fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def release(self) -> None:
        """Gives up what `try_hold` took, and the file with it: the object is of no further use. Again, does nothing."""
        self._closing()

    def read(self) -> str:
        """What the file holds: a note of the holder's, or of a dead one's."""
        return os.pread(self.descriptor, 1 << 16, 0).decode("utf-8", errors="replace")

    def write(self, note: str) -> None:
        """Leaves a note in the file for whoever holds the lock next."""
        data = note.encode()
        os.pwrite(self.descriptor, data, 0)
        os.ftruncate(self.descriptor, len(data))

    def _wait(self, timeout_s: float) -> None:
        begun_at = time.monotonic()
        pause_s, told = 0.001, False
        while not self.try_hold():
            waited_s = time.monotonic() - begun_at
            if waited_s >= timeout_s:
                raise LockTimeoutError(self.path, timeout_s)
            if waited_s >= TELL_S and not told:
                told = True
                logger.warning("waiting for %s: %s", self.path, _holder_in_words(self.path))
            time.sleep(pause_s)  # the kernel offers no wait with a limit; only another process makes us wait here
            pause_s = min(2 * pause_s, 0.05)


def holder(path: Path) -> int:
    """The process that took the lock on that file, by the kernel's list; 0 if it isn't told. Source: proc_locks(5)."""
    status = path.stat()
    file = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    with contextlib.suppress(OSError):  # no such list: some containers hide it
        for line in _LOCKS.read_text("ascii", "replace").splitlines():
            fields = line.split()
            if fields[1:2] == ["FLOCK"] and fields[5:6] == [file]:
                return int(fields[4])
    return 0


def _holder_in_words(path: Path) -> str:
    """Who holds it, and the way out."""
    pid = holder(path)
    stat = stat_of(pid) if pid > 0 else None
    if stat is None or stat.ended:
        return f"something that it started may hold it still; see what with: fuser {path}"
    if stat.state in ("T", "t"):
        return f"process {pid} holds it and is suspended; let it go on with: kill -CONT {pid}; or end it: kill -9 {pid}"
    return f"process {pid} holds it; wait for it, or end it: kill {pid}"
