"""`bench durable`: what a change costs that is on the disk before it is acknowledged, beside the database's own floor.

Product and floor take turns on the same server in the same run. A lone change is a `hold` or a `release`, its history
entry and its reply included; a burst is a hundred callers at once, whose changes share a commit.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import attrs

from dispatch.bench.bare import Bare, BarePostgres, BareSqlite, pgbench_us, rows_of, sync_us
from dispatch.bench.environment import environment
from dispatch.bench.instant import InstantHost
from dispatch.bench.restore import measure_restore
from dispatch.capping import FixedCap
from dispatch.service import DispatchService
from dispatch.slice import Slice
from dispatch.store import Claim, Contents, Store, open_store
from dispatch.store.port import Changes, History, history_of

BURST = 100  #: callers at once
_LONE, _BURSTS = 100, 20  # changes in a turn, and bursts in one
_EDGES = 3  # predecessors of each slice of the graph that is restored


@attrs.frozen
class Cost:
    """One kind of work on one store, in microseconds a change (or a slice): the product's and the floor's, medians.

    `commits` and `log_bytes`: how many commits the product made for each change, and how much it added to the
    database's log (None where the database doesn't say); exact. `peak_bytes`: by how much a process that restores a
    graph grows for each slice, at the highest; `floor_bytes` the same for the floor.
    """

    store: str
    what: str
    product_us: float
    floor_us: float
    commits: float
    log_bytes: float | None = None
    peak_bytes: float | None = None
    floor_bytes: float | None = None

    @property
    def ratio(self) -> float:
        return self.product_us / self.floor_us


@attrs.frozen
class Durable:
    """A run of the benchmark: its rows, what a synced write costs in the folder of the SQLite file, what a transaction
    of `pgbench -N` costs on the PostgreSQL server (None without one, or without pgbench), and where it ran."""

    rows: tuple[Cost, ...]
    sync_us: float
    pgbench_us: float | None
    env: dict[str, Any]


class Counting:
    """A store that counts its writes: one commit each. It keeps history, as the store does."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.writes = 0

    def history(self) -> History:
        history = history_of(self._store)
        assert history is not None, "every store here keeps a log"
        return history

    @property
    def url(self) -> str:
        return self._store.url

    def claim(self, graph: str, *, take_over: bool = False) -> Claim:
        return self._store.claim(graph, take_over=take_over)

    def load(self) -> Contents:
        return self._store.load()

    def write(self, changes: Changes) -> None:
        self.writes += 1
        self._store.write(changes)

    def renew(self) -> None:
        self._store.renew()

    def release(self) -> None:
        self._store.release()

    def peek(self, graph: str) -> tuple[Contents, Claim | None]:
        return self._store.peek(graph)


@attrs.frozen
class Place:
    """A database to measure: its name in the table, the product's store in it, and its floor."""

    name: str
    url: str
    bare: Callable[[], Bare]  # made when the product's tables are there


@contextmanager
def sqlite_place(folder: Path) -> Iterator[Place]:
    """New files in `folder`, removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="bench-", dir=folder) as inside:
        files = itertools.count()
        yield Place("sqlite", f"sqlite:///{inside}/product.db", lambda: BareSqlite(Path(inside, f"{next(files)}.db")))


def postgres_place(url: str) -> Place:
    """The database at `url`. The floor's tables are dropped afterwards; the product's graphs stay, by random names."""
    return Place("postgresql", url, lambda: BarePostgres(url, f"dispatch_bench_{secrets.token_hex(4)}"))


def measure_durable(
    folder: Path,
    postgres: str = "",
    slices: int = 100_000,
    repeat: int = 5,
    progress: Callable[[str], None] = lambda _: None,
) -> Durable:
    """Measure a SQLite file in `folder` and, if it is named, the PostgreSQL database `postgres`."""
    env = environment() | {"slices": slices, "burst": BURST, "repeat": repeat}
    rows: list[Cost] = []
    with ExitStack() as open_ones:
        places = [open_ones.enter_context(sqlite_place(folder))]
        if postgres:
            places.append(postgres_place(postgres))
        for place in places:
            rows += _measure(place, slices, repeat, progress)
    progress("the disk")
    return Durable(tuple(rows), sync_us(folder), pgbench_us(postgres) if postgres else None, env)


def _measure(place: Place, slices: int, repeat: int, progress: Callable[[str], None]) -> Iterator[Cost]:
    progress(f"{place.name}: one change at a time, and bursts of {BURST}")
    graph, store = _name(), Counting(open_store(place.url))
    with DispatchService(InstantHost(0), store, graph, measures=FixedCap(1)) as service:
        service.pause()
        service.enqueue_many(Slice(f"s{i}") for i in range(BURST))
        with closing(place.bare()) as bare:
            bare.fill(rows_of(place.url, graph))
            lone = (_lone(service), _bare_lone(bare), _LONE)
            bursts = (_bursts(service), _bare_bursts(bare), _BURSTS * BURST)
            for what, (product, floor, changes) in (("lone", lone), ("burst", bursts)):
                yield _in_turns(place.name, what, store, bare, repeat, product, floor, changes)
    progress(f"{place.name}: {slices:,} slices at once, and read back")
    yield from _bulk(place, slices)


def _in_turns(
    name: str,
    what: str,
    store: Counting,
    bare: Bare,
    repeat: int,
    product: Callable[[], None],
    floor: Callable[[], None],
    changes: int,
) -> Cost:
    product()  # what is made once, statements prepared and pages grown, is made
    floor()
    store.writes, logged = 0, list[float]()
    pairs = []
    for _ in range(repeat):
        before = bare.written()
        product_s = _timed(product)
        if before is not None:
            logged.append(((bare.written() or 0) - before) / changes)
        pairs.append((product_s, _timed(floor)))
    product_us, floor_us = (median(taken) / changes * 1e6 for taken in zip(*pairs, strict=True))
    return Cost(name, what, product_us, floor_us, store.writes / (changes * repeat), median(logged) if logged else None)


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _lone(service: DispatchService) -> Callable[[], None]:
    def work() -> None:
        for _ in range(_LONE // 2):
            service.hold("s0")
            service.release("s0")

    return work


def _bare_lone(bare: Bare) -> Callable[[], None]:
    def work() -> None:
        for _ in range(_LONE):
            bare.change_all(["s0"])

    return work


def _bursts(service: DispatchService) -> Callable[[], None]:
    async def burst(command: Callable[[str], Any]) -> None:
        await asyncio.gather(*(command(f"s{i}") for i in range(BURST)))

    async def bursts() -> None:
        for command in itertools.islice(itertools.cycle((service.aio.hold, service.aio.release)), _BURSTS):
            await burst(command)

    return lambda: asyncio.run(bursts())


def _bare_bursts(bare: Bare) -> Callable[[], None]:
    slice_ids = [f"s{i}" for i in range(BURST)]

    def work() -> None:
        for _ in range(_BURSTS):
            bare.change_all(slice_ids)

    return work


def _bulk(place: Place, count: int) -> Iterator[Cost]:
    """All at once, and back: once each, as it takes long, and on a graph of its own."""
    graph, slices = _name(), tuple(_wide(count))
    store = Counting(open_store(place.url))
    with DispatchService(InstantHost(0), store, graph, measures=FixedCap(1)) as service:
        service.pause()
        store.writes = 0
        enqueued_s = _timed(lambda: service.enqueue_many(slices))
        commits = store.writes
    rows = rows_of(place.url, graph)
    with closing(place.bare()) as bare:
        filled_s = _timed(lambda: bare.fill(rows))
    yield Cost(place.name, "enqueue_many", enqueued_s / count * 1e6, filled_s / count * 1e6, commits / count)
    product, floor = (measure_restore(what, place.url, graph) for what in ("product", "floor"))
    yield Cost(
        place.name,
        "restore",
        product.seconds / count * 1e6,
        floor.seconds / count * 1e6,
        commits=0.0,
        peak_bytes=product.bytes / count,
        floor_bytes=floor.bytes / count,
    )


def _wide(count: int) -> Iterator[Slice]:
    """Slices with three edges each, but for the first few."""
    for i in range(count):
        yield Slice(f"s{i}", depends_on=tuple(f"s{i - k}" for k in range(1, _EDGES + 1) if i >= k))


def _name() -> str:
    return f"bench-{secrets.token_hex(4)}"
