"""`bench fleet`: what a turn costs that does nothing, from its admission to its end, beside other queues and a floor.

All contenders take turns in one run, on the same PostgreSQL server (and in SQLite files in the same folder). Those who
admit are one process, those who work are others. A *burst* is many turns admitted in one go to workers that wait: it is
measured from there until nine tenths are done for good, so that the last few, which somebody's buffer keeps for a
while, decide nothing. Turns that are admitted to an idle queue, one at a time, are timed from the call that admits them
until they begin (*start*) and until they are done for good (*end*), and from the one to the other (*commit*).
"""

from __future__ import annotations

import itertools
import secrets
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any, Protocol, TypeAlias
from urllib.parse import quote, urlencode

import attrs
import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from dispatch.bench.environment import environment
from dispatch.bench.fleet_bare import BarePostgres, BareSqlite
from dispatch.bench.fleet_crew import Crew, Done
from dispatch.bench.fleet_ours import Ours

SLOTS = 10  #: turns that a worker runs at once, or claims at once where it runs them one by one
CREWS = (1, 4)  #: worker processes
BATCHES = (1, SLOTS, 100)  #: of the floor
FLOOR = f"bare {SLOTS}"  #: the contender that others are held against
PEERS = ("pgqueuer", "procrastinate", "huey")  #: which `fleet_peers` knows,
PEERS_NEED = ("asyncpg", "huey", "pgqueuer", "procrastinate", "uvloop")  #: and what that imports
BURSTS = ("admit_one", "admit_many", *(f"work_{size}" for size in CREWS))
ALONE = tuple(f"{what}_{size}" for what in ("start", "commit", "end") for size in CREWS)
WHAT = (*BURSTS, *ALONE)
_COUNTED = 0.9  # of a burst
_IDLE_S = 0.02  # between two starts: who worked is waiting again


class NoServerError(Exception):
    """There is nothing to measure on. One line."""


class Contender(Protocol):
    """A queue, seen by those who admit to it. `work` names what its workers do (see `fleet_member`)."""

    name: str
    place: str
    batch: int

    @property
    def work(self) -> str: ...

    def admit(self, names: Sequence[str]) -> None:
        """Turns of these names, in as few transactions as it can; durable on return. Several calls, several times."""
        ...

    def close(self) -> None: ...


@attrs.frozen
class Sizes:
    """How many turns: admitted one by one, in a burst, and one at a time to an idle queue; and how often all of it."""

    ones: int = 200
    burst: int = 1000
    starts: int = 50
    repeat: int = 5


@attrs.frozen
class Cost:
    """What one contender takes for one kind of work, in microseconds a turn: the median of all repetitions.

    Of turns one at a time, `us` is the median of all, and `p99_us` what one in a hundred exceeds. `commits` and
    `wal_bytes` are for each turn: transactions that wrote something, and what was added to the database's log; of turns
    that are worked off, from admission to end. None where the database doesn't say. `ratio` is to the floor's `us`.
    """

    store: str
    who: str
    what: str
    us: float
    p99_us: float | None
    commits: float | None
    wal_bytes: float | None
    ratio: float


@attrs.frozen
class Fleet:
    """A run of the benchmark: its rows, and where it ran."""

    rows: tuple[Cost, ...]
    env: dict[str, Any]


@attrs.frozen
class Sample:
    """Of one repetition. `us` has one value, or one for each turn."""

    us: tuple[float, ...]
    commits: float | None
    wal_bytes: float | None


#: Transactions that wrote and bytes of the log so far; None if the database doesn't say.
Meter: TypeAlias = Callable[[], tuple[int, int] | None]


@attrs.frozen
class Arena:
    """A database with its contenders."""

    store: str
    contenders: tuple[Contender, ...]
    meter: Meter


def measure_fleet(
    folder: Path,
    postgres: str = "",
    against: Sequence[str] = (),
    sizes: Sizes = Sizes(),
    progress: Callable[[str], None] = lambda _: None,
) -> Fleet:
    """Measure on SQLite files in `folder` and, if it is named, in a new database on the server of `postgres`.

    Raises `NoServerError` if there can't be one.
    """
    env = environment() | attrs.asdict(sizes) | {"slots": SLOTS, "peers": {name: version(name) for name in against}}
    rows: list[Cost] = []
    with ExitStack() as open_ones:
        arenas = [open_ones.enter_context(_sqlite_arena(folder, against))]
        if postgres:
            arenas.append(open_ones.enter_context(_postgres_arena(postgres, against)))
        for arena in arenas:
            rows += _measured(arena, sizes, progress)
    return Fleet(tuple(rows), env)


# -- where it takes place ----------------------------------------------------------------------------------------------


@contextmanager
def _sqlite_arena(folder: Path, against: Sequence[str]) -> Iterator[Arena]:
    """New files in `folder`, removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="bench-", dir=folder) as inside, ExitStack() as open_ones:
        contenders: list[Contender] = [Ours(inside, SLOTS), *(BareSqlite(inside, batch) for batch in BATCHES)]
        if "huey" in against:
            from dispatch.bench.fleet_peers import Huey

            contenders.append(Huey(inside, SLOTS))
        for contender in contenders:
            open_ones.enter_context(closing(contender))
        yield Arena("sqlite", tuple(contenders), lambda: None)


@contextmanager
def _postgres_arena(url: str, against: Sequence[str]) -> Iterator[Arena]:
    """A database of its own, dropped afterwards: nothing here comes near a queue that is in use."""
    name = f"dispatch_bench_{secrets.token_hex(4)}"
    try:
        server = psycopg.connect(url, autocommit=True)
    except psycopg.Error as error:
        raise NoServerError(f"there is no connection to the server ({_line(error)})") from error
    with closing(server):
        try:
            server.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        except psycopg.Error as error:
            raise NoServerError(f"a database of its own could not be made ({_line(error)})") from error
        try:
            with ExitStack() as open_ones:
                contenders = _on_postgres(_renamed(url, name), against)
                for contender in contenders:
                    open_ones.enter_context(closing(contender))
                yield Arena("postgresql", contenders, lambda: _written(server))
        finally:
            server.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def _line(error: psycopg.Error) -> str:
    return " ".join(str(error).split())


def _on_postgres(place: str, against: Sequence[str]) -> tuple[Contender, ...]:
    contenders: list[Contender] = [Ours(place, SLOTS), *(BarePostgres(place, batch) for batch in BATCHES)]
    if "pgqueuer" in against:
        from dispatch.bench.fleet_peers import Pgqueuer

        contenders += [Pgqueuer(place, SLOTS), Pgqueuer(place, 100)]
    if "procrastinate" in against:
        from dispatch.bench.fleet_peers import Procrastinate

        contenders.append(Procrastinate(place, SLOTS))
    return tuple(contenders)


def _renamed(url: str, database: str) -> str:
    """The same server as a URL, which all drivers read."""
    parameters = {key: value for key, value in conninfo_to_dict(url).items() if key != "dbname"}
    return f"postgresql:///{database}?{urlencode(parameters, quote_via=quote)}"


def _written(server: psycopg.Connection[Any]) -> tuple[int, int]:
    ((transactions, position),) = server.execute(
        "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint, pg_current_wal_insert_lsn() - '0/0'::pg_lsn"
    ).fetchall()
    return int(transactions), int(position)


# -- what is measured --------------------------------------------------------------------------------------------------


def _measured(arena: Arena, sizes: Sizes, progress: Callable[[str], None]) -> list[Cost]:
    samples: dict[tuple[str, str], list[Sample]] = {}
    for number, contender in itertools.product(range(sizes.repeat), arena.contenders):
        progress(f"{arena.store}, {number + 1} of {sizes.repeat}: {contender.name}")
        for what, sample in _repetition(contender, arena.meter, sizes).items():
            samples.setdefault((contender.name, what), []).append(sample)
    floors = {what: _middle(samples[FLOOR, what]) for what in WHAT}
    names = [contender.name for contender in arena.contenders]
    return [
        _cost(arena.store, name, what, samples[name, what], floors[what])
        for what, name in itertools.product(WHAT, names)
    ]


def _repetition(contender: Contender, meter: Meter, sizes: Sizes) -> dict[str, Sample]:
    """Admission to nobody first; what is then there is what the larger crew warms up with."""
    small, large = CREWS
    contender.admit(_names(1))  # what is made once, tables and connections, is made
    contender.admit(_names(SLOTS))
    taken = {
        "admit_one": _admission(contender, meter, [[name] for name in _names(sizes.ones)]),
        "admit_many": _admission(contender, meter, [_names(sizes.burst)]),
    }
    with Crew(contender.work, contender.place, contender.batch, large) as crew:
        crew.wait_for(1 + SLOTS + sizes.ones + sizes.burst)
        time.sleep(_IDLE_S)
        taken[f"work_{large}"] = _burst(contender, crew, meter, sizes.burst)
        taken |= _alone(contender, crew, meter, sizes.starts, large)
    with Crew(contender.work, contender.place, contender.batch, small) as crew:
        contender.admit(_names(SLOTS))
        crew.wait_for(SLOTS)
        taken |= _alone(contender, crew, meter, sizes.starts, small)
        taken[f"work_{small}"] = _burst(contender, crew, meter, sizes.burst)
    return taken


def _admission(contender: Contender, meter: Meter, calls: Sequence[Sequence[str]]) -> Sample:
    before, began = meter(), time.perf_counter()
    for names in calls:
        contender.admit(names)
    taken_s, count = time.perf_counter() - began, sum(map(len, calls))
    return _sample((taken_s / count * 1e6,), before, meter(), count)


def _burst(contender: Contender, crew: Crew, meter: Meter, count: int) -> Sample:
    before = meter()
    contender.admit(_names(count))
    admitted_at = time.perf_counter()
    done = crew.wait_for(count)
    return _sample((_pace_us(done, admitted_at, count),), before, meter(), count)


def _pace_us(done: Sequence[Done], admitted_at: float, count: int) -> float:
    """Who began before the call that admitted had returned, began then."""
    began = min(admitted_at, *(one.started_at for one in done))
    so_far = itertools.accumulate(one.count for one in done)
    enough, at = next((total, one.at) for total, one in zip(so_far, done, strict=True) if total >= _COUNTED * count)
    return (at - began) / enough * 1e6


def _alone(contender: Contender, crew: Crew, meter: Meter, count: int, size: int) -> dict[str, Sample]:
    """One turn at a time, worked off by a crew of that size."""
    asked, began, ended = [], [], []
    before = meter()
    for name in _names(count):
        time.sleep(_IDLE_S)
        asked.append(time.perf_counter())
        contender.admit([name])
        (done,) = crew.wait_for(1)
        began.append(done.started_at)
        ended.append(done.at)
    after = meter()
    spans = {"start": (asked, began), "commit": (began, ended), "end": (asked, ended)}
    return {f"{what}_{size}": _sample(_between(*span), before, after, count) for what, span in spans.items()}


def _between(since: Sequence[float], until: Sequence[float]) -> tuple[float, ...]:
    return tuple((end - begin) * 1e6 for begin, end in zip(since, until, strict=True))


def _names(count: int) -> list[str]:
    prefix = secrets.token_hex(6)
    return [f"{prefix}-{number}" for number in range(count)]


# -- what it comes to --------------------------------------------------------------------------------------------------


def _sample(us: tuple[float, ...], before: tuple[int, int] | None, after: tuple[int, int] | None, count: int) -> Sample:
    if before is None or after is None:
        return Sample(us, None, None)
    return Sample(us, (after[0] - before[0]) / count, (after[1] - before[1]) / count)


def _middle(samples: Sequence[Sample]) -> float:
    return median(itertools.chain.from_iterable(sample.us for sample in samples))


def _cost(store: str, who: str, what: str, samples: Sequence[Sample], floor_us: float) -> Cost:
    us = _middle(samples)
    taken = sorted(itertools.chain.from_iterable(sample.us for sample in samples))
    p99_us = taken[min(len(taken) - 1, int(len(taken) * 0.99))] if what in ALONE else None
    commits = [sample.commits for sample in samples if sample.commits is not None]
    wal_bytes = [sample.wal_bytes for sample in samples if sample.wal_bytes is not None]
    return Cost(
        store, who, what, us, p99_us,
        median(commits) if commits else None, median(wal_bytes) if wal_bytes else None, us / floor_us,
    )  # fmt: skip
