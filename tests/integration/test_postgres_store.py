"""A PostgreSQL store's database: how it is made, by whom, what is refused, what it costs. No secret is ever shown."""

from __future__ import annotations

import datetime as dt
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import attrs
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

import dispatch.store.postgres
from dispatch.errors import DispatchError, OwnedElsewhereError, OwnershipLostError, StoreError, StoreUnavailableError
from dispatch.slice import Slice, SliceState
from dispatch.store import Changes, Contents, GraphRow, open_store, postgres_reading
from dispatch.store.port import LogRow
from dispatch.store.postgres import PostgresStore
from dispatch.store.postgres_rows import COPY_FROM
from dispatch.store.postgres_schema import SQL
from harness.database import postgres_schema
from harness.database.postgres_wire import Statement
from tests.conformance.store_rig import attempt_row, intent_row, slice_row
from tests.integration.store_child import never_waits, store_at
from tests.postgres_server import Databases, PostgresServer, installations

BATCH = Changes(GraphRow("g"), (slice_row("a"),), (attempt_row("a"),), (intent_row("i"),))
MANY = tuple(
    slice_row(f"s{n}", n, checkpoint="tab\t, \\n, \\\\, \n and \r; ünïcödé 😀") for n in range(1, COPY_FROM + 2)
)
SECRET = "s3cret-pass"


@pytest.fixture
def store(postgres_database: str) -> Iterator[PostgresStore]:
    store = store_at(postgres_database, never_waits)
    assert isinstance(store, PostgresStore)
    store.claim("default")
    yield store
    store.release()


def sql(database: str, statement: str) -> list[tuple[object, ...]]:
    with closing(psycopg.connect(database, autocommit=True)) as stranger:
        cursor = stranger.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def one_line(error: DispatchError) -> str:
    assert "\n" not in str(error)
    return str(error)


# -- how it is made ------------------------------------------------------------------------------------------------


def test_nothing_is_made_before_a_claim(postgres_database: str) -> None:
    store = PostgresStore(postgres_database)
    for use in (store.load, store.renew, lambda: store.write(BATCH)):
        with pytest.raises(OwnershipLostError):
            use()
    store.release()
    for look in (store.graphs, lambda: store.peek("default")):
        with pytest.raises(StoreError, match="there is no store at") as refused:
            look()
        one_line(refused.value)
    assert sql(postgres_database, "SELECT FROM pg_namespace WHERE nspname = 'dispatch'") == []


def test_all_graphs_share_the_database(store: PostgresStore, postgres_database: str) -> None:
    other = store_at(postgres_database, never_waits)
    other.claim("other")
    store.write(BATCH)
    other.write(Changes(GraphRow("h")))
    other.release()
    assert store.load().graph == GraphRow("g")
    assert store.graphs() == ("default", "other")


def test_a_claim_bears_the_databases_time(store: PostgresStore) -> None:
    _, claim = store.peek("default")
    assert claim is not None
    assert abs(claim.since - dt.datetime.now(dt.UTC)) < dt.timedelta(minutes=1)


def test_what_the_database_does_by_default_does_not_matter(postgres_database: str) -> None:
    name = conninfo_to_dict(postgres_database)["dbname"]
    for setting in (
        "search_path = ''",
        "extra_float_digits = -15",
        "client_encoding = 'LATIN1'",
        "default_transaction_isolation = 'serializable'",
        "standard_conforming_strings = off",
        "bytea_output = 'escape'",
        "DateStyle = 'German'",
        "synchronous_commit = off",
    ):
        sql(postgres_database, f"ALTER DATABASE {name} SET {setting}")
    store = store_at(postgres_database, never_waits)
    store.claim("default")
    row = slice_row("a", ran_s=0.1 + 0.2, checkpoint="ünïcödé \\ ' 😀")
    store.write(Changes(slices=(row,)))
    assert store.load().slices == (row,)
    store.release()


@pytest.mark.parametrize("binaries", installations()[1:], ids=lambda folder: "-".join(folder.parts[-3:-1]))
def test_every_version_at_hand_keeps_a_graph(binaries: Path) -> None:
    """The newest is what all other tests run on."""
    server = PostgresServer(binaries)
    server.start()
    try:
        store = store_at(server.url(), never_waits)
        store.claim("default")
        store.write(Changes(GraphRow("g"), MANY, (attempt_row("s1"),), (intent_row("i"),)))
        for turns in range(3):
            store.write(Changes(slices=(slice_row("s1", turns=turns),), revised=("s1",), forgotten=("i",)))
        store.renew()
        before = store.load()
        server.crash()
        server.start()
        store.write(Changes(GraphRow("h")))
        assert store.load() == attrs.evolve(before, graph=GraphRow("h"))
        store.release()
        assert store.claim("default").epoch == 2
        assert store.load().slices == (slice_row("s1", turns=2), *MANY[1:])
        store.release()
    finally:
        server.close()


# -- databases that can't be a store -------------------------------------------------------------------------------


def of_another_program(database: str) -> None:
    sql(database, "CREATE SCHEMA dispatch")
    sql(database, "CREATE TABLE dispatch.bookmarks (url TEXT)")


def newer(database: str) -> None:
    store = PostgresStore(database)
    store.claim("default")
    store.release()
    sql(database, "UPDATE dispatch.schema_version SET version = 999")


@pytest.mark.parametrize(
    ("make", "message"), [(of_another_program, "of another program"), (newer, r"newer version \(schema 999")]
)
def test_what_can_not_be_a_store_is_refused(postgres_database: str, make: Callable[[str], None], message: str) -> None:
    make(postgres_database)
    store = PostgresStore(postgres_database)
    for use in (store.claim, store.peek):
        with pytest.raises(StoreError, match=message) as refused:
            use("default")
        one_line(refused.value)
    store.release()


def test_an_older_schema_is_brought_up_to_date_by_a_claim_alone(
    postgres_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = store_at(postgres_database, never_waits)
    old.claim("default")
    old.write(BATCH)
    old.release()
    kind = dispatch.store.postgres.STORE
    newer = [*kind.migrations, ["CREATE TABLE dispatch.extra (n INTEGER)"]]
    monkeypatch.setattr(dispatch.store.postgres, "STORE", attrs.evolve(kind, migrations=newer))
    store = store_at(postgres_database, never_waits)
    with pytest.raises(StoreError, match="older version") as refused:
        store.peek("default")
    one_line(refused.value)
    store.claim("default")
    assert store.load().slices == BATCH.slices
    assert sql(postgres_database, "SELECT n FROM dispatch.extra") == []
    assert sql(postgres_database, "SELECT version FROM dispatch.schema_version") == [(len(newer),)]
    store.release()


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
def test_a_database_that_lacks_characters_is_refused(server: PostgresServer, encoding: str) -> None:
    database = Databases(server.url()).new(f"ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0")
    with pytest.raises(StoreError, match=f"keeps text as {encoding}.*ENCODING 'UTF8'") as refused:
        PostgresStore(database).claim("default")
    one_line(refused.value)


@pytest.mark.parametrize("statement", ["UPDATE dispatch.specs SET spec = '{}'", "DELETE FROM dispatch.specs"])
def test_a_row_that_can_not_be_read_is_named(store: PostgresStore, postgres_database: str, statement: str) -> None:
    store.write(BATCH)
    sql(postgres_database, statement)
    with pytest.raises(StoreError, match=r"the row of 'a' can't be read") as refused:
        store.load()
    one_line(refused.value)


# -- roles ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """One with roles: `guest`, who may do nothing by itself, and two who are not let in as they are."""
    server = PostgresServer()
    rules = "local all careful scram-sha-256\nlocal all shut reject\nlocal all all trust\n"
    (server.folder / "data" / "pg_hba.conf").write_text(rules)
    server.start()
    server.execute("CREATE ROLE guest LOGIN")
    server.execute(f"CREATE ROLE careful LOGIN PASSWORD '{SECRET}'")
    server.execute("CREATE ROLE shut LOGIN")
    server.execute("CREATE ROLE narrow LOGIN CONNECTION LIMIT 0")
    yield server
    server.close()


@pytest.fixture
def database(server: PostgresServer) -> str:
    return Databases(server.url()).new()


def as_role(role: str, database: str, **more: str) -> PostgresStore:
    store = store_at(make_conninfo(database, user=role, **more), never_waits)
    assert isinstance(store, PostgresStore)
    return store


def test_a_role_that_may_make_no_schema_is_told_so(database: str) -> None:
    with pytest.raises(StoreError, match=r"no schema `dispatch`, and role 'guest' may not create it") as refused:
        as_role("guest", database).claim("default")
    assert "CREATE SCHEMA dispatch AUTHORIZATION" in one_line(refused.value)


def test_a_role_fills_the_empty_schema_that_it_is_given(database: str) -> None:
    sql(database, "CREATE SCHEMA dispatch")
    with pytest.raises(StoreError, match=r"'guest' may not create tables.*GRANT CREATE ON SCHEMA") as refused:
        as_role("guest", database).claim("default")
    one_line(refused.value)
    sql(database, "ALTER SCHEMA dispatch OWNER TO guest")
    store = as_role("guest", database)
    store.claim("default")
    store.write(BATCH)
    store.release()


def test_a_role_without_privileges_is_told_what_to_grant_and_needs_no_more(database: str) -> None:
    owner = store_at(database, never_waits)
    owner.claim("default")
    owner.write(BATCH)
    owner.release()
    guest = as_role("guest", database)
    with pytest.raises(StoreError, match="GRANT this role USAGE ON SCHEMA dispatch") as refused:
        guest.claim("default")
    one_line(refused.value)
    sql(database, "GRANT USAGE ON SCHEMA dispatch TO guest")
    sql(database, "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA dispatch TO guest")
    for graph in ("default", "of its own"):
        guest.claim(graph)
        guest.write(Changes(GraphRow("h"), MANY, (attempt_row("s1"),), (intent_row("j"),), ("i",)))
        guest.renew()
        assert guest.load().graph == GraphRow("h")
        guest.release()


def test_a_role_that_may_read_sees_and_can_not_own(database: str) -> None:
    owner = store_at(database, never_waits)
    owner.claim("default")
    owner.write(BATCH)
    sql(database, "GRANT USAGE ON SCHEMA dispatch TO guest")
    sql(database, "GRANT SELECT ON ALL TABLES IN SCHEMA dispatch TO guest")
    guest = as_role("guest", database)
    contents, claim = guest.peek("default")
    assert contents.slices == BATCH.slices
    assert claim is not None
    owner.release()
    with pytest.raises(StoreError, match="permission denied"):
        guest.claim("default")


@pytest.mark.parametrize(
    ("role", "more", "error", "message"),
    [
        ("nobody-of-that-name", {}, StoreError, "create the role"),
        ("shut", {}, StoreError, "pg_hba.conf|reject"),
        ("careful", {}, StoreError, "refuses the password"),
        ("careful", {"password": "wr0ng-pass"}, StoreError, "refuses the password"),
        ("narrow", {}, StoreUnavailableError, "no connection left"),
        ("guest", {"dbname": "no_such_database"}, StoreError, "there is no such database"),
        ("guest", {"host": "/nowhere"}, StoreUnavailableError, "out of reach"),
        ("guest", {"host": "no-such-host.invalid"}, StoreUnavailableError, "out of reach"),
    ],
)
def test_who_is_not_let_in_is_told_why_and_no_password(
    database: str, role: str, more: dict[str, str], error: type[DispatchError], message: str
) -> None:
    with pytest.raises(error, match=message) as refused:
        as_role(role, database, **more).claim("default")
    one_line(refused.value)
    assert "wr0ng-pass" not in "".join(traceback.format_exception(refused.value))


# -- secrets -------------------------------------------------------------------------------------------------------


def test_a_password_serves_and_is_shown_nowhere(server: PostgresServer, database: str) -> None:
    sql(database, "CREATE SCHEMA dispatch AUTHORIZATION careful")
    name = conninfo_to_dict(database)["dbname"]
    forms = [
        f"postgresql://careful:{SECRET}@/{name}?host={server.folder}",
        f"postgres://careful@/{name}?host={server.folder}&password={SECRET}",
        f"host={server.folder} dbname={name} user=careful password={SECRET}",
    ]
    for form in forms:
        store = PostgresStore(form, sleep=never_waits)
        store.claim("default")
        shown = [store.url, repr(store), str(vars(store))]
        with pytest.raises(OwnedElsewhereError) as refused:
            PostgresStore(form).claim("default")
        shown += traceback.format_exception(refused.value)
        assert SECRET not in "".join(shown)
        assert store.url == f"postgresql://careful@/{name}?host={server.folder}"
        store.release()


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://me:{SECRET}/more@host/db",
        f"postgresql://me:{SECRET}@more@host/db",
        f"postgresql://me:{SECRET}#more@host/db",
        f"postgresql://me:{SECRET}?more@host/db",
        f"postgresql://me:a:{SECRET}@host/db",
        f"postgresql://me:{SECRET}%zz@host/db",
        f"postgresql://me@host/db?{SECRET}",
        f"postgresql://me@host/db?pass={SECRET}",
        f"postgresql://me:{SECRET}@[::1/db",
    ],
)
def test_a_malformed_url_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(StoreError, match="percent-encode") as refused:
        open_store(url)
    one_line(refused.value)
    assert SECRET not in "".join(traceback.format_exception(refused.value))


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://host/db", "postgresql://host/db"),
        ("postgres://me@host:5433/db", "postgresql://me@host:5433/db"),
        ("postgresql://me:p%40ss@[::1]:5433/db", "postgresql://me@[::1]:5433/db"),
        ("postgresql://a%20b@/db?host=/run/pg", "postgresql://a%20b@/db?host=/run/pg"),
        ("postgresql://h1:1,h2:2/db?target_session_attrs=read-write", "postgresql:///db?host=h1,h2&port=1,2"),
        ("postgresql:///?service=mine", "postgresql:///?service=mine"),
        ("postgresql://host/db?sslpassword=hidden&sslmode=require", "postgresql://host/db"),
    ],
)
def test_a_url_tells_where_the_store_is(url: str, shown: str) -> None:
    store = open_store(url)
    assert type(store) is PostgresStore
    assert store.url == shown


# -- what it costs -------------------------------------------------------------------------------------------------


def sent(store: PostgresStore, monkeypatch: pytest.MonkeyPatch, use: Callable[[], object]) -> list[list[str]]:
    """The statements of each exchange with the server, in words of the files `sql/postgres.sql`."""
    wire, names = store._wire, {text: name for name, text in (postgres_schema.SQL | SQL).items()}
    assert wire is not None
    exchanges: list[list[str]] = []
    run, copy = wire.run, wire.copy

    def listening(statements: object, *args: object, **options: object) -> object:
        items = list(statements)  # type: ignore[call-overload]
        exchanges.append([names[item.sql] for item in items])
        return run(items, *args, **options)  # type: ignore[arg-type]

    def copying(text: str, *args: object) -> None:
        exchanges.append([names[text]])
        copy(text, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(wire, "run", listening)
    monkeypatch.setattr(wire, "copy", copying)
    use()
    monkeypatch.undo()
    return exchanges


def test_a_change_of_state_is_one_exchange(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.write(BATCH)
    entry = LogRow(1, 1, 2.5, 1, False, "tick", "{}", "{}")
    moved = Changes(slices=(slice_row("a", state=SliceState.RUNNING),), attempts=(attempt_row("a", 2),), log=(entry,))
    assert sent(store, monkeypatch, lambda: store.write(moved)) == [
        ["begin", "write_slice", "write_attempt", "write_entry", "count_batch", "commit"]
    ]
    contents = store.load()
    assert (contents.slices, contents.attempts[1:]) == (moved.slices, moved.attempts)
    with store.history().reading("default") as reading:
        assert reading.entries(0, 9) == [entry]
    assert sent(store, monkeypatch, store.renew) == [["begin", "move_claim", "commit"]]


def test_many_changes_are_one_exchange(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    changes = Changes(GraphRow("g"), MANY[:500], tuple(attempt_row(row.slice.id) for row in MANY[:500]))
    assert sent(store, monkeypatch, lambda: store.write(changes)) == [
        ["begin", "write_slices", "write_specs", "write_graph", "write_attempts", "count_batch", "commit"]
    ]


def test_what_comes_often_is_prepared_once(store: PostgresStore) -> None:
    for turns in range(3):
        store.write(Changes(slices=(slice_row("a", turns=turns),)))
    wire = store._wire
    assert wire is not None
    (prepared,) = wire.run([Statement("SELECT count(*), count(DISTINCT statement) FROM pg_prepared_statements")], 30)
    assert (prepared.get_value(0, 0), prepared.get_value(0, 1)) == (b"5", b"5")


@pytest.mark.parametrize("use", [lambda store: store.write(BATCH), lambda store: store.renew()])
def test_a_pooler_that_follows_no_prepared_statement_is_noticed(
    store: PostgresStore, use: Callable[[PostgresStore], object]
) -> None:
    """It hands the next transaction to another server connection, on which nothing is prepared."""
    store.write(Changes(GraphRow("g")))
    store.renew()
    wire = store._wire
    assert wire is not None
    wire.run([Statement("DEALLOCATE ALL")], 30)
    use(store)
    store.write(Changes(GraphRow("h"), MANY[:3]))
    assert store._wire is wire
    (prepared,) = wire.run([Statement("SELECT FROM pg_prepared_statements")], 30)
    assert prepared.ntuples == 0
    assert not wire.limited  # by the session, which is as little the same as what was prepared in it
    assert store.load().slices == (*(BATCH.slices if store.load().intents else ()), *MANY[:3])


@pytest.mark.parametrize("changes", [BATCH, Changes(slices=MANY)])
def test_a_call_that_is_broken_off_does_not_spoil_the_next(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch, changes: Changes
) -> None:
    """As by Ctrl-C while a batch is put together: part of it has been sent, or waits to be."""

    def interrupt(*_: object) -> bytes:
        raise KeyboardInterrupt

    monkeypatch.setattr("dispatch.store.postgres.statement", interrupt)
    monkeypatch.setattr("dispatch.store.postgres_rows.copy_text", interrupt)
    with pytest.raises(KeyboardInterrupt):
        store.write(changes)
    monkeypatch.undo()
    store.write(changes)
    assert store.load().slices == changes.slices


@pytest.mark.parametrize("name", postgres_reading._PARTS)
def test_nothing_is_read_in_a_loop_whatever_the_statistics_say(
    store: PostgresStore, postgres_database: str, name: str
) -> None:
    """They know of another graph, and nothing of the one that is read: its rows, however many, pass for one."""
    store.write(Changes(GraphRow("g"), MANY, (attempt_row("s1"),), (intent_row("i"),)))
    sql(postgres_database, "ANALYZE")
    plan = sql(postgres_database, f"EXPLAIN {SQL[name].replace('$1', '999')}")
    assert "Nested Loop" not in str(plan)


# -- many at once --------------------------------------------------------------------------------------------------


def test_many_new_slices_are_copied_and_come_back_as_they_were(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where neighbours are in the same state, or nearly, and with every character that COPY takes for its own."""
    rows = tuple(
        attrs.evolve(
            row, slice=Slice(row.slice.id, title=row.checkpoint), turns=row.seq // 3 % 2, canceling=row.seq > 9
        )
        for row in MANY
    )
    changes = Changes(GraphRow("g"), rows, tuple(attempt_row(row.slice.id) for row in rows))
    exchanges = sent(store, monkeypatch, lambda: store.write(changes))
    assert exchanges[:3] == [["begin", "check_claim"], ["copy_slices"], ["copy_specs"]]
    assert exchanges[3][-2:] == ["count_batch", "commit"]
    assert len(exchanges) == 4
    contents = store.load()
    assert contents.slices == rows
    assert len(contents.attempts) == len(rows)


def test_many_slices_of_which_some_are_there_are_written_all_the_same(postgres_database: str) -> None:
    first = store_at(postgres_database, never_waits)
    first.claim("default")
    first.write(Changes(slices=(MANY[-1],)))
    first.release()
    second = store_at(postgres_database, never_waits)
    second.claim("default")  # and not loaded: it can't know what is there
    second.write(Changes(GraphRow("g"), MANY))
    assert second.load() == Contents(GraphRow("g"), MANY)
    second.release()


def test_many_slices_of_a_former_owner_are_refused(postgres_database: str) -> None:
    former, successor = (store_at(postgres_database, never_waits) for _ in range(2))
    former.claim("default")
    successor.claim("default", take_over=True)
    with pytest.raises(OwnershipLostError):
        former.write(Changes(slices=MANY))
    assert successor.load() == Contents()
    successor.release()


def test_a_graph_that_is_taken_over_while_many_slices_are_sent_gets_none_of_them(
    postgres_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The former owner holds no lock meanwhile that would keep its successor out."""
    former, successor = (store_at(postgres_database, never_waits) for _ in range(2))
    former.claim("default")

    def overtake(point: str) -> None:
        if point == "postgres.inside-write":
            monkeypatch.undo()
            successor.claim("default", take_over=True)

    monkeypatch.setattr("dispatch.store.postgres.killpoint", overtake)
    with pytest.raises(OwnershipLostError):
        former.write(Changes(slices=MANY))
    assert successor.load() == Contents()
    successor.release()
