"""What a child writes: kept in a file up to a limit, and its last line, whatever the bytes are."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import attrs

from harness.text import sanitize

TAIL_SIZE = 64 * 1024  #: of an output beyond the limit the last so many bytes are kept: errors stand at the end
LINE_LIMIT = 300  #: characters of a line that are shown
LINE_SIZE = 4 * LINE_LIMIT + 2048  #: bytes of a line that are read for it; colours take some
LOOK_BACK = 8  #: lines that may be blank, or hold nothing but colours, behind the last one that says something


def log_path(root: Path, graph_id: str, slice_id: str, attempt: int) -> Path:
    """Where the output of an attempt is, of a host whose state lies in `root`. Two graphs may use one slice id."""
    return root / "logs" / graph_id / slice_id / f"{attempt}.log"


@attrs.define(eq=False)
class CappedLog:
    """An append-only file that holds the beginning and the end of what is written to it.

    Up to `limit` bytes all is kept, as it comes. Of a longer output the head is in the file at once and the last
    `TAIL_SIZE` bytes follow at `close`, behind a note of how many were left out between them. What can't be written,
    as on a full disk, is dropped and noted once something can be written again. Nothing is raised after `open`.
    """

    limit: int
    _descriptor: int
    _head_left: int
    _tail_size: int
    _tail: bytearray = attrs.field(factory=bytearray, init=False)
    _left_out: int = attrs.field(default=0, init=False)
    _lost: int = attrs.field(default=0, init=False)
    _lost_unnoted: int = attrs.field(default=0, init=False)
    _reason: str = attrs.field(default="", init=False)

    @classmethod
    def open(cls, path: Path, limit: int) -> CappedLog:
        """Appends to the file, made for the owner alone along with its folder. Raises `OSError` if it can't be."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        try:
            descriptor = os.open(path, flags, 0o600)
        except FileNotFoundError:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, flags, 0o600)
        tail_size = min(TAIL_SIZE, limit // 4)
        return cls(limit, descriptor, limit - tail_size, tail_size)

    @property
    def dropped_bytes(self) -> int:
        """Of what was written so far: left out, or lost to errors."""
        return self._left_out + self._lost

    def write(self, chunk: bytes) -> None:
        head, rest = chunk[: self._head_left], chunk[self._head_left :]
        if head:
            self._head_left -= len(head)
            self._put(head)
        if rest:
            self._tail += rest
            excess = len(self._tail) - self._tail_size
            if excess > 0:
                del self._tail[:excess]
                self._left_out += excess

    def close(self) -> None:
        if self._left_out:
            self._note(f"{self._left_out} bytes left out here: the log of one run is limited to {self.limit}")
        self._put(bytes(self._tail))
        os.close(self._descriptor)

    def _put(self, data: bytes) -> None:
        if self._lost_unnoted and self._note(f"{self._lost_unnoted} bytes lost here: {self._reason}"):
            self._lost_unnoted = 0
        lost = self._write(data)
        self._lost += lost
        self._lost_unnoted += lost

    def _note(self, words: str) -> bool:
        return not self._write(f"\n[dispatch: {words}]\n".encode())

    def _write(self, data: bytes) -> int:
        """How many bytes at the end of `data` could not be written."""
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except OSError as error:
                self._reason = os.strerror(error.errno or errno.EIO)
                break
        return len(rest)


@attrs.define(eq=False)
class LastLine:
    """The last line that isn't blank, of a stream in chunks cut anywhere. LF and CR end a line. Memory is bounded."""

    text: str = ""
    _begun: bytes = b""

    def feed(self, chunk: bytes) -> bool:
        """Whether a line was completed that isn't blank; it is then `.text`, sanitised and cut."""
        data = self._begun + chunk
        end = max(data.rfind(b"\n"), data.rfind(b"\r"))
        self._begun = data[end + 1 :][:LINE_SIZE]
        return end >= 0 and self._show(data[:end])

    def finish(self) -> bool:
        """The same for a last line without an end."""
        begun, self._begun = self._begun, b""
        return self._show(begun)

    def _show(self, lines: bytes) -> bool:
        for line in reversed(lines.rstrip().splitlines()[-LOOK_BACK:]):
            if text := sanitize(line[:LINE_SIZE], LINE_LIMIT):
                self.text = text
                return True
        return False
