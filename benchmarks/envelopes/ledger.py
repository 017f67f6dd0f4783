"""The ledger of the campaign's turns: outside of what is tried, and sharing no code with it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import attrs


@attrs.frozen
class Note:
    """An executor began or ended. `payload` is what it was given; `at` by the monotonic clock, which all processes of a
    machine share."""

    item: str
    tenant: str
    session: str
    kind: str
    payload: str
    pid: int
    what: str  # began, ended
    at: float


class Ledger:
    """Appended to by many processes at once, each line in one write."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def add(self, note: Note) -> None:
        line = (json.dumps(attrs.astuple(note), separators=(",", ":")) + "\n").encode()
        assert os.write(self._file, line) == len(line)

    def close(self) -> None:
        os.close(self._file)


def read(path: Path) -> list[Note]:
    """In the order in which they were written."""
    if not path.exists():
        return []
    return [Note(*json.loads(line)) for line in path.read_text("utf-8").splitlines()]
