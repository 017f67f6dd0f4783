"""A graph's whole life, from enqueuing all of it to the last merge, in the product and in the floor."""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Iterable, Iterator, Sequence

import attrs

from dispatch.bench.floor import Loop
from dispatch.bench.instant import InstantHost
from dispatch.capping import FixedCap
from dispatch.service import DispatchService
from dispatch.slice import Slice

PLACES = 16  #: sessions at once


@attrs.frozen
class Life:
    """Seconds for all slices together: until they were enqueued, until all had merged, and processor time for both."""

    enqueue_s: float
    life_s: float
    cpu_s: float


@contextlib.contextmanager
def open_service(count: int) -> Iterator[tuple[DispatchService, InstantHost]]:
    """A paused service without a store, and the host on which `count` sessions will run."""
    host = InstantHost(count)
    with DispatchService(host, measures=FixedCap(PLACES)) as service:
        service.pause()
        yield service, host


def live(service: DispatchService, host: InstantHost, slices: Iterable[Slice]) -> Life:
    """Enqueue all, let them run, and see that each has run once and none is left."""
    cpu_s, began = time.process_time(), time.perf_counter()
    service.enqueue_many(slices)
    enqueued = time.perf_counter()
    service.resume()
    host.all_submitted.wait()
    service.settle(timeout=None)
    ended = time.perf_counter()
    cpu_s = time.process_time() - cpu_s
    assert not service.frontier(timeout=None), "a slice is left"
    return Life(enqueued - began, ended - began, cpu_s)


def service_life(slices: Sequence[Slice]) -> Life:
    """The product's, measured."""
    with open_service(len(slices)) as (service, host):
        gc.collect()
        return live(service, host, slices)


def floor_s(slices: Sequence[Slice]) -> float:
    """The floor's, in seconds."""
    gc.collect()
    began = time.perf_counter()
    merged = Loop(slices, PLACES).run()
    elapsed = time.perf_counter() - began
    assert merged == len(slices), "a slice is left"
    return elapsed
