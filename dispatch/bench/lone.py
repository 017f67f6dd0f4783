"""What one `enqueue` costs its caller when nothing else goes on, beside a bare question to a Pykka actor."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

import attrs
import pykka

from dispatch.bench.instant import InstantHost
from dispatch.capping import FixedCap
from dispatch.service import DispatchService
from dispatch.slice import Slice
from dispatch.store import MemoryStore

_ROUNDS = 20
_CALLS = 50


@attrs.frozen
class Lone:
    """Microseconds a call: `enqueue` of one slice with a memory store, and `ask` of an actor that answers at once."""

    enqueue_us: float
    ask_us: float

    @property
    def ratio(self) -> float:
        return self.enqueue_us / self.ask_us


class Echo(pykka.ThreadingActor):
    """Answers what it is asked."""

    use_daemon_thread = True

    def on_receive(self, message: Any) -> Any:
        return message


def measure_lone(rounds: int = _ROUNDS, calls: int = _CALLS) -> Lone:
    """Both in turns; medians of the rounds. The graph is paused: what a launch costs is another row's matter.

    On one core. Whether the kernel wakes a thread on the core it slept on or on an idle one changes from call to call
    and costs more than all that is measured here: 8 or 80 microseconds on the virtual machine where this was written.
    """
    names = (f"s{i}" for i in range(rounds * calls))
    echo = Echo.start()
    try:
        with DispatchService(InstantHost(0), MemoryStore(), measures=FixedCap(1)) as service, _on_one_core():
            service.pause()
            pairs = [
                (_each(calls, lambda: service.enqueue(Slice(next(names)))), _each(calls, lambda: echo.ask("")))
                for _ in range(rounds)
            ]
    finally:
        echo.stop()
    return Lone(*map(median, zip(*pairs, strict=True)))


@contextlib.contextmanager
def _on_one_core() -> Iterator[None]:
    """All threads of this process, where the system lets one say so."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    cores = os.sched_getaffinity(0)
    _confine({min(cores)})
    try:
        yield
    finally:
        _confine(cores)


def _confine(cores: set[int]) -> None:
    for thread in threading.enumerate():
        if thread.native_id is not None:
            os.sched_setaffinity(thread.native_id, cores)


def _each(calls: int, call: Callable[[], object]) -> float:
    began = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - began) / calls * 1e6
