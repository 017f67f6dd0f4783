"""The file of a SQLite store: how it is made, what is refused, how it fares when the disk or others get in its way."""

from __future__ import annotations

import datetime as dt
import functools
import os
import sqlite3
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import attrs
import pytest

from dispatch.errors import DispatchError, OwnedElsewhereError, OwnershipLostError, StoreError, StoreUnavailableError
from dispatch.slice import SliceState
from dispatch.store import Changes, Contents, GraphRow, SqliteStore
from dispatch.store.sqlite_file import connect, insist
from harness.database.sqlite_file import BUSY_TIMEOUT_S, WAL_LIMIT_BYTES
from tests.conformance.store_rig import attempt_row, intent_row, slice_row
from tests.integration.store_child import batch, last_whole_batch, never_waits

BATCH = Changes(GraphRow("g"), (slice_row("a"),), (attempt_row("a"),), (intent_row("i"),))


@attrs.define
class Tap:
    """Opens a store as usual, and keeps the connection for the test to turn screws on."""

    connection: sqlite3.Connection | None = None
    busy_timeout_s: float = BUSY_TIMEOUT_S

    def connect(self, path: Path) -> sqlite3.Connection:
        self.connection = connect(path)
        self.connection.execute(f"PRAGMA busy_timeout = {round(self.busy_timeout_s * 1000)}")
        return self.connection

    def execute(self, statement: str) -> list[tuple[object, ...]]:
        assert self.connection is not None
        return self.connection.execute(statement).fetchall()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "graphs.db"


@pytest.fixture
def tap() -> Tap:
    return Tap()


@pytest.fixture
def store(path: Path, tap: Tap) -> Iterator[SqliteStore]:
    store = SqliteStore(path, sleep=never_waits, connect=tap.connect)
    store.claim("default")
    yield store
    store.release()


@contextmanager
def stranger(path: Path) -> Iterator[sqlite3.Connection]:
    """Another program at the same file."""
    with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as connection:
        yield connection


def one_line(error: DispatchError, path: Path) -> str:
    message = str(error)
    assert str(path) in message
    assert "\n" not in message
    return message


# -- how it is made ------------------------------------------------------------------------------------------------


def test_nothing_is_made_before_a_claim(path: Path) -> None:
    store = SqliteStore(path)
    assert store.url == f"sqlite:///{path}"
    assert not path.parent.exists()


def test_nothing_is_made_without_a_claim(path: Path) -> None:
    store = SqliteStore(path)
    for use in (store.load, store.renew, lambda: store.write(BATCH)):
        with pytest.raises(OwnershipLostError):
            use()
    store.release()
    assert not path.parent.exists()


def test_a_refused_claim_leaves_nothing_open(store: SqliteStore, path: Path) -> None:
    tap = Tap()
    with pytest.raises(OwnedElsewhereError):
        SqliteStore(path, connect=tap.connect).claim("default")
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        tap.execute("SELECT 1")


def test_a_relative_path_means_the_folder_it_was_given_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = SqliteStore("graphs.db")
    monkeypatch.chdir("/")
    store.claim("default")
    store.release()
    assert (tmp_path / "graphs.db").is_file()


def test_folder_and_files_are_the_owners_alone(path: Path) -> None:
    umask = os.umask(0)
    try:
        store = SqliteStore(path)
        store.claim("default")
        store.write(BATCH)
        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
        store.release()
    finally:
        os.umask(umask)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert modes == dict.fromkeys(["graphs.db", "graphs.db-wal", "graphs.db-shm"], 0o600)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("journal_mode", "wal"),
        ("synchronous", 2),
        ("foreign_keys", 1),
        ("busy_timeout", 1000),
        ("journal_size_limit", WAL_LIMIT_BYTES),
    ],
)
def test_each_setting_that_durability_rests_on_is_in_force(path: Path, setting: str, value: str | int) -> None:
    with closing(connect(path)) as connection:
        assert connection.execute(f"PRAGMA {setting}").fetchone() == (value,)


def test_a_setting_that_sqlite_refuses_in_silence_is_noticed(path: Path) -> None:
    with (
        closing(sqlite3.connect(":memory:")) as connection,
        pytest.raises(StoreError, match="refuses journal_mode = wal and keeps memory") as refused,
    ):
        insist(connection, path, "journal_mode", "wal")
    one_line(refused.value, path)


def test_a_network_file_system_is_refused(path: Path) -> None:
    store = SqliteStore(path, connect=functools.partial(connect, network=lambda path: "nfs4"))
    with pytest.raises(StoreError, match=r"network file system \(nfs4\)") as refused:
        store.claim("default")
    one_line(refused.value, path)
    assert not path.exists()


def test_all_graphs_and_their_claims_share_the_file(path: Path, store: SqliteStore) -> None:
    other = SqliteStore(path)
    other.claim("other")
    store.write(BATCH)
    other.write(attrs.evolve(BATCH, graph=GraphRow("h")))
    other.release()
    assert store.load().graph == GraphRow("g")
    assert other.peek("other")[0].graph == GraphRow("h")


def test_a_claim_bears_the_databases_time(store: SqliteStore, path: Path) -> None:
    _, claim = SqliteStore(path).peek("default")
    assert claim is not None
    assert abs(claim.since - dt.datetime.now(dt.UTC)) < dt.timedelta(minutes=1)


# -- what it costs -------------------------------------------------------------------------------------------------


def test_a_change_of_state_is_one_transaction_of_two_statements(store: SqliteStore, tap: Tap) -> None:
    store.write(BATCH)
    statements: list[str] = []
    assert tap.connection is not None
    tap.connection.set_trace_callback(statements.append)
    store.write(Changes(slices=(slice_row("a", state=SliceState.RUNNING, attempt=1),)))
    tap.connection.set_trace_callback(None)
    assert [text.split()[0] for text in statements] == ["BEGIN", "SELECT", "UPDATE", "COMMIT"]
    assert statements[0] == "BEGIN IMMEDIATE"


def test_the_log_does_not_stay_large_behind_a_reader_that_has_gone(store: SqliteStore, path: Path) -> None:
    log = path.with_name("graphs.db-wal")
    with stranger(path) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM slices").fetchone()
        for letter in "abcdefghijkl":
            store.write(Changes(slices=(slice_row("a", checkpoint=letter * 2_000_000),)))
        assert log.stat().st_size > WAL_LIMIT_BYTES
    for number in range(2):
        store.write(Changes(slices=(slice_row("a", turns=number),)))
    assert log.stat().st_size <= WAL_LIMIT_BYTES


def test_release_leaves_one_file_with_everything_in_it(path: Path) -> None:
    store = SqliteStore(path)
    store.claim("default")
    store.write(BATCH)
    store.release()
    assert [file.name for file in path.parent.iterdir()] == ["graphs.db"]
    assert store.peek("default")[0].slices == BATCH.slices


def test_release_empties_the_log_beside_an_idle_reader(path: Path) -> None:
    store = SqliteStore(path)
    store.claim("default")
    with stranger(path) as reader:
        reader.execute("SELECT count(*) FROM slices").fetchone()
        store.write(BATCH)
        store.release()
        assert path.with_name("graphs.db-wal").stat().st_size == 0


# -- files that can't be a store -----------------------------------------------------------------------------------


def folder(path: Path) -> None:
    path.mkdir(parents=True)


def garbage(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(bytes(range(256)) * 64)


def note(path: Path) -> None:
    path.parent.mkdir()
    path.write_text("buy milk\n")


def below_a_file(path: Path) -> None:
    path.parent.write_text("")


def of_another_program(path: Path) -> None:
    path.parent.mkdir()
    with stranger(path) as connection:
        connection.execute("CREATE TABLE bookmarks (url)")


def marked_by_another_program(path: Path) -> None:
    path.parent.mkdir()
    with stranger(path) as connection:
        connection.execute("PRAGMA application_id = 17")


def newer(path: Path) -> None:
    connect(path).close()
    with stranger(path) as connection:
        connection.execute("PRAGMA user_version = 999")


UNUSABLE = [
    (folder, "is a folder"),
    (garbage, "is not a SQLite database"),
    (note, "is not a SQLite database"),
    (below_a_file, "is not a folder|there is no store"),
    (of_another_program, "of another program"),
    (marked_by_another_program, "of another program"),
    (newer, r"newer version \(schema 999"),
]


@pytest.mark.parametrize(("make", "message"), UNUSABLE)
def test_what_can_not_be_a_store_is_refused_and_left_as_it_was(
    path: Path, make: Callable[[Path], None], message: str
) -> None:
    make(path)
    before = {file: file.read_bytes() for file in path.parent.parent.rglob("*") if file.is_file()}
    store = SqliteStore(path)
    for use in (store.claim, store.peek):
        with pytest.raises(StoreError, match=message) as refused:
            use("default")
        one_line(refused.value, path if make is not below_a_file else path.parent)
    assert {file: file.read_bytes() for file in before} == before


def test_an_empty_file_becomes_a_store(path: Path) -> None:
    path.parent.mkdir()
    path.touch()
    store = SqliteStore(path)
    with pytest.raises(StoreError, match="is empty") as refused:
        store.peek("default")
    one_line(refused.value, path)
    store.claim("default")
    store.write(BATCH)
    store.release()
    assert store.peek("default")[0].graph == GraphRow("g")


def test_a_peek_at_a_missing_store_makes_nothing(path: Path) -> None:
    with pytest.raises(StoreError, match="there is no store") as refused:
        SqliteStore(path).peek("default")
    one_line(refused.value, path)
    assert not path.parent.exists()


def test_a_damaged_file_is_named(path: Path) -> None:
    store = SqliteStore(path)
    store.claim("default")
    store.write(batch(1))
    store.release()
    content = path.read_bytes()
    path.write_bytes(content[:4096] + b"\xff" * (len(content) - 4096))
    for use in (store.claim, store.peek):
        with pytest.raises(StoreError, match="is damaged") as refused:
            use("default")
        one_line(refused.value, path)
    store.release()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE specs SET spec = 'no JSON'",
        "UPDATE specs SET spec = '[]'",
        """UPDATE specs SET spec = '{"recipe": {}, "colour": "red"}'""",
        "UPDATE specs SET spec = '{}'",
        "UPDATE slices SET state = 'asleep'",
        "DELETE FROM specs",
        """UPDATE intents SET intent = '{"urgency": "whatever"}'""",
        "UPDATE intents SET attached = ''",
    ],
)
def test_a_row_that_can_not_be_read_is_named(store: SqliteStore, path: Path, statement: str) -> None:
    store.write(BATCH)
    with stranger(path) as connection:
        connection.execute(statement)
    with pytest.raises(StoreError, match=r"the row of '[ai]' can't be read") as refused:
        store.load()
    assert "\n" not in str(refused.value)


@contextmanager
def unprivileged() -> Iterator[Path]:
    """A folder of a user whom permissions bind; root is bound by none, so it becomes nobody for the while."""
    with tempfile.TemporaryDirectory() as name:
        if os.geteuid() != 0:
            yield Path(name)
            return
        nobody = 65534
        os.chown(name, nobody, nobody)
        os.seteuid(nobody)
        try:
            yield Path(name)
        finally:
            os.seteuid(0)


def test_a_read_only_file_is_refused(tap: Tap) -> None:
    with unprivileged() as folder:
        path = folder / "graphs.db"
        connect(path).close()
        path.chmod(0o400)
        with pytest.raises(StoreError, match="is read-only; make") as refused:
            SqliteStore(path).claim("default")
        one_line(refused.value, path)


def test_a_file_without_permission_is_refused() -> None:
    with unprivileged() as folder:
        path = folder / "graphs.db"
        connect(path).close()
        path.chmod(0)
        for use in (SqliteStore(path).claim, SqliteStore(path).peek):
            with pytest.raises(StoreError, match="can't be opened; make") as refused:
                use("default")
            one_line(refused.value, path)


@pytest.mark.parametrize("exists", [True, False])
def test_a_read_only_folder_is_refused(exists: bool) -> None:
    with unprivileged() as folder:
        path = folder / "graphs.db"
        if exists:
            connect(path).close()
        folder.chmod(0o500)
        with pytest.raises(StoreError, match=r"can't be made: .* not writable|folder .*writable") as refused:
            SqliteStore(path).claim("default")
        one_line(refused.value, path)
        folder.chmod(0o700)


def test_a_store_that_becomes_read_only_refuses_writes_and_reads_on() -> None:
    with unprivileged() as folder:
        tap = Tap()
        store = SqliteStore(folder / "graphs.db", connect=tap.connect)
        store.claim("default")
        store.write(BATCH)
        tap.execute("PRAGMA query_only = 1")
        for use in (store.renew, lambda: store.write(Changes(GraphRow("h")))):
            with pytest.raises(StoreError, match="is read-only"):
                use()
        assert store.load().graph == GraphRow("g")
        tap.execute("PRAGMA query_only = 0")
        store.write(Changes(GraphRow("h")))
        store.release()


# -- the disk and others in the way --------------------------------------------------------------------------------


@pytest.mark.parametrize("use", ["write", "renew"])
def test_a_lock_of_another_program_is_waited_for_shortly_then_reported(path: Path, use: str) -> None:
    tap = Tap(busy_timeout_s=0.01)
    store = SqliteStore(path, connect=tap.connect)
    store.claim("default")
    store.write(BATCH)
    call = {"write": lambda: store.write(Changes(GraphRow("h"))), "renew": store.renew}[use]
    with stranger(path) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailableError, match="is locked by another program") as refused:
            call()
        one_line(refused.value, path)
        assert store.load().graph == GraphRow("g")
        assert SqliteStore(path).peek("default")[0].graph == GraphRow("g")
        other.execute("ROLLBACK")
    call()
    store.release()


def test_a_locked_store_is_closed_on_release_and_its_claim_runs_out(path: Path) -> None:
    now = 1_000_000.0
    store = SqliteStore(path, connect=Tap(busy_timeout_s=0.01).connect, clock=lambda: now)
    store.claim("default")
    with stranger(path) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailableError):
            store.release()
        other.execute("ROLLBACK")
    now += 10.001
    assert store.claim("default").epoch == 2
    store.release()


def test_a_full_disk_writes_nothing_by_half_and_is_recovered_from(store: SqliteStore, path: Path, tap: Tap) -> None:
    store.write(batch(1))
    ((pages,),) = tap.execute("PRAGMA page_count")
    tap.execute(f"PRAGMA max_page_count = {pages}")
    number = 2
    with pytest.raises(StoreUnavailableError, match="the disk is full") as refused:
        while True:
            store.write(batch(number))
            number += 1
    one_line(refused.value, path)
    assert last_whole_batch(store.load()) == number - 1
    store.renew()  # needs no space
    with pytest.raises(StoreUnavailableError, match="the disk is full"):
        store.write(batch(number))
    tap.execute("PRAGMA max_page_count = 1000000")
    store.write(batch(number))
    assert last_whole_batch(store.load()) == number


def test_a_file_that_is_taken_away_is_not_written_to(store: SqliteStore, path: Path) -> None:
    store.write(BATCH)
    aside = path.rename(path.with_name("aside.db"))
    refuses_to_go_on(store, path)
    aside.rename(path)
    store.write(Changes(GraphRow("h")))
    assert store.load().graph == GraphRow("h")


def test_a_file_that_is_replaced_is_not_written_to(store: SqliteStore, path: Path) -> None:
    store.write(BATCH)
    path.unlink()
    path.touch()
    refuses_to_go_on(store, path)
    with pytest.raises(StoreError, match="was removed or replaced"):
        store.release()


def refuses_to_go_on(store: SqliteStore, path: Path) -> None:
    for use in (store.load, store.renew, lambda: store.write(Changes(GraphRow("h")))):
        with pytest.raises(StoreError, match="was removed or replaced") as refused:
            use()
        one_line(refused.value, path)


def test_a_connection_that_breaks_is_replaced(store: SqliteStore, tap: Tap) -> None:
    store.write(BATCH)
    first = tap.connection
    assert first is not None
    first.close()
    with pytest.raises(DispatchError):
        store.write(Changes(GraphRow("h")))
    store.write(Changes(GraphRow("h")))
    assert tap.connection is not first
    assert store.load() == attrs.evolve(Contents(GraphRow("h")), **_rows(BATCH))


def _rows(changes: Changes) -> dict[str, object]:
    return {"slices": changes.slices, "attempts": changes.attempts, "intents": changes.intents}
