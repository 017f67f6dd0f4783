"""ctrl-C and its like: nothing new is launched from the first one on; how a run then ends is up to its loop.

And ctrl-Z, which a live view must not be caught by."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Iterator
from types import FrameType
from typing import Any

from dispatch.cli.ending import SIGNALED, Interrupted
from harness.limits import LimitReading

HEEDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Gate:
    """A limit of the service: while it is shut nothing is launched, and what runs goes on. It is made shut."""

    def __init__(self) -> None:
        self._open = False
        self._why = "nothing is started yet"

    def open(self) -> None:
        self._open = True

    def shut(self, why: str) -> None:
        """Takes effect with the owner's next message: every pass asks anew."""
        self._open, self._why = False, why

    def cap(self, running: int) -> LimitReading:
        """No opinion while it is open, else none at all."""
        return LimitReading("gate", None if self._open else 0, self._why)


class Interrupts:
    """The signals that ask a run to end, in the order in which they came. A broken pipe counts as one.

    Until `defer` is called a signal raises `Interrupted` where the program happens to be; from then on it shuts the
    gate, is counted, and wakes who `rest`s. A signal that was ignored when the program started stays ignored.
    """

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._woken, self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._deferred = False
        self._came: list[int] = []

    @property
    def count(self) -> int:
        return len(self._came)

    @property
    def first(self) -> int:
        """The number of the signal that came first; 0 for none."""
        return self._came[0] if self._came else 0

    @property
    def name(self) -> str:
        return signal.Signals(self.first).name if self.first else ""

    @property
    def status(self) -> int:
        """The exit status of a program that a signal ended; 0 for none."""
        return SIGNALED + self.first if self.first else 0

    def defer(self) -> None:
        self._deferred = True

    def note(self, number: int) -> None:
        """A signal has come, or something that means the same."""
        self._came.append(number)
        self._gate.shut("the run is being stopped")
        self.wake()

    def wake(self) -> None:
        """Whoever rests, or is about to, looks up. From any thread."""
        with contextlib.suppress(BlockingIOError):  # full: nobody has rested since many signals
            os.write(self._wake, b"!")

    def rest(self, seconds: float | None) -> None:
        """Wait so long (None: as long as it takes), or until the next signal or `wake`. No lock is used: a handler must
        not meet one that is taken."""
        if select.select([self._woken], [], [], None if seconds is None else max(0.0, seconds))[0]:
            os.read(self._woken, 4096)

    @contextlib.contextmanager
    def heeded(self) -> Iterator[None]:
        """While inside, signals are ours; once, and in the main thread alone."""
        before = {number: signal.getsignal(number) for number in HEEDED}
        taken = [number for number in HEEDED if before[number] is not signal.SIG_IGN]
        for number in taken:
            signal.signal(number, self._handle)
        try:
            yield
        finally:
            for number in taken:
                signal.signal(number, before[number])
            os.close(self._woken)
            os.close(self._wake)

    def _handle(self, number: int, frame: FrameType | None) -> Any:
        if not self._deferred:
            self._deferred = True  # a second one must not break off the cleaning up
            raise Interrupted(number)
        self.note(number)


class Suspension:
    """ctrl-Z, put off until there is a good moment for it. Where it is ignored it stays so. For the main thread."""

    def __init__(self) -> None:
        self.asked = False
        self._before = signal.getsignal(signal.SIGTSTP) or signal.SIG_DFL
        self._take()

    def obey(self) -> None:
        """Stop the program; returns when it has been told to go on."""
        self.asked = False
        self.close()
        signal.raise_signal(signal.SIGTSTP)
        self._take()

    def close(self) -> None:
        """ctrl-Z does again what it did before."""
        signal.signal(signal.SIGTSTP, self._before)

    def _take(self) -> None:
        if self._before is not signal.SIG_IGN:
            signal.signal(signal.SIGTSTP, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.asked = True
