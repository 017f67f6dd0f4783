"""What an attempt has printed, shown at once or as it comes."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import attrs

from dispatch.cli.ending import RefusedError
from dispatch.store import Store
from harness.text import TERMINAL_SEQUENCE, printable

PIECE = 1 << 16  #: bytes that are copied at once
LONGEST = 1 << 16  #: bytes of a line; the rest of a longer one is shown on the next
LOOK_S = 0.2  #: between two looks at a log that grows
ASK_S = 1.0  #: between two looks at the store, which tells whether the attempt has ended
SHARE = 20  #: a look at the store that took t seconds is followed by none for SHARE * t


@attrs.define
class Printer:
    """Passes bytes on to stdout: as they are into a file or a pipe, else line by line and free of what would act."""

    terminal: bool
    _begun: bytes = attrs.field(default=b"", init=False)

    def put(self, piece: bytes) -> None:
        if not self.terminal:
            sys.stdout.buffer.write(piece)
            return
        *lines, self._begun = (self._begun + piece).split(b"\n")
        for line in lines:
            sys.stdout.write(shown(line))
        if len(self._begun) >= LONGEST:
            self.finish()

    def finish(self) -> None:
        """Shows a last line that has no end."""
        begun, self._begun = self._begun, b""
        if begun:
            sys.stdout.write(shown(begun))


def shown(line: bytes) -> str:
    text = line.decode("utf-8", "replace").rstrip("\r").replace("\t", "        ")
    return printable(TERMINAL_SEQUENCE.sub("", text)) + "\n"


def print_log(path: Path) -> None:
    """All that is there by now."""
    printer = Printer(sys.stdout.isatty())
    with _opened(path) as file:
        _pass_on(file, printer)
    printer.finish()


def follow_log(path: Path, has_ended: Callable[[], bool]) -> None:
    """What is there and what comes, until the attempt has ended. The file may be made later than we begin."""
    over = has_ended()
    while not over and not path.exists():
        time.sleep(LOOK_S)
        over = has_ended()
    printer = Printer(sys.stdout.isatty())
    with _opened(path) as file:
        while not over:
            _pass_on(file, printer)
            sys.stdout.flush()
            time.sleep(LOOK_S)  # another process writes, and sends no word of it
            over = has_ended()
        _pass_on(file, printer)  # asked first, read then: nothing comes any more
    printer.finish()


def _opened(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except FileNotFoundError:
        why = "its agent was not started, or somebody removed it; `explain` says what became of the attempt"
        raise RefusedError(f"there is no log at {path}: {why}") from None
    except OSError as error:
        raise RefusedError(f"{path} can't be read: {error.strerror}") from None


def _pass_on(file: BinaryIO, printer: Printer) -> None:
    while piece := file.read(PIECE):
        printer.put(piece)


@attrs.define
class EndOfAttempt:
    """Asks the store, not too often, whether an attempt has ended or the process that ran it is gone."""

    store: Store
    graph: str
    slice_id: str
    attempt: int
    clock: Callable[[], float] = time.monotonic
    _ended: bool = attrs.field(default=False, init=False)
    _next_look: float = attrs.field(default=float("-inf"), init=False)

    def __call__(self) -> bool:
        began = self.clock()
        if not self._ended and began >= self._next_look:
            self._ended = self._look()
            now = self.clock()
            self._next_look = now + max(ASK_S, SHARE * (now - began))
        return self._ended

    def _look(self) -> bool:
        contents, claim = self.store.peek(self.graph)
        mine = (row for row in contents.attempts if (row.slice_id, row.attempt) == (self.slice_id, self.attempt))
        return claim is None or all(row.outcome for row in mine)
