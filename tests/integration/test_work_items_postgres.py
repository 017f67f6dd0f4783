"""An authority's PostgreSQL database: what it makes impossible, how it is shared, and how it is reached."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import attrs
import psycopg
import pytest

from harness.database.postgres_schema import COMMIT
from harness.database.postgres_wire import Statement, Wire
from harness.database.queries import named_blocks
from harness.fleet.authority.postgres import PostgresWorkItems
from harness.fleet.commands import Cancel, Claim, Command, Defer, Deliver, Recover, Renew, Start, Submit, Succeed
from harness.fleet.errors import FleetBrokenError, FleetUnavailableError
from harness.fleet.transport.postgres import PostgresTransport
from harness.fleet.work_item import Submission, WorkItem, WorkItemState
from tests.postgres_server import Databases, PostgresServer, installations

SQL = named_blocks("harness.fleet.authority", "postgres.sql")


@pytest.fixture
def authority(postgres_database: str) -> Iterator[PostgresWorkItems]:
    with closing(PostgresWorkItems(postgres_database)) as authority:
        yield authority


@pytest.fixture
def direct(postgres_database: str) -> Iterator[psycopg.Connection[Any]]:
    with closing(psycopg.connect(postgres_database, autocommit=True)) as connection:
        yield connection


def submitted(authority: PostgresWorkItems, *names: str, **fields: object) -> None:
    asked = (attrs.evolve(Submission(name, "t", f"session of {name}", "k"), **fields) for name in names)
    assert all(isinstance(item, WorkItem) for item in authority.perform([Submit(each) for each in asked]))


def claimed(authority: PostgresWorkItems, name: str, *, starts: bool = True) -> WorkItem:
    (item,) = authority.perform([Claim(name, "t", "w", 60.0, starts=starts)])
    assert isinstance(item, WorkItem)
    return item


# -- what the database refuses -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("held", "owner = ''"),
        ("held", "expires_at = 0"),
        ("held", "state = 'ready'"),
        ("held", "state = 'succeeded'"),
        ("held", "attempt = lease_epoch + 1"),
        ("ready", "owner = 'w'"),
        ("ready", "expires_at = 1"),
        ("ready", "state = 'leased'"),
        ("ready", "state = 'running'"),
        ("ready", "state = 'submitted'"),
        ("ready", "state = 'lost'"),
        ("ready", "priority = 4"),
        ("ready", "priority = -1"),
        ("ready", "failures = 4"),
        ("ready", "failures = -1"),
        ("ready", "cancel_cause = 'x'"),
        ("ready", "max_attempts = 0"),
    ],
)
def test_what_no_item_can_be_is_refused_whoever_writes_it(
    authority: PostgresWorkItems, direct: psycopg.Connection[Any], name: str, change: str
) -> None:
    submitted(authority, "held", "ready")
    claimed(authority, "held")
    with pytest.raises(psycopg.errors.CheckViolation):
        direct.execute(f"UPDATE agent_dispatch.items SET {change} WHERE id = '{name}'".encode())


def test_two_of_a_session_are_refused_whoever_writes_them(
    authority: PostgresWorkItems, direct: psycopg.Connection[Any]
) -> None:
    submitted(authority, "a", "b", session_id="s")
    claimed(authority, "a")
    with pytest.raises(psycopg.errors.UniqueViolation):
        direct.execute(
            "INSERT INTO agent_dispatch.held SELECT tenant, session_id, seq FROM agent_dispatch.items WHERE id = 'b'"
        )


@pytest.mark.parametrize("end", ["succeed", "renew", "cancel"])
def test_a_row_that_a_change_does_not_find_undoes_all_of_it(
    authority: PostgresWorkItems, direct: psycopg.Connection[Any], end: str
) -> None:
    """A trigger stands for whoever keeps the row from being written."""
    submitted(authority, "a", "b")
    first, second = claimed(authority, "a"), claimed(authority, "b")
    direct.execute(
        """CREATE FUNCTION pg_temp_no() RETURNS TRIGGER LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
        CREATE TRIGGER no BEFORE UPDATE ON agent_dispatch.items FOR EACH ROW WHEN (OLD.id = 'b')
        EXECUTE FUNCTION pg_temp_no()"""
    )
    commands: dict[str, list[Command]] = {
        "succeed": [Succeed(first.lease), Succeed(second.lease)],
        "renew": [Renew(first.lease, 900.0), Renew(second.lease, 900.0)],
        "cancel": [Cancel("a", "t", "no"), Cancel("b", "t", "no")],
    }
    with pytest.raises(FleetUnavailableError):
        authority.perform(commands[end])
    assert authority.find(["a", "b"]) == {"a": first, "b": second}
    assert authority.outcomes("a") == ()
    direct.execute("DROP TRIGGER no ON agent_dispatch.items")
    assert all(isinstance(item, WorkItem) for item in authority.perform(commands[end])), "and it goes on"


def test_held_is_what_is_held(authority: PostgresWorkItems, direct: psycopg.Connection[Any]) -> None:
    def held() -> set[str]:
        rows = direct.execute(
            "SELECT i.id FROM agent_dispatch.held AS h JOIN agent_dispatch.items AS i ON i.seq = item"
        )
        return {name for (name,) in rows}

    submitted(authority, *"abcd")
    leases = {name: claimed(authority, name, starts=name != "c").lease for name in "abc"}
    assert held() == {"a", "b", "c"}
    authority.perform([Succeed(leases["a"]), Defer(leases["b"], "x"), Start(leases["c"]), Recover("c", "t")])
    assert held() == {"c"}
    authority.perform([Cancel("c", "t", "x")])
    authority.perform([Succeed(leases["c"])])
    assert held() == set()


# -- how it is asked ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("block", "index"),
    [
        ("find_items", "items_id_key"),
        ("lock_items", "items_id_key"),
        ("lock_undelivered", "items_due"),
        ("find_lapsed", "items_lapsing"),
        ("find_waiting", "waits_pkey"),
        ("find_outcomes", "outcomes_pkey"),
        ("search_items", "items_pkey"),
        ("change_items", "items_id_key"),
        ("find_holders", "held_pkey"),
    ],
)
def test_what_is_asked_often_is_looked_up_however_small_the_tables_were(
    authority: PostgresWorkItems, block: str, index: str
) -> None:
    """As it is planned for all values, on the connection of an authority that began on empty tables."""
    authority.find(["a"])
    wire = authority._client.wire
    count = max(int(number) for number in re.findall(r"\$(\d+)", SQL[block]))
    wire.run([Statement("SET plan_cache_mode = force_generic_plan"), Statement(f"PREPARE asked AS {SQL[block]}")], 30)
    values = ", ".join(["NULL"] * count)
    (result,) = wire.run([Statement(f"EXPLAIN EXECUTE asked ({values})")], 30, binary=True)
    plan = "\n".join(str(line) for (line,) in wire.rows(result))
    assert index in plan, plan
    assert "Seq Scan on items" not in plan


def test_many_changes_are_two_exchanges(authority: PostgresWorkItems) -> None:
    submitted(authority, *(f"i{number}" for number in range(20)))
    exchanges: list[int] = []
    client = authority._client
    send = client.run

    def run(statements: Any, rows: int = 0) -> Any:
        items = list(statements)
        exchanges.append(len(items))
        return send(items, rows)

    client.run = run  # type: ignore[method-assign]
    claims = authority.perform([Claim(f"i{number}", "t", "w", 60.0, starts=True) for number in range(20)])
    assert len(exchanges) == 2
    authority.perform([Succeed(item.lease) for item in claims if isinstance(item, WorkItem)])
    assert len(exchanges) == 4


# -- how it is reached -------------------------------------------------------------------------------------------------


def test_nothing_depends_on_the_session_behind_a_pooler(
    postgres_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whose number for the server's process is made up, and who may hand each transaction to another process."""
    monkeypatch.setattr(Wire, "server_pid", 2**31 - 2)
    with closing(PostgresWorkItems(postgres_database)) as authority:
        submitted(authority, "a")
        lease = claimed(authority, "a").lease
        (settings,) = authority._client.wire.run(
            [Statement("SELECT current_setting('lock_timeout'), current_setting('enable_seqscan')")],
            30,
            binary=True,
        )
        assert authority._client.wire.rows(settings) == [("0", "on")]
        authority._client.wire.run([Statement("DEALLOCATE ALL")], 30)
        (ended,) = authority.perform([Succeed(lease)])
        assert isinstance(ended, WorkItem)
        with pytest.raises(FleetBrokenError, match="hands out connections by transaction"):
            authority.lock_sessions([("t", "s")])


def test_a_statement_that_the_server_side_forgot_is_sent_anew(authority: PostgresWorkItems) -> None:
    submitted(authority, "a")
    authority._client.wire.run([Statement("DEALLOCATE ALL")], 30)
    assert claimed(authority, "a").state is WorkItemState.RUNNING


@pytest.mark.parametrize("isolation", ["serializable", "repeatable read"])
def test_a_role_whose_transactions_are_stricter_is_no_hindrance(postgres_database: str, isolation: str) -> None:
    name = psycopg.conninfo.conninfo_to_dict(postgres_database)["dbname"]
    with closing(psycopg.connect(postgres_database, autocommit=True)) as connection:
        connection.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = '{isolation}'".encode())
    with closing(PostgresWorkItems(postgres_database)) as authority:
        submitted(authority, "a")
        assert claimed(authority, "a").attempt == 1


def test_authority_and_queue_share_a_schema_whichever_comes_first(postgres_database: str) -> None:
    def use_authority(database: str) -> None:
        with closing(PostgresWorkItems(database)) as authority:
            assert authority.find(["a"]) == {}

    def use_queue(database: str) -> None:
        with closing(PostgresTransport(database)) as transport:
            assert transport.depth() == 0

    for order in ((use_authority, use_queue), (use_queue, use_authority)):
        database = Databases(postgres_database).new()
        for use in order:
            use(database)


def test_a_schema_of_another_program_or_a_newer_version_is_refused(postgres_database: str) -> None:
    with closing(psycopg.connect(postgres_database, autocommit=True)) as connection:
        connection.execute("CREATE SCHEMA agent_dispatch CREATE TABLE stranger (n INTEGER)")
        with (
            closing(PostgresWorkItems(postgres_database)) as authority,
            pytest.raises(FleetBrokenError, match="another"),
        ):
            authority.find(["a"])
        connection.execute("DROP SCHEMA agent_dispatch CASCADE")
        with closing(PostgresWorkItems(postgres_database)) as authority:
            authority.find(["a"])
            connection.execute("UPDATE agent_dispatch.authority_version SET version = 99")
        with closing(PostgresWorkItems(postgres_database)) as authority, pytest.raises(FleetBrokenError, match="newer"):
            authority.find(["a"])


def test_a_role_without_rights_learns_which_it_needs(postgres_database: str, authority: PostgresWorkItems) -> None:
    authority.find(["a"])
    with closing(psycopg.connect(postgres_database, autocommit=True)) as connection:
        connection.execute("CREATE ROLE poor LOGIN")
        connection.execute("GRANT USAGE ON SCHEMA agent_dispatch TO poor")
        connection.execute("GRANT SELECT ON agent_dispatch.authority_version TO poor")
    try:
        url = psycopg.conninfo.make_conninfo(postgres_database, user="poor")
        with closing(PostgresWorkItems(url)) as other, pytest.raises(FleetBrokenError, match="GRANT this role"):
            other.find(["a"])
    finally:
        with closing(psycopg.connect(postgres_database, autocommit=True)) as connection:
            connection.execute("DROP OWNED BY poor")
            connection.execute("DROP ROLE poor")


def test_the_oldest_server_at_hand_will_do() -> None:
    server = PostgresServer(installations()[-1])
    try:
        server.start()
        with closing(PostgresWorkItems(server.url())) as authority:
            submitted(authority, "a")
            submitted(authority, "b", depends_on=("a",))
            authority.perform([Succeed(claimed(authority, "a").lease)])
            assert authority.find(["b"])["b"].state is WorkItemState.READY
            assert authority.prune(2e12) == 1
    finally:
        server.close()


# -- in company --------------------------------------------------------------------------------------------------------


def before_its_commit(authority: PostgresWorkItems, act: Callable[[], None]) -> None:
    """Once, when all of a transaction but its end has been sent."""
    client = authority._client
    send = client.run

    def run(statements: Any, rows: int = 0) -> Any:
        items = list(statements)
        if COMMIT in items:
            client.run = send  # type: ignore[method-assign]
            act()
        return send(items, rows)

    client.run = run  # type: ignore[method-assign]


def test_two_that_end_between_each_others_look_and_commit_release_what_waits_for_both(
    authority: PostgresWorkItems, postgres_database: str, direct: psycopg.Connection[Any]
) -> None:
    """Each counts what is left before the other's end can be seen, unless one waits for the other."""
    submitted(authority, "a", "b")
    submitted(authority, "c", depends_on=("a", "b"))
    leases = {name: claimed(authority, name).lease for name in "ab"}
    other = PostgresWorkItems(postgres_database)
    thread = threading.Thread(target=lambda: other.perform([Succeed(leases["b"]), Deliver("c", "t")]))

    def meanwhile() -> None:
        thread.start()
        deadline = time.monotonic() + 30
        while thread.is_alive():
            waiting = direct.execute("SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'").fetchone()
            if waiting is not None:
                return
            assert time.monotonic() < deadline

    before_its_commit(authority, meanwhile)
    authority.perform([Succeed(leases["a"]), Deliver("c", "t")])
    thread.join(30)
    other.close()
    assert authority.find(["c"])["c"].state is WorkItemState.READY


def test_who_is_submitted_between_the_look_and_the_commit_of_what_it_waits_for_is_released(
    authority: PostgresWorkItems, postgres_database: str
) -> None:
    submitted(authority, "a")
    lease = claimed(authority, "a").lease
    with closing(PostgresWorkItems(postgres_database)) as other:
        before_its_commit(authority, lambda: submitted(other, "b", depends_on=("a",)))
        (ended,) = authority.perform([Succeed(lease)])
    assert isinstance(ended, WorkItem)
    assert authority.find(["b"])["b"].state is WorkItemState.READY
