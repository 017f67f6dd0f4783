"""Who writes to a SQLite file, within a process: one after another.

Left to SQLite, whoever finds another writing sleeps for a while and looks again, even if that one is the next thread.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path

_guard = threading.Lock()
_turns: weakref.WeakValueDictionary[Path, threading.Lock] = weakref.WeakValueDictionary()


def turn_at(path: Path) -> threading.Lock:
    """The turn to write to that file. It goes when none of its clients has it any more."""
    with _guard:
        turn = _turns.get(path)
        if turn is None:
            turn = _turns[path] = threading.Lock()
        return turn


@contextlib.contextmanager
def taking(turn: threading.Lock, patience_s: float) -> Iterator[None]:
    """Holds the turn, or goes on without it after so many seconds: then SQLite has the last word."""
    is_ours = turn.acquire(timeout=patience_s)
    try:
        yield
    finally:
        if is_ours:
            turn.release()
