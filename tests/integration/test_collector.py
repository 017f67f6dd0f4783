"""Where a whole graph is made or written, the garbage collector keeps out of the way; and nowhere else."""

from __future__ import annotations

import gc
from collections.abc import Callable

from dispatch import DispatchService, Slice
from dispatch.bench.instant import InstantHost
from dispatch.capping import FixedCap
from dispatch.store import Changes, Contents, MemoryStore
from harness import SessionPhase, SessionState

MANY = 5_000


class Watched(MemoryStore):
    """Notes of each load and write whether the collector is on, and how many slices it is about."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[bool, int]] = []

    def load(self) -> Contents:
        contents = super().load()
        self.seen.append((gc.isenabled(), len(contents.slices)))
        return contents

    def write(self, changes: Changes) -> None:
        self.seen.append((gc.isenabled(), len(changes.slices)))
        super().write(changes)


def of_many(store: Watched, use: Callable[[Watched], None]) -> set[bool]:
    store.seen.clear()
    use(store)
    assert gc.isenabled()
    return {enabled for enabled, slices in store.seen if slices}


def test_many_slices_are_taken_in_and_written_without_a_collection_and_read_back_so() -> None:
    """Also if a message has come in meanwhile, as it has when to take them in takes a second."""
    store = Watched()
    services: list[DispatchService] = []

    def clock() -> float:
        while services:
            services.pop().observe_session(SessionState("of nobody", SessionPhase.RUNNING))
        return 1.0

    def enqueue(store: Watched) -> None:
        with DispatchService(InstantHost(0), store, measures=FixedCap(1), clock=clock) as service:
            service.pause()
            services.append(service)
            service.enqueue_many(Slice(f"s{n}") for n in range(MANY))

    def start(store: Watched) -> None:
        DispatchService(InstantHost(0), store, measures=FixedCap(1)).start().stop()

    assert of_many(store, enqueue) == {False}
    assert of_many(store, start) == {False}


def test_a_few_slices_are_written_with_the_collector_on() -> None:
    def enqueue(store: Watched) -> None:
        with DispatchService(InstantHost(0), store, measures=FixedCap(1)) as service:
            service.pause()
            service.enqueue(Slice("a"))

    assert of_many(Watched(), enqueue) == {True}
