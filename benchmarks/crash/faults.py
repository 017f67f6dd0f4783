"""What comes between a run and its store's server: told to happen, timed, and taken back."""

from __future__ import annotations

import contextlib
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator

from benchmarks.crash.fates import Fate, Means
from benchmarks.crash.stores import PostgresKept

PICKED_S = 4.0  #: how long until a commit may be met: a claim is renewed every 3 s
RESUMED_S = 20.0  #: within so many seconds a run uses its store again, or it hangs
_PAUSE_S = 0.02


def ended(pidfd: int, limit_s: float) -> bool:
    """Whether the process ends within so many seconds."""
    return bool(select.select([pidfd], [], [], limit_s)[0])


def befall(kept: PostgresKept, fate: Fate, pidfd: int, kill: Callable[[], None]) -> bool:
    """The fault, from beginning to end, with the kill if it is to come within; whether it has met the process."""
    match fate.means:
        case Means.RESET:
            kept.proxy.reset()
        case Means.UNANSWERED:
            return _cut(kept, fate, pidfd)
        case Means.RESTART:
            kept.server.crash()
            try:
                _last(fate, pidfd, kill)
            finally:
                kept.server.start()
        case Means.SILENT:
            with silence(kept):
                _last(fate, pidfd, kill)
        case _:
            raise AssertionError(f"{fate.means} is no fault of a server")
    return True


def _last(fate: Fate, pidfd: int, kill: Callable[[], None]) -> None:
    if not ended(pidfd, fate.lasts_s) and fate.within:
        kill()


def _cut(kept: PostgresKept, fate: Fate, pidfd: int) -> bool:
    if not fate.early:
        kept.tap.arm(fate.moment, fate.passage)
    select.select([kept.tap.struck, pidfd], [], [], PICKED_S)
    return kept.tap.disarm()


@contextlib.contextmanager
def silence(kept: PostgresKept) -> Iterator[None]:
    """Connections stay, new ones are taken, and nothing is passed on until the end."""
    kept.proxy.fall_silent()
    try:
        yield
    finally:
        kept.proxy.heal()


def resumed(kept: PostgresKept, pidfd: int) -> float | None:
    """Seconds until the run has used its store again; None if it did not in time. Ending is using it."""
    began, since = time.monotonic(), kept.moved()
    while time.monotonic() < began + RESUMED_S:
        if ended(pidfd, _PAUSE_S):
            return time.monotonic() - began
        moved = kept.moved()
        if since is None:
            since = moved
        elif moved is not None and moved > since:
            return time.monotonic() - began
    return None


@contextlib.contextmanager
def suspended(process: subprocess.Popen[bytes]) -> Iterator[None]:
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)
