"""The ledger of the campaign's turns: outside of what is tried, and sharing no code with it.

A note tells when its effect was asked for and when it was written, by the monotonic clock, which all processes of a
machine share: between the two lies the renewal of the lease, and whatever kept the process from going on.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import attrs


@attrs.frozen
class Note:
    """A line of the ledger."""

    item: str
    session: str
    epoch: int
    token: int
    attempt: int
    pid: int
    what: str  # start, effect, done
    number: int
    asked_at: float
    written_at: float


class Ledger:
    """Appended to by many processes at once, each line in one write, on the disk when `add` returns."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def add(self, note: Note) -> None:
        line = json.dumps(attrs.astuple(note), separators=(",", ":")) + "\n"
        assert os.write(self._file, line.encode()) == len(line)
        os.fsync(self._file)


def read(path: Path) -> list[Note]:
    """In the order in which they were written. A last line that a kill cut short never was."""
    lines: list[Any] = path.read_text("utf-8").split("\n")[:-1]
    return [Note(*json.loads(line)) for line in lines]


def holders(notes: Iterable[Note], since: float) -> set[int]:
    """The processes that have written of a turn since then, and not yet that it is done: they most likely hold it."""
    last = {note.item: note for note in notes}
    return {note.pid for note in last.values() if note.what != "done" and note.written_at >= since}
