"""The order of a PostgreSQL queue: what strangers rewrite, what is under way after a crash, and what a call reads."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import psycopg
import pytest

from harness.fleet.errors import StaleReceiptError
from harness.fleet.transport.postgres import PostgresTransport
from tests.conformance.transport_rig import START, VISIBILITY_S, Clock, names, receipts, turn

PLENTY = 10**6
QUEUE = "agent_dispatch.agent_dispatch_queue"

Execute = Callable[[str], list[tuple[object, ...]]]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def queue(postgres_database: str, clock: Clock) -> Iterator[PostgresTransport]:
    with contextlib.closing(PostgresTransport(postgres_database, clock=clock, visibility_s=VISIBILITY_S)) as transport:
        assert transport.depth() == 0
        yield transport


@pytest.fixture
def stranger(postgres_database: str) -> Iterator[Execute]:
    """Executes a statement and commits it."""
    with contextlib.closing(psycopg.connect(postgres_database, autocommit=True)) as connection:

        def execute(sql: str) -> list[tuple[object, ...]]:
            cursor = connection.execute(sql.encode())
            return cursor.fetchall() if cursor.description else []

        yield execute


# -- what strangers rewrite --------------------------------------------------------------------------------------------

REWRITTEN = {
    "one that waits behind goes to another session": ("UPDATE {q} SET session_id = 's9' WHERE job_id = 'a2'", ["a2"]),
    "the one that is out goes to another session": (
        "UPDATE {q} SET session_id = 's9' WHERE job_id = 'a1'",
        ["a1", "a2"],
    ),
    "the one that is out is rewritten where it is": ("UPDATE {q} SET priority = 0 WHERE job_id = 'a1'", ["a1"]),
    "the one that is out goes": ("DELETE FROM {q} WHERE job_id = 'a1'", ["a2"]),
    "the one that waits comes again": (
        "WITH gone AS (DELETE FROM {q} WHERE job_id = 'a2' RETURNING *)"
        " INSERT INTO {q} (job_id, session_id, kind, payload_ref, tenant) SELECT 'a4', 's9', kind, payload_ref, tenant"
        " FROM gone",
        ["a4"],
    ),
    "one comes to the session": (
        "INSERT INTO {q} SELECT 0, NULL, 0, 0, 'a0', session_id, kind, payload_ref, tenant FROM {q}"
        " WHERE job_id = 'a2'",
        [],
    ),
    "all change their tenant": ("UPDATE {q} SET tenant = 'other'", ["a1"]),
}


@pytest.mark.parametrize("name", REWRITTEN)
@pytest.mark.parametrize("is_known", [True, False], ids=["known", "unknown"])
def test_one_of_a_session_is_out_whatever_strangers_rewrite(
    queue: PostgresTransport, stranger: Execute, clock: Clock, name: str, is_known: bool
) -> None:
    statement, expected = REWRITTEN[name]
    queue.put_many([turn("a1", "s")], PLENTY)
    (first,) = queue.receive(5, 0.0)
    queue.put_many([turn("a2", "s", enqueued_at=START + 2)], PLENTY)
    if is_known:
        assert queue.receive(5, 0.0) == (), "it waits for the one that is out"
    stranger(statement.format(q=QUEUE))
    came = queue.receive(5, 0.0)
    assert names(came) == expected
    queue.acknowledge([first.receipt, *receipts(came)])
    left = {name for (name,) in stranger(f"SELECT job_id FROM {QUEUE}")}
    for _ in range(3):
        clock.now += VISIBILITY_S
        came = queue.receive(5, 0.0)
        left -= set(names(came))
        queue.acknowledge(receipts(came))
    assert left == set()
    assert queue.depth() == 0


def test_what_is_rewritten_keeps_its_place_in_the_order(queue: PostgresTransport, stranger: Execute) -> None:
    """A session that was served isn't taken for a new one because its only delivery was rewritten."""
    queue.put_many([turn("a", "s1"), turn("b", "s2", enqueued_at=START + 1)], PLENTY)
    (out,) = queue.receive(1, 0.0)
    assert queue.give_back([out.receipt], 0.0) == (None,)
    stranger(f"UPDATE {QUEUE} SET payload_ref = 'sha256:1' WHERE job_id = 'a'")
    assert names(queue.receive(2, 0.0)) == ["b", "a"]


def test_a_delivery_that_comes_again_in_the_statement_that_removes_it_is_still_there(
    queue: PostgresTransport, stranger: Execute
) -> None:
    queue.put_many([turn("a"), turn("b")], PLENTY)
    assert len(queue.receive(0, 0.0)) == 0
    stranger(f"UPDATE {QUEUE} SET job_id = 'c' WHERE job_id = 'a'")
    stranger(f"UPDATE {QUEUE} SET job_id = 'a' WHERE job_id = 'c'")
    assert sorted(names(queue.receive(5, 0.0))) == ["a", "b"]


@pytest.mark.parametrize("how", ["give_back", "extend"])
def test_what_is_gone_can_neither_be_given_back_nor_kept(queue: PostgresTransport, stranger: Execute, how: str) -> None:
    """Though no receiver has looked since."""
    queue.put_many([turn("a"), turn("b")], PLENTY)
    first, second = receipts(queue.receive(2, 0.0))
    assert queue.acknowledge([first]) == (None,)
    stranger(f"DELETE FROM {QUEUE} WHERE job_id = 'b'")
    answers = queue.give_back([first, second], 0.0) if how == "give_back" else queue.extend([first, second])
    assert [type(answer) for answer in answers] == [StaleReceiptError] * 2
    assert queue.receive(2, 0.0) == ()


def test_a_receipt_is_of_one_delivery_and_not_of_the_next_with_its_id(
    postgres_database: str, queue: PostgresTransport, clock: Clock
) -> None:
    queue.put_many([turn("a")], PLENTY)
    old = receipts(queue.receive(1, 0.0))
    assert queue.acknowledge(old) == (None,)
    queue.put_many([turn("a", payload_ref="sha256:1")], PLENTY)
    with contextlib.closing(PostgresTransport(postgres_database, clock=clock)) as other:
        for settle in (other.acknowledge, other.extend, queue.extend, lambda each: queue.give_back(each, 0.0)):
            assert [type(answer) for answer in settle(old)] == [StaleReceiptError]
    assert queue.acknowledge(old) == (None,), "that was done before"
    assert queue.depth() == 1
    assert names(queue.receive(1, 0.0)) == ["a"]


def test_beside_one_that_is_gone_what_is_to_come_again_is_acknowledged(queue: PostgresTransport) -> None:
    queue.put_many([turn("a"), turn("b")], PLENTY)
    out = receipts(queue.receive(2, 0.0))
    assert queue.acknowledge(out[:1]) == (None,)
    queue.put_many([turn("b")], PLENTY)
    assert queue.acknowledge(out) == (None, None)
    assert names(queue.receive(2, 0.0)) == ["b"]


# -- made anew while others are at work --------------------------------------------------------------------------------


def test_what_is_under_way_while_the_order_is_made_anew_counts_once(
    postgres_database: str, queue: PostgresTransport, stranger: Execute
) -> None:
    queue.put_many([turn("goes"), turn("stays")], PLENTY)
    with psycopg.connect(postgres_database) as going, psycopg.connect(postgres_database) as coming:
        going.execute(f"DELETE FROM {QUEUE} WHERE job_id = 'goes'".encode())
        coming.execute(f"INSERT INTO {QUEUE} (job_id, session_id) VALUES ('comes', 's')".encode())
        for table in ("depth", "step", "order", "tenant", "group", "lane", "entry"):  # as a crash would leave them
            stranger(f"DELETE FROM agent_dispatch.queue_{table}")
        stranger("DELETE FROM agent_dispatch.queue_note")
        assert queue.depth() == 2
        stranger("SELECT agent_dispatch.queue_rebuild()")
        going.commit()
        coming.commit()
    assert queue.depth() == 2
    came = queue.receive(5, 0.0)
    assert sorted(name for name in names(came) if name != "?") == ["stays"]
    assert len(came) == 2
    assert queue.acknowledge(receipts(came)) == (None, None)
    assert queue.receive(5, 0.0) == ()
    for table in ("tenant", "group", "lane", "entry", "note"):
        assert stranger(f"SELECT * FROM agent_dispatch.queue_{table}") == [], table


# -- what a call reads -------------------------------------------------------------------------------------------------

MANY = 4000


@pytest.mark.parametrize("tenants", [1, 40])
def test_however_many_are_queued_a_call_reads_few_rows(
    postgres_database: str, queue: PostgresTransport, tenants: int
) -> None:
    """Plans are made once, when nobody knows how many rows there will be: none may depend on there being few."""
    with psycopg.connect(postgres_database, autocommit=True) as early:
        used = "SELECT * FROM agent_dispatch.queue_receive('w', {}, 60, NULL)"
        early.execute(used.format(3).encode())  # planned while there is nothing
        queue.put_many(
            [turn(f"{number}", f"s{number // 2}", tenant=f"t{number % tenants}") for number in range(MANY)], PLENTY
        )
        assert _read(early, used.format(10)) < 300
        (ids, owners, times, numbers) = zip(
            *early.execute(
                b"SELECT job_id, owner, claimed_at, number FROM agent_dispatch.queue_entry WHERE owner <> ''"
            ).fetchall(),
            strict=True,
        )
        assert len(ids) == 10
        arrays = f"ARRAY{list(ids)}, ARRAY{list(owners)}, ARRAY{list(times)}::float8[], ARRAY{list(numbers)}::bigint[]"
        assert _read(early, f"SELECT * FROM agent_dispatch.queue_extend({arrays}, 60, NULL)") < 60
        assert _read(early, f"SELECT * FROM agent_dispatch.queue_acknowledge({arrays})") < 60
        assert _read(early, used.format(10)) < 300
        one = (
            "ARRAY['new'], ARRAY['s'], ARRAY['k'], ARRAY[''], ARRAY['t'], ARRAY[2], ARRAY[1e9::float8], ARRAY[0],"
            " ARRAY[0::float8]"
        )
        assert _read(early, f"SELECT * FROM agent_dispatch.queue_put({PLENTY}, {one})") < 15


def _read(connection: psycopg.Connection[tuple[object, ...]], statement: str) -> int:
    """How many rows a call fetches from tables and indexes."""

    def fetched() -> int:
        (read,) = connection.execute(
            b"SELECT sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0))::bigint FROM pg_stat_xact_user_tables"
            b" WHERE schemaname = 'agent_dispatch'"
        ).fetchone() or (0,)
        assert isinstance(read, int)
        return read

    with connection.transaction():
        before = fetched()
        connection.execute(statement.encode())
        return fetched() - before
