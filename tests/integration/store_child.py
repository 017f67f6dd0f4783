"""Processes that own a store while a test watches, kills, stops or overtakes them.

They are forked by multiprocessing's fork server, which has the product imported already: a process costs
milliseconds, so that a test can afford dozens. Each gets one end of a pipe and ends when the other end is closed.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import resource
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

import attrs

from dispatch.errors import DispatchError, StoreUnavailableError
from dispatch.slice import Slice, SliceState
from dispatch.store import AttemptRow, Changes, Contents, GraphRow, SliceRow, SqliteStore
from dispatch.store.port import KeyframeRow, LogRow
from dispatch.store.postgres import PostgresStore
from dispatch.store.sqlite_file import connect
from harness import Recipe
from harness.database import killpoint

LIMIT_S = 30.0  #: no test waits longer for a child
SLICES = 40  #: per batch: enough for a kill to land inside one
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["dispatch.store", "dispatch.store.postgres"])
Where = Path | str  #: the file of a SQLite store, or the connection string of a PostgreSQL database


def store_at(where: Where, sleep: Callable[[float], None] = time.sleep) -> SqliteStore | PostgresStore:
    """One that waits for its server for as long as a busy machine may take."""
    if isinstance(where, Path):
        return SqliteStore(where, sleep=sleep)
    return PostgresStore(where, sleep=sleep, patience_s=LIMIT_S)


class Child:
    """A process that runs `role(where, pipe, *args)`."""

    def __init__(self, process: BaseProcess, pipe: Connection) -> None:
        self.process, self.pipe = process, pipe

    def hear(self) -> object:
        """What it says next; `EOFError` if it ended."""
        assert self.pipe.poll(LIMIT_S), "the child says nothing"
        return self.pipe.recv()

    def ask(self, method: str, *args: object) -> object:
        self.pipe.send((method, args))
        return self.hear()

    def signal(self, number: int) -> None:
        assert self.process.pid is not None
        os.kill(self.process.pid, number)

    def wait(self) -> int | None:
        """The exit status, negative for a signal."""
        self.process.join(LIMIT_S)
        return self.process.exitcode


@contextmanager
def child(role: Callable[..., None], where: Where, *args: object) -> Iterator[Child]:
    ours, theirs = PROCESSES.Pipe()
    process = PROCESSES.Process(target=role, args=(where, theirs, *args))
    process.start()
    theirs.close()
    try:
        with ours:
            yield Child(process, ours)
    finally:
        process.kill()
        process.join(LIMIT_S)
        process.close()


def never_waits(seconds: float) -> None:
    raise AssertionError(f"the claim waits for {seconds} s")


# -- what the batches of a numbered run look like ------------------------------------------------------------------


def batch(number: int) -> Changes:
    """Batch `number`: moves every slice to `number` turns, adds one that says it was there, and an attempt at it."""
    state = SliceState.RUNNING
    moved = tuple(SliceRow(Slice(f"s{n}"), n + 1, state, attempt=1, turns=number) for n in range(SLICES))
    added = SliceRow(Slice(f"b{number}", recipe=Recipe(prompt="x" * 2000)), SLICES + 1 + number, SliceState.QUEUED)
    attempt = AttemptRow(added.slice.id, 1, "branch", 1.0)
    entry = LogRow(number, 1, float(number), 1, False, "pass", "{}", "{}")
    return Changes(GraphRow("g", str(number)), (*moved, added), (attempt,), log=(entry,))


def last_whole_batch(contents: Contents) -> int:
    """The number of the last batch that is there, 0 for none. Fails if any is there by half."""
    if contents.graph is None:
        assert contents.slices == ()
        return 0
    last = int(contents.graph.paused)
    assert contents.logged.last == last
    turns = {row.slice.id: row.turns for row in contents.slices if row.slice.id.startswith("s")}
    assert turns == {f"s{n}": last for n in range(SLICES)}
    added = [f"b{number}" for number in range(1, last + 1)]
    assert [row.slice.id for row in contents.slices if row.slice.id.startswith("b")] == added
    assert sorted(row.slice_id for row in contents.attempts) == sorted(added)
    return last


# -- roles ---------------------------------------------------------------------------------------------------------


def writer(where: Where, pipe: Connection) -> None:
    """Write batches without end, and say the number of each once it was acknowledged."""
    store = store_at(where, never_waits)
    store.claim("default")
    number = last_whole_batch(store.load())
    while True:
        number += 1
        store.write(batch(number))
        pipe.send(number)


def life(where: Where, pipe: Connection, name: str, passage: int) -> None:
    """A whole life of an owner, ended at the given passage of a killpoint."""
    os.environ["DISPATCH_KILLPOINT"] = f"{name}:{passage}"
    importlib.reload(killpoint)
    store = store_at(where, never_waits)
    store.claim("default")
    store.write(batch(1))
    store.write(batch(2))
    store.renew()
    history = store.history()
    history.keep("default", KeyframeRow(1, 1.0, b"all of it"))
    history.prune("default", 1, 10)
    store.release()
    pipe.send("lived on")


def pruning(where: Where, pipe: Connection, name: str, passage: int, frame: tuple[int, float, bytes]) -> None:
    """Keep a keyframe and prune what comes before it, ended at the given passage of a killpoint."""
    os.environ["DISPATCH_KILLPOINT"] = f"{name}:{passage}"
    importlib.reload(killpoint)
    keyframe = KeyframeRow(*frame)
    history = store_at(where, never_waits).history()
    history.keep("default", keyframe)
    while history.prune("default", keyframe.seq, 5):
        pass
    pipe.send("lived on")


def obedient(where: Where, pipe: Connection, graph: str = "default") -> None:
    """Call the methods it is asked to, and say what came of it: the answer, or the error's name."""
    store = store_at(where)
    while True:
        try:
            method, args = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send(getattr(store, method)(*args))
        except DispatchError as error:
            pipe.send(type(error).__name__)


def claimant(where: Where, pipe: Connection) -> None:
    """Claim when told to, together with others; keep it until told to end."""
    store = store_at(where)
    pipe.recv()
    try:
        pipe.send(store.claim("default").epoch)
    except DispatchError as error:
        pipe.send(type(error).__name__)
    pipe.recv()


def busy(path: Path, pipe: Connection, graph: str, writes: int) -> None:
    """Own a graph of its own in a file that others write too. It has the patience that a slow disk takes."""

    def patient(path: Path) -> sqlite3.Connection:
        connection = connect(path)
        connection.execute(f"PRAGMA busy_timeout = {round(LIMIT_S * 1000)}")
        return connection

    store = SqliteStore(path, connect=patient)
    store.claim(graph)
    for number in range(1, writes + 1):
        store.write(batch(number))
    pipe.send(last_whole_batch(store.load()))
    store.release()


def cramped(path: Path, pipe: Connection, limit_bytes: int) -> None:
    """Write batches until no file may grow any more, then once more with the limit lifted."""
    store = SqliteStore(path)
    store.claim("default")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, hard))
    number = 1
    try:
        while True:
            store.write(batch(number))
            number += 1
    except StoreUnavailableError as error:
        pipe.send((number - 1, str(error)))
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    pipe.send(last_whole_batch(store.load()))
    store.write(batch(number))
    pipe.send(last_whole_batch(store.load()))


def forking(path: Path, pipe: Connection) -> None:
    """Fork with the store open; the child tries to use it, then ends as a program ends, and the parent goes on.

    A store that was not open at the fork is the child's as well as the parent's.
    """
    store, named = SqliteStore(path), SqliteStore(path.with_name("other.db"))
    store.claim("default")
    store.write(batch(1))
    forked = os.fork()
    if forked == 0:
        anew = SqliteStore(path)
        uses = [store.load, store.renew, lambda: store.write(batch(2)), store.release]
        for use in [*uses, lambda: anew.claim("other"), lambda: anew.peek("default")]:
            try:
                pipe.send(use())
            except DispatchError as error:
                pipe.send(type(error).__name__)
        pipe.send(named.claim("other").epoch)
        named.release()
        del store, use, uses
        raise SystemExit(0)
    os.waitpid(forked, 0)
    for number in range(2, 12):
        store.write(batch(number))
    pipe.send(last_whole_batch(store.load()))
    with closing(sqlite3.connect(path)) as connection:
        pipe.send(connection.execute("PRAGMA integrity_check").fetchone()[0])
    store.release()


@attrs.frozen
class Fate:
    """What a restart must find after a kill: the epoch it gets, and the last batch that is there."""

    epoch: int
    batches: int


#: By killpoint and passage. Nothing that was acknowledged may be missing, nothing that was not may be there by half.
FATES = {
    ("sqlite.after-create", 1): Fate(1, 0),
    ("sqlite.before-migration-commit", 1): Fate(1, 0),
    ("sqlite.after-migration-commit", 1): Fate(1, 0),
    ("sqlite.before-claim", 1): Fate(1, 0),
    ("sqlite.before-claim-commit", 1): Fate(1, 0),
    ("sqlite.after-claim-commit", 1): Fate(2, 0),
    ("sqlite.before-write", 1): Fate(2, 0),
    ("sqlite.before-write", 2): Fate(2, 1),
    ("sqlite.inside-write", 1): Fate(2, 0),
    ("sqlite.inside-write", 2): Fate(2, 1),
    ("sqlite.before-write-commit", 1): Fate(2, 0),
    ("sqlite.before-write-commit", 2): Fate(2, 1),
    ("sqlite.after-write-commit", 1): Fate(2, 1),
    ("sqlite.after-write-commit", 2): Fate(2, 2),
    ("sqlite.before-renewal-commit", 1): Fate(2, 2),
    ("sqlite.after-renewal-commit", 1): Fate(2, 2),
    ("sqlite.before-keyframe-commit", 1): Fate(2, 2),
    ("sqlite.after-keyframe-commit", 1): Fate(2, 2),
    ("sqlite.before-prune-commit", 1): Fate(2, 2),
    ("sqlite.after-prune-commit", 1): Fate(2, 2),
    ("sqlite.before-release-commit", 1): Fate(2, 2),
    ("sqlite.after-release-commit", 1): Fate(2, 2),
    ("postgres.before-migration-commit", 1): Fate(1, 0),
    ("postgres.after-migration-commit", 1): Fate(1, 0),
    ("postgres.before-claim", 1): Fate(1, 0),
    ("postgres.before-claim-commit", 1): Fate(1, 0),
    ("postgres.after-claim-commit", 1): Fate(2, 0),
    ("postgres.before-write", 1): Fate(2, 0),
    ("postgres.before-write", 2): Fate(2, 1),
    ("postgres.inside-write", 1): Fate(2, 0),
    ("postgres.inside-write", 2): Fate(2, 1),
    ("postgres.before-write-commit", 1): Fate(2, 0),
    ("postgres.before-write-commit", 2): Fate(2, 1),
    ("postgres.after-write-commit", 1): Fate(2, 1),
    ("postgres.after-write-commit", 2): Fate(2, 2),
    ("postgres.before-renewal-commit", 1): Fate(2, 2),
    ("postgres.after-renewal-commit", 1): Fate(2, 2),
    ("postgres.before-keyframe-commit", 1): Fate(2, 2),
    ("postgres.after-keyframe-commit", 1): Fate(2, 2),
    ("postgres.before-prune-commit", 1): Fate(2, 2),
    ("postgres.after-prune-commit", 1): Fate(2, 2),
    ("postgres.before-release-commit", 1): Fate(2, 2),
    ("postgres.after-release-commit", 1): Fate(2, 2),
}
