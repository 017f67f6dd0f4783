"""Connections to a server whose wire is read along: at a commit that was picked, the connection is cut around it."""

from __future__ import annotations

import os
import re
import socket
import threading
from pathlib import Path

# Messages of the protocol, as bytes. Source: postgresql.org/docs/current/protocol-message-formats.html.
_COMMITTED = b"C\0\0\0\x0bCOMMIT\0"  # CommandComplete
_COMMIT = b"\0COMMIT\0"  # in a Parse: the statement; one that is to be named has its name before
_NAMED = re.compile(rb"(dispatch_[0-9a-f]+_\d+)\0COMMIT\0")


class Tap:
    """Makes connections to a server's socket. `arm` picks the commit; `struck` becomes readable once it was met."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._moment, self._left = "", 0
        self.struck = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def arm(self, moment: str, passage: int) -> None:
        """Cut at the `passage`-th commit from now on: `before` it gets to the server, `after` it was done, its answer
        on the way, or `beside`: it is on its way, and nobody waits to hear what becomes of it."""
        with self._lock:
            self._moment, self._left = moment, passage

    def disarm(self) -> bool:
        """Whether it has struck since it was armed."""
        with self._lock:
            struck, self._moment = not self._moment, ""
        try:
            os.eventfd_read(self.struck)
        except BlockingIOError:
            return False
        return struck

    def close(self) -> None:
        os.close(self.struck)

    def dial(self) -> socket.socket:
        connection = _Tapped(self)
        try:
            connection.connect(str(self._path))
        except OSError:
            connection.close()
            raise
        return connection

    def passes(self, *moments: str) -> bool:
        """Told of a commit that is about to be cut at one of these moments; False if this is the one."""
        with self._lock:
            if self._moment not in moments:
                return True
            self._left -= 1
            if self._left > 0:
                return True
            self._moment = ""
        os.eventfd_write(self.struck, 1)
        return False


class _Tapped(socket.socket):
    """The proxy's side of a connection to the server. Whoever finds the other end gone hangs up on the client."""

    def __init__(self, tap: Tap) -> None:
        super().__init__(socket.AF_UNIX)
        self._tap = tap
        self._names: set[bytes] = set()

    def recv(self, bufsize: int, flags: int = 0, /) -> bytes:
        data = super().recv(bufsize, flags)
        if _COMMITTED in data and not self._tap.passes("after"):
            raise ConnectionResetError("cut after a commit")
        return data

    def sendall(self, data: bytes, flags: int = 0, /) -> None:  # type: ignore[override]
        if not self._commits(data):
            super().sendall(data, flags)
            return
        if not self._tap.passes("before"):
            raise ConnectionResetError("cut before a commit")
        super().sendall(data, flags)
        if not self._tap.passes("beside"):
            raise ConnectionResetError("cut beside a commit")

    def _commits(self, data: bytes) -> bool:
        """Whether a client asks for a commit here. A transaction travels in one piece, or in few large ones."""
        self._names.update(_NAMED.findall(data))
        return _COMMIT in data or any(b"\0" + name + b"\0" in data for name in self._names)
